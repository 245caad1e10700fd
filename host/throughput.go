package host

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/pagelight/pagelight/engine"
)

// throughputInterval is how often the log says how fast the engine is, as in vLLM.
const throughputInterval = 10 * time.Second

// throughput turns snapshots of an engine into lines of the log, in vLLM's words.
type throughput struct {
	engine  Engine // that the last snapshot is of
	last    engine.Stats
	at      time.Time
	idle    bool    // nothing was computed in the last interval
	hitRate float64 // in percent, of the last interval that looked for anything
}

// logThroughput logs a line in every interval until ctx ends. One in which nothing happened, like the one before it, is for
// debugging only.
func (s *Server) logThroughput(ctx context.Context, every time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	t := throughput{idle: true}
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		e, err := s.currentEngine()
		if err != nil {
			continue
		}
		if level, line, ok := t.line(e, time.Now()); ok {
			s.log.Log(ctx, level, line)
		}
	}
}

// line compares with the last snapshot; ok is false when there is none of this engine.
func (t *throughput) line(e Engine, now time.Time) (level slog.Level, line string, ok bool) {
	st := e.Stats()
	last, took := t.last, now.Sub(t.at).Seconds()
	ok = t.engine == e && took > 0
	t.engine, t.last, t.at = e, st, now
	if !ok {
		t.hitRate = 0
		return 0, "", false
	}
	prompt := float64(st.PromptTokens-last.PromptTokens) / took
	generated := float64(st.GenerationTokens-last.GenerationTokens) / took
	if n := st.PrefixQueries - last.PrefixQueries; n > 0 {
		t.hitRate = 100 * float64(st.PrefixHits-last.PrefixHits) / float64(n)
	}
	level, idle := slog.LevelInfo, prompt == 0 && generated == 0
	if idle && t.idle {
		level = slog.LevelDebug
	}
	t.idle = idle
	return level, fmt.Sprintf("Engine %03d: Avg prompt throughput: %.1f tokens/s, Avg generation throughput: %.1f tokens/s, "+
		"Running: %d reqs, Waiting: %d reqs, GPU KV cache usage: %.1f%%, Prefix cache hit rate: %.1f%%",
		0, prompt, generated, st.Running, st.Waiting, 100*st.KVUsage, t.hitRate), true
}
