package bench

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/pagelight/pagelight/engine"
)

// account profiles the steps behind the tests and says where the time of a token goes.
func (m *measurement) account(ctx context.Context) error {
	info := m.eng.Info()
	m.done = m.total
	profile := func(req engine.ProfileRequest) (*Profile, error) {
		if req.Depth+req.Tokens > info.MaxModelLen {
			return nil, nil
		}
		name := fmt.Sprintf("decode, %d at %d", req.Seqs, req.Depth)
		if req.Tokens > 1 {
			name = fmt.Sprintf("prompt, %d tokens at %d", req.Tokens, req.Depth)
		}
		m.tell(DoingProfile, name, 0)
		p, err := m.eng.Profile(ctx, req)
		if err != nil {
			return nil, err
		}
		m.run.Profiles = append(m.run.Profiles, m.profileOf(name, req, p))
		return &m.run.Profiles[len(m.run.Profiles)-1], nil
	}
	for i, t := range m.run.Tests {
		switch t.Kind {
		case KindDecode:
			depth := max(t.Depth, 1) + t.Gen/2 // the middle of the answer
			p, err := profile(engine.ProfileRequest{Seqs: 1, Depth: depth, Tokens: 1})
			if err != nil {
				return err
			}
			if p != nil && m.run.Token == nil {
				m.run.Token = m.tokenOf(&m.run.Tests[i], p)
			}
		case KindBatch:
			if t.Batch == 1 {
				continue
			}
			if _, err := profile(engine.ProfileRequest{Seqs: t.Batch, Depth: BatchPrompt + BatchGen/2, Tokens: 1}); err != nil {
				return err
			}
		}
	}
	if slices.ContainsFunc(m.run.Tests, func(t Test) bool { return t.Kind == KindPrefill }) {
		if _, err := profile(engine.ProfileRequest{Seqs: 1, Tokens: min(m.eng.MaxBatchedTokens(), info.MaxModelLen)}); err != nil {
			return err
		}
	}
	return nil
}

// profileOf groups the ops of a step that are of one name, one part and one size: layers repeat.
//
// A dispatch that is timed by itself has a pass of its own, whose beginning and end cost a device several times what a dispatch among
// others does. The smallest ops do next to nothing, so what these take beyond a dispatch is taken off every dispatch.
func (m *measurement) profileOf(name string, req engine.ProfileRequest, p engine.StepProfile) Profile {
	out := Profile{Step: name, Rows: p.Rows, Depth: req.Depth, StepUS: us(p.Took), Note: p.Why}
	pass := math.Inf(1)
	for _, op := range p.Ops {
		pass = min(pass, us(op.Took)/float64(max(1, op.Dispatches))-m.device.DispatchUS)
	}
	if m.device.DispatchUS > 0 && !math.IsInf(pass, 0) {
		out.PassUS = max(0, pass)
	}
	type key struct {
		name, part string
		bytes      int64
	}
	at := map[key]int{}
	for _, op := range p.Ops {
		k := key{op.Name, op.Part, op.Bytes}
		i, ok := at[k]
		if !ok {
			i = len(out.Kernels)
			at[k] = i
			out.Kernels = append(out.Kernels, KernelProfile{Name: op.Name + ", " + op.Part})
		}
		took := max(0, us(op.Took)-out.PassUS*float64(op.Dispatches))
		kp := &out.Kernels[i]
		kp.Count += op.Dispatches
		kp.StepUS += took
		kp.Bytes += op.Bytes + m.contextBytes(op.Name, req)
		out.SumUS += took
	}
	for i := range out.Kernels {
		k := &out.Kernels[i]
		k.EachUS = k.StepUS / float64(max(1, k.Count))
		if k.StepUS > 0 {
			k.GBps = float64(k.Bytes) / k.StepUS / 1e3
		}
	}
	return out
}

// contextBytes is what attention over a context reads in one layer, which ops do not count.
func (m *measurement) contextBytes(op string, req engine.ProfileRequest) int64 {
	if !strings.HasPrefix(op, "paged_attn") && !strings.HasPrefix(op, "attention") && op != "attn_linear" {
		return 0
	}
	info := m.eng.Info()
	perToken := info.KVBytes / int64(info.NumBlocks*info.BlockSize*m.eng.Config().NumLayers)
	return int64(req.Seqs) * int64(req.Depth+req.Tokens) * perToken
}

// tokenOf is the account of one token of a single answer, and its bounds.
func (m *measurement) tokenOf(t *Test, p *Profile) *Token {
	a := &Token{Test: t.Name, US: 1e6 / t.Speed.Median}
	kernels := slices.Clone(p.Kernels)
	for _, k := range kernels {
		a.Bytes += k.Bytes
		a.Dispatches += k.Count
	}
	a.DispatchUS = float64(a.Dispatches) * m.device.DispatchUS
	if m.device.CopyGBps > 0 {
		a.BytesUS = float64(a.Bytes) / m.device.CopyGBps / 1e3
	}
	a.Roofline = max(a.BytesUS, a.DispatchUS) / a.US
	left := a.US
	part := func(name string, us float64, note string) {
		a.Parts = append(a.Parts, Part{name, us, note})
		left -= us
	}
	if p.SumUS > 0 {
		slices.SortStableFunc(kernels, func(x, y KernelProfile) int { return cmp.Compare(y.StepUS, x.StepUS) })
		for _, k := range kernels {
			part(k.Name, k.StepUS, fmt.Sprintf("%d dispatches of %.1f us and %.2f MB, %.0f GB/s", k.Count, k.EachUS, float64(k.Bytes)/1e6/float64(max(1, k.Count)), k.GBps))
		}
		part("between kernels", p.StepUS-p.SumUS, "the step by itself, less its kernels; negative where they overlap or where timing each costs more")
	} else {
		part("the device", p.StepUS, "the step by itself: "+p.Note)
	}
	note := "what the device does not hide of the host's work"
	if s := t.Stages; s != nil {
		note += fmt.Sprintf("; as the host sees a token: %.1f us encoding, %.1f waiting and reading back, %.1f else", s.EncodeUS, s.WaitUS, s.HostUS)
	}
	part("beyond the device", left, note)
	return a
}

func us(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }
