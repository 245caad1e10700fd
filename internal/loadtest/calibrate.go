package loadtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// Format is what random prompts are sent as.
type Format string

// The formats.
const (
	FormatAuto Format = "auto" // ids where the server takes them, else text
	FormatIDs  Format = "ids"
	FormatText Format = "text"
)

// candidates are common words; most tokenizers have each as one token.
var candidates = strings.Fields(`time year people way day man thing woman life child world school state family student group
	country problem hand part place case week company system program question work government number night point home water
	room mother area money story fact month lot right study book eye job word business issue side kind head house service
	friend father power hour game line end member law car city community name`)

const (
	minWords = 8  // so few words of one token each are still a vocabulary
	fewWords = 16 // so many make the vocabulary of a server that does not tokenize; and the number of different prompts is still beyond counting
)

// Calibrate finds out how to make prompts of a given length for a server, in a few requests: which words are one token
// each (by /tokenize, where there is one), whether prompts may be token ids, and by the usage of two short answers how many
// tokens a word of a text has and how many the server adds.
//
// Where the server says nothing, lengths are guesses, and the Notes say so; what was really sent is in the usage of each
// answer, if that is there.
func Calibrate(ctx context.Context, c *Client, format Format, timeout time.Duration) (*Vocabulary, error) {
	if format == FormatIDs && c.opt.Backend == Chat {
		return nil, errors.New("a chat has text, not token ids: use --backend openai")
	}
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, timeout, errRequestTimeout)
		defer cancel()
	}
	v := &Vocabulary{Words: candidates, TokensPerWord: 1}
	ids, err := v.single(ctx, c)
	if err != nil {
		return nil, fmt.Errorf("asking for token ids: %w", err)
	}
	if ids == nil && format == FormatIDs {
		return nil, errors.New("the server does not turn words into token ids (/tokenize): send text")
	}
	if ids != nil && format != FormatText && c.opt.Backend == Completions {
		x := c.send(ctx, c.body(Request{IDs: ids[:minWords], Output: 1}, RequestOptions{}, 0), time.Now())
		switch {
		case x.Err == nil || x.Err.Kind == KindEmpty:
			v.IDs = ids
			if x.Usage != nil {
				v.Overhead = max(0, x.Usage.PromptTokens-minWords)
			}
			return v, nil
		case format == FormatIDs || x.Err.Status != 400 && x.Err.Status != 422:
			return nil, fmt.Errorf("trying a prompt of token ids: %w", x.Err)
		}
	}
	return v, v.fit(ctx, c, ids != nil)
}

// single keeps the words that are one token each wherever they stand, and gives their ids; nil where the server does not
// tokenize or has too few such words.
func (v *Vocabulary) single(ctx context.Context, c *Client) ([]int32, error) {
	const repeats, inside = 8, 4 // the first may be other: the text's begin
	found := make([]int32, len(candidates))
	var mu sync.Mutex
	var failed error
	var all sync.WaitGroup
	seats := newSeats(8)
	for i, w := range candidates {
		if !seats.take(ctx) {
			break
		}
		all.Go(func() {
			defer seats.give()
			mu.Lock()
			stop := failed != nil
			mu.Unlock()
			if stop {
				return
			}
			ids, err := c.tokenize(ctx, strings.Repeat(" "+w, repeats))
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err != nil:
				failed = err
			case len(ids) == repeats && same(ids[repeats-inside:]):
				found[i] = ids[len(ids)-1]
			default:
				found[i] = -1
			}
		})
	}
	all.Wait()
	switch {
	case errors.Is(failed, errNoTokenize):
		return nil, nil
	case failed != nil:
		return nil, failed
	case ctx.Err() != nil:
		return nil, contextFault(ctx)
	}
	var words []string
	var ids []int32
	for i, id := range found {
		if id >= 0 {
			words, ids = append(words, candidates[i]), append(ids, id)
		}
	}
	if len(words) < minWords {
		return nil, nil
	}
	v.Words = words
	return ids, nil
}

func same(ids []int32) bool {
	for _, id := range ids {
		if id != ids[0] {
			return false
		}
	}
	return true
}

// fit measures a line through two texts, tokens = Overhead + TokensPerWord x words. Both texts have each word equally often,
// so that the line is exact however many tokens each word has.
func (v *Vocabulary) fit(ctx context.Context, c *Client, single bool) error {
	v.Words = v.Words[:min(fewWords, len(v.Words))]
	deck := make([]int, len(v.Words))
	for i := range deck {
		deck[i] = i
	}
	const once, often = 1, 5
	var counts [2]int
	for i, times := range []int{once, often} {
		r := Request{Text: v.text(slices.Repeat(deck, times)), Output: 1}
		x := c.send(ctx, c.body(r, RequestOptions{}, 0), time.Now())
		if x.Err != nil && x.Err.Kind != KindEmpty {
			return fmt.Errorf("trying a prompt of %d words: %w", times*len(deck), x.Err)
		}
		if x.Usage == nil || x.Usage.PromptTokens == 0 {
			v.Notes = append(v.Notes, "the server reports no usage: lengths of prompts are guesses")
			if !single {
				v.TokensPerWord = 1.3 // English, most tokenizers
			}
			return nil
		}
		counts[i] = x.Usage.PromptTokens
	}
	words := counts[1] - counts[0] // tokens of the deck, often-once times
	if words <= 0 {
		v.Notes = append(v.Notes, "the server's usage does not grow with the prompt: lengths of prompts are guesses")
		return nil
	}
	v.TokensPerWord = float64(words) / float64((often-once)*len(deck))
	v.Overhead = max(0, counts[0]-(words+(often-once)/2)/(often-once))
	if v.TokensPerWord != 1 {
		v.Notes = append(v.Notes, fmt.Sprintf("prompts are texts of %.3g tokens a word, so their lengths are near what was asked for, not equal", v.TokensPerWord))
	}
	return nil
}
