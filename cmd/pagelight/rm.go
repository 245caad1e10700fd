package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/pagelight/pagelight/internal/hub"
)

type rmCmd struct {
	Models []string `arg:"" name:"model" help:"What to remove: hf:ORG/NAME (all of it), hf:ORG/NAME@REVISION, or hf:ORG/NAME:FILE."`
	Yes    bool     `short:"y" help:"Do not ask."`
}

// Help explains what is removed.
func (rmCmd) Help() string {
	return `Removes models from the cache of the Hugging Face hub. A file that another revision uses too stays. "pagelight list" shows
what is there.`
}

// Run removes, after asking.
func (c *rmCmd) Run(a *app) error {
	h, err := newHub()
	if err != nil {
		return err
	}
	for _, model := range c.Models { // all of them before the first is removed
		if _, err := c.plan(h, model); err != nil {
			return err
		}
	}
	if !c.Yes && !a.person {
		return usagef("nobody is there to ask: give --yes to remove %s", strings.Join(c.Models, ", "))
	}
	in := bufio.NewReader(a.stdin)
	for _, model := range c.Models {
		r, err := c.plan(h, model)
		if err != nil {
			return err
		}
		if !c.Yes {
			fmt.Fprintf(a.stderr, "remove %s (%s)? [y/N] ", model, byteSize(r.Bytes))
			line, err := in.ReadString('\n')
			if err != nil && !errors.Is(err, io.EOF) {
				return err
			}
			if answer := strings.ToLower(strings.TrimSpace(line)); answer != "y" && answer != "yes" {
				continue
			}
		}
		if err := h.Remove(r); err != nil {
			return err
		}
		if _, err := fmt.Fprintf(a.stdout, "removed %s, %s\n", model, byteSize(r.Bytes)); err != nil {
			return err
		}
	}
	return nil
}

// plan says what removing a model would remove.
func (c *rmCmd) plan(h *hub.Hub, model string) (*hub.Removal, error) {
	if !hub.IsName(model) {
		return nil, usagef("%q is not in the cache of the hub: only models named hf:ORG/NAME can be removed; \"pagelight list\" shows them", model)
	}
	n, err := hubName(model)
	if err != nil {
		return nil, err
	}
	r, err := h.PlanRemoval(n, !strings.Contains(model, "@"))
	if missing := (*hub.NotCachedError)(nil); errors.As(err, &missing) {
		return nil, modelError{fmt.Errorf("%s is not in the cache %s: %s", missing.Name, missing.Cache, missing.Why)}
	}
	return r, err
}
