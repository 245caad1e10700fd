package ref

import "math"

// Penalty is what a row's logits are changed by, but for the list: 8 words.
type Penalty struct {
	Repetition float32 // above 0
	Frequency  float32
	Presence   float32
	Entries    uint32 // elements of its row of Listed that count
	Until      uint32 // bans hold for tokens at positions below it
	_          [3]uint32
}

// Entry is an id with a bias, or one that is banned: vec2<u32>.
type Entry struct {
	ID   uint32 // or'ed with Biased and Banned
	Bias float32
}

// The flags of Entry.ID.
const (
	Biased = 1 << 30
	Banned = 1 << 31
)

// PenalizeArgs are the arguments of Penalize.
type PenalizeArgs struct {
	Vocab     int       // elements of a row of Logits and Counts
	Limit     int       // only ids below this one are changed
	Entries   int       // elements of a row of Listed
	Tokens    []Token   // [M]
	States    []State   // [M]: rows without the first flag are left alone
	Penalties []Penalty // [records]
	Listed    []Entry   // [records, Entries], by id
	Counts    []uint32  // [records, Vocab] as AdvanceArgs
	Logits    []float32 // [M, Vocab]
}

// Penalize changes the logits of the rows lo..hi-1.
func Penalize(a *PenalizeArgs, lo, hi int) {
	for m := lo; m < hi; m++ {
		if a.States[m].Flags&1 == 0 {
			continue
		}
		r := int(a.States[m].Flags >> 8)
		p, logits := &a.Penalties[r], a.Logits[m*a.Vocab:][:a.Limit]
		for _, e := range a.Listed[r*a.Entries:][:p.Entries] {
			id := e.ID &^ (Biased | Banned)
			if a.Counts[r*a.Vocab+int(id)]&Listed == 0 {
				continue
			}
			if e.ID&Banned != 0 && a.Tokens[m].Position < p.Until {
				logits[id] = float32(math.Inf(-1))
			}
			if e.ID&Biased != 0 {
				logits[id] += e.Bias
			}
		}
		for id, l := range logits {
			if c := a.Counts[r*a.Vocab+id]; c&Seen != 0 {
				logits[id] = p.change(l, c&Times)
			}
		}
	}
}

// change is what the penalties make of the logit of an id that has been seen, n times in the output. Each step is rounded.
func (p *Penalty) change(l float32, n uint32) float32 {
	if l != l || math.IsInf(float64(l), -1) {
		return l
	}
	if l > 0 {
		l /= p.Repetition
	} else {
		l = float32(l * p.Repetition)
	}
	if n > 0 {
		l -= float32(p.Frequency * float32(n))
		l -= p.Presence
	}
	return min(max(l, -math.MaxFloat32), math.MaxFloat32)
}
