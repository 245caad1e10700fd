package engine

import "strings"

// stopMatcher finds stop strings in a stream of text and holds back what may be the beginning of one.
type stopMatcher struct {
	stops []string
	held  string // not yet given out: empty, or a proper prefix of a stop string at its end
}

// push takes new text and returns what can be given out; hit is the stop string that ended the answer, and then the text
// before it is everything.
func (m *stopMatcher) push(text string) (out, hit string) {
	if len(m.stops) == 0 {
		return text, ""
	}
	m.held += text
	first := -1
	for _, s := range m.stops {
		if i := strings.Index(m.held, s); i >= 0 && (first < 0 || i < first) {
			first, hit = i, s
		}
	}
	if first >= 0 {
		out, m.held = m.held[:first], ""
		return out, hit
	}
	keep := 0
	for _, s := range m.stops {
		for n := min(len(s)-1, len(m.held)); n > keep; n-- {
			if strings.HasSuffix(m.held, s[:n]) {
				keep = n
			}
		}
	}
	out, m.held = m.held[:len(m.held)-keep], m.held[len(m.held)-keep:]
	return out, ""
}

// flush gives out what was held back, when the answer ended otherwise.
func (m *stopMatcher) flush() string {
	out := m.held
	m.held = ""
	return out
}
