package weights

import (
	"maps"
	"slices"
	"strings"
)

// translate gives the tensors of checkpoints that follow Paddle's naming their Hugging Face names:
//
//	ernie.*                   model.*
//	self_attn.qkv_proj        rows of q_proj, k_proj, v_proj
//	mlp.up_gate_proj          rows of gate_proj, up_proj
func (d *dirSource) translate() {
	c := d.cfg
	q, kv := c.NumHeads*c.HeadDim, c.NumKVHeads*c.HeadDim
	names := slices.Concat(slices.Collect(maps.Keys(d.tensors)), slices.Collect(maps.Keys(d.packed)))
	slices.Sort(names)
	for _, name := range names {
		as := name
		if rest, ok := strings.CutPrefix(name, "ernie."); ok && !d.Has("model."+rest) {
			as = "model." + rest
			d.rename(name, as)
		}
		for _, fused := range []struct {
			part  string
			names []string
			rows  []int
		}{
			{".self_attn.qkv_proj.", []string{".self_attn.q_proj.", ".self_attn.k_proj.", ".self_attn.v_proj."}, []int{q, kv, kv}},
			{".mlp.up_gate_proj.", []string{".mlp.gate_proj.", ".mlp.up_proj."}, []int{c.IntermediateSize, c.IntermediateSize}},
		} {
			if strings.Contains(as, fused.part) && d.split(as, fused.part, fused.names, fused.rows) {
				delete(d.tensors, as)
				delete(d.packed, as)
			}
		}
	}
}

func (d *dirSource) rename(name, as string) {
	if t, ok := d.tensors[name]; ok {
		d.tensors[as] = t
		delete(d.tensors, name)
	}
	if p, ok := d.packed[name]; ok {
		d.packed[as] = p
		delete(d.packed, name)
	}
}

// split enters the parts of a fused tensor; false when its shape is not that of the parts together.
func (d *dirSource) split(name, part string, names []string, rows []int) bool {
	if d.packed[name] != nil {
		return d.splitPacked(name, part, names, rows)
	}
	t := d.tensors[name]
	total, vector := 0, len(t.shape) == 1
	for _, n := range rows {
		total += n
	}
	f, err := floatFormat(t.dtype)
	if err != nil || (vector && t.k != total) || (!vector && t.rows != total) {
		return false
	}
	for i, n := range rows {
		p := t
		if vector {
			p.k, p.shape = n, []int{n}
			t.offset += int64(f.RowBytes(n))
		} else {
			p.rows, p.shape = n, []int{n, t.k}
			t.offset += int64(n) * int64(f.RowBytes(t.k))
		}
		d.tensors[strings.Replace(name, part, names[i], 1)] = p
	}
	return true
}
