package sample

import (
	"cmp"
	"errors"
	"slices"
)

// Adjustment is how a device changes the logits of a row before it chooses from them, as Sample does on the host:
// kernels.Penalize has the order.
type Adjustment struct {
	Repetition, Frequency, Presence float32
	Biases                          []Bias // by id, each once
	// Bans is for how many more tokens the banned ids may not be chosen; 0 if none is.
	Bans int
}

// Bias is an id whose logit is changed whether or not it has been seen.
type Bias struct {
	ID     int32
	Bias   float32
	Biased bool // Bias is added
	Banned bool // may not be chosen for Adjustment.Bans more tokens
}

// The words of Counts.
const (
	countSeen   = 1 << 31
	countListed = 1 << 30
)

// mostRepetition bounds the repetition penalties that a device's floats can multiply and divide by as the host does.
const mostRepetition = 1 << 20

// Adjust says how a device is to change the logits of the next tokens, or that it cannot. Where Device says that it need
// not, what Adjust gives changes nothing.
func (s *Sampler) Adjust() (a Adjustment, ok bool) {
	a = Adjustment{Repetition: float32(s.p.RepetitionPenalty), Frequency: float32(s.p.FrequencyPenalty), Presence: float32(s.p.PresencePenalty)}
	for _, b := range s.bias {
		a.Biases = append(a.Biases, Bias{ID: b.id, Bias: b.bias, Biased: true})
	}
	if s.early() && len(s.endIDs) > 0 {
		a.Bans = s.minimum - s.output
		for _, id := range s.endIDs {
			if i := slices.IndexFunc(a.Biases, func(b Bias) bool { return b.ID == id }); i >= 0 {
				a.Biases[i].Banned = true
			} else {
				a.Biases = append(a.Biases, Bias{ID: id, Banned: true})
			}
		}
	}
	slices.SortFunc(a.Biases, func(x, y Bias) int { return cmp.Compare(x.ID, y.ID) })
	ok = s.allowed == nil && len(s.words) == 0 && a.Repetition >= 1.0/mostRepetition && a.Repetition <= mostRepetition
	return a, ok
}

// Counts fills a row of the words in which a device keeps what has been seen, for the Adjustment a: bit 31 for ids in prompt or
// output, bit 30 for those in Biases, and how many times the output has the id. words has one for each id.
func (s *Sampler) Counts(a *Adjustment, words []uint32) {
	clear(words)
	for _, id := range s.seen {
		words[id] = countSeen | s.counts[id]
	}
	for _, b := range a.Biases {
		words[b.ID] |= countListed
	}
}

// SampleAdjusted is Sample from logits that a device has changed as Adjust says.
func (s *Sampler) SampleAdjusted(logits []float32) (int32, error) {
	id, err := s.choose(nil, logits[:min(len(logits), s.numTokens)])
	if errors.Is(err, ErrNoToken) && s.early() && len(s.endIDs) > 0 {
		err = ErrRuledOut // most likely: the changed logits do not tell whether the model had a token
	}
	return id, err
}
