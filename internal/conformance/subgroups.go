package conformance

import (
	"runtime"

	"github.com/pagelight/pagelight/internal/kernels"
	"github.com/pagelight/pagelight/internal/quant"
)

// subgroupCases are the kernels that have variants with subgroups, in these: by themselves, with eight rows of weights at a time, and
// as they are where subgroups are not what they should be. Formats make no difference to what is tried here. Browsers have fewer: on
// the software adapter each pipeline takes them about a second.
func subgroupCases() (list []Case) {
	q4 := quant.Format{Kind: quant.Q4, Group: 32}
	add := func(name string, fill func(*bench) error, segment int, prefer ...string) {
		tuning := &kernels.Tuning{Fuse: true, Prefer: prefer, Segment: segment}
		list = append(list, Case{Name: "subgroups/" + name, tuning: tuning, fill: fill, needs: "subgroups"})
	}
	layers := func(shapes []fusedShape) func(*bench) error {
		return func(b *bench) error { return normLinearCase(b, q4, shapes) }
	}
	attention := func(kv quant.KVType, dims ...int) func(*bench) error {
		return func(b *bench) error { return attnLinearCase(b, q4, kv, dims, false) }
	}
	const none = 32 // of subgroups of software adapters, which have 4 or 8 members
	if runtime.GOOS == "js" {
		add("norm_linear", layers(fusedShapes[:4]), 0, "subgroups")
		add("norm_linear/eight", layers(fusedShapes[4:5]), 0, "8x96 subgroups")
		add("qkv_rope_store", func(b *bench) error { return qkvRopeStoreCase(b, q4, qkvShapes[:2]) }, 0, "subgroups")
		add("attn_linear/f16", attention(quant.KVF16, 128), 0, "subgroups")
		add("head_argmax", func(b *bench) error { return headArgmaxCase(b, q4, headShapes[:1], true) }, 0, "subgroups")
		add("norm_linear/not_whole", layers(fusedShapes[:1]), none, "subgroups")
		return list
	}
	add("norm_linear", layers(fusedShapes), 0, "subgroups")
	add("norm_linear/eight", layers(fusedShapes), 0, "8x128 subgroups", "8x96 subgroups", "8x64 subgroups")
	add("norm_linear/one", layers(fusedShapes), 0, "4x32 subgroups", "4x192 subgroups", "8x256 subgroups")
	add("qkv_rope_store", func(b *bench) error { return qkvRopeStoreCase(b, q4, qkvShapes) }, 0, "subgroups")
	for _, kv := range quant.KVTypes() {
		add("attn_linear/"+kv.String(), attention(kv, 48, 128, 256), 0, "subgroups")
	}
	add("head_argmax", func(b *bench) error { return headArgmaxCase(b, q4, headShapes, true) }, 0, "subgroups")
	add("norm_linear/not_whole", layers(fusedShapes), none, "subgroups")
	add("attn_linear/not_whole", attention(quant.KVF16, 128), none, "subgroups")
	return list
}
