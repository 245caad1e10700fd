package main

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/pagelight/pagelight/engine"
)

type logitsCmd struct {
	Model string `required:"" placeholder:"MODEL" env:"PAGELIGHT_MODEL" help:"The model: a folder, a file in one, hf:ORG/NAME, builtin, or synthetic:NAME."`
	Cases string `required:"" placeholder:"cases.json" help:"Test cases: a list of {\"name\",\"input_ids\",\"greedy\"}, or an object with \"cases\"."`
	Out   string `placeholder:"out.safetensors" help:"Where to write the logits (f32)."`
	JSON  bool   `name:"json" help:"Print {\"cases\":[{\"name\",\"greedy\"}]}."`
	modelFlags
}

// Help explains the tensors.
func (logitsCmd) Help() string {
	return `Writes, for each case, NAME.logits [n, vocab] for prompts of at most 64 tokens or NAME.last_logits [vocab] for longer
ones, and NAME.greedy_logits [steps, vocab] of a greedy continuation as long as the reference's. End-of-answer ids do not end it.`
}

// testCase is one element of a cases file.
type testCase struct {
	Name     string  `json:"name"`
	InputIDs []int32 `json:"input_ids"`
	Greedy   []int32 `json:"greedy"`
}

// caseResult is what --json prints of a case.
type caseResult struct {
	Name   string  `json:"name"`
	Greedy []int32 `json:"greedy"`
}

// maxAllLogits is the longest prompt whose logits are written for every position.
const maxAllLogits = 64

// Run computes the logits of all cases.
func (c *logitsCmd) Run(a *app) (err error) {
	if c.Out == "" && !c.JSON {
		return usagef("logits: give --out, --json or both")
	}
	cases, err := readCases(a, c.Cases)
	if err != nil {
		return err
	}
	var out *safetensorsWriter
	if c.Out != "" { // before the model is loaded, which may take minutes
		if out, err = createSafetensors(c.Out); err != nil {
			return usageError{err}
		}
		defer func() { err = errors.Join(err, out.abort()) }()
	}
	eng, err := c.open(a, c.Model, engine.Config{LogitRows: maxAllLogits})
	if err != nil {
		return err
	}
	defer eng.Close()
	results := make([]caseResult, 0, len(cases))
	for _, tc := range cases {
		greedy, err := runCase(a, eng, &tc, out)
		if err != nil {
			return fmt.Errorf("case %q: %w", tc.Name, err)
		}
		results = append(results, caseResult{tc.Name, greedy})
	}
	if out != nil {
		if err := out.close(); err != nil {
			return err
		}
	}
	if c.JSON {
		return printJSON(a.stdout, map[string]any{"cases": results})
	}
	return nil
}

func runCase(a *app, eng *engine.Engine, tc *testCase, out *safetensorsWriter) ([]int32, error) {
	n, vocab := len(tc.InputIDs), eng.Config().VocabSize
	from := 0
	if n > maxAllLogits {
		from = n - 1
	}
	var prompt, cont []float32
	greedy, err := eng.Logits(a.ctx, engine.LogitsRequest{TokenIDs: tc.InputIDs, From: from, Steps: len(tc.Greedy)}, func(pos int, row []float32) error {
		if out == nil {
			return nil
		}
		if pos < n {
			prompt = append(prompt, row...)
		}
		if pos >= n-1 {
			cont = append(cont, row...)
		}
		return nil
	})
	if greedy == nil {
		greedy = []int32{}
	}
	if err != nil || out == nil {
		return greedy, err
	}
	if from == 0 {
		out.add(tc.Name+".logits", []int{n, vocab}, prompt)
	} else {
		out.add(tc.Name+".last_logits", []int{vocab}, prompt)
	}
	if len(tc.Greedy) > 0 {
		out.add(tc.Name+".greedy_logits", []int{len(tc.Greedy), vocab}, cont)
	}
	return greedy, out.err
}

func readCases(a *app, file string) ([]testCase, error) {
	data, err := readFile(a, file)
	if err != nil {
		return nil, usageError{err}
	}
	var cases []testCase
	if err := json.Unmarshal(data, &cases); err != nil {
		var body struct {
			Cases []testCase `json:"cases"`
		}
		if json.Unmarshal(data, &body) != nil || body.Cases == nil {
			return nil, usagef("%s: neither a list of cases nor an object with \"cases\": %w", file, err)
		}
		cases = body.Cases
	}
	seen := map[string]bool{}
	for i, tc := range cases {
		switch {
		case tc.Name == "" || len(tc.InputIDs) == 0:
			return nil, usagef("%s: case %d has no name or no input_ids", file, i)
		case seen[tc.Name]:
			return nil, usagef("%s: two cases are named %q", file, tc.Name)
		}
		seen[tc.Name] = true
	}
	return cases, nil
}
