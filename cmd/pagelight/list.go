package main

import (
	"fmt"
	"text/tabwriter"

	"github.com/pagelight/pagelight/internal/hub"
)

type listCmd struct {
	JSON bool `name:"json" help:"Print a JSON array."`
}

// Help explains what is listed.
func (listCmd) Help() string {
	return `Lists the models in the cache of the Hugging Face hub, those that other programs downloaded too. What stands in the first
column can be given as MODEL to the other commands, and to "pagelight rm".`
}

// Run lists.
func (c *listCmd) Run(a *app) error {
	h, err := newHub()
	if err != nil {
		return err
	}
	entries, err := h.Cached()
	if err != nil {
		return err
	}
	if c.JSON {
		if entries == nil {
			entries = []hub.Entry{}
		}
		return printJSON(a.stdout, entries)
	}
	if len(entries) == 0 {
		fmt.Fprintf(a.stderr, "no models in %s; \"pagelight pull hf:ORG/NAME\" downloads one\n", h.Cache)
		return nil
	}
	t := tabwriter.NewWriter(a.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "MODEL\tCOMMIT\tFORMAT\tSIZE\tDOWNLOADED")
	for _, e := range entries {
		format, commit := string(e.Format), e.Commit
		if format == "" {
			format = "-"
		}
		if len(commit) > 12 {
			commit = commit[:12]
		}
		line := fmt.Sprintf("%s\t%s\t%s\t%s\t%s", e.Model, commit, format, byteSize(e.Bytes), e.Modified.Format("2006-01-02 15:04"))
		if e.Problem != "" { // without a format it cannot be opened
			line += "\t" + e.Problem
		}
		fmt.Fprintln(t, line)
	}
	return t.Flush()
}
