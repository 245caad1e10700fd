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
	// Counting says that the tokens that are chosen matter to the logits after them.
	Counting bool
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

// DeviceBiases is how many ids with a bias or a ban a device has room for: all biases that a request may have, and ends.
const DeviceBiases = maxLogitBiases + 64

// mostRepetition bounds the repetition penalties that a device's floats can multiply and divide by as the host does.
const mostRepetition = 1 << 20

// Adjust says how a device is to change the logits of the next tokens, or that it cannot. Where Device says that it need
// not, what Adjust gives changes nothing.
func (s *Sampler) Adjust() (a Adjustment, ok bool) {
	a = Adjustment{Repetition: float32(s.p.RepetitionPenalty), Frequency: float32(s.p.FrequencyPenalty), Presence: float32(s.p.PresencePenalty)}
	a.Counting = s.counts != nil
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
	return a, s.adjustable()
}

// adjustable reports whether a device can change the logits as Sample does.
func (s *Sampler) adjustable() bool {
	r := float32(s.p.RepetitionPenalty)
	return s.allowed == nil && len(s.words) == 0 && r >= 1.0/mostRepetition && r <= mostRepetition && len(s.bias)+len(s.endIDs) <= DeviceBiases
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

// Count is the word of Counts of one id, which exists.
func (s *Sampler) Count(a *Adjustment, id int32) (word uint32) {
	if s.counts != nil && s.inSeen[id] {
		word = countSeen | s.counts[id]
	}
	if _, listed := slices.BinarySearchFunc(a.Biases, id, func(b Bias, id int32) int { return cmp.Compare(b.ID, id) }); listed {
		word |= countListed
	}
	return word
}

// Accepted is how many ids the output has.
func (s *Sampler) Accepted() int { return s.output }

// SampleAdjusted is Sample from logits that a device has changed as Adjust says.
func (s *Sampler) SampleAdjusted(logits []float32) (int32, error) {
	id, err := s.choose(nil, logits[:min(len(logits), s.numTokens)])
	if errors.Is(err, ErrNoToken) && s.early() && len(s.endIDs) > 0 {
		err = ErrRuledOut // most likely: the changed logits do not tell whether the model had a token
	}
	return id, err
}
