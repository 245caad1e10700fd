package host

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/pagelight/pagelight/engine"
)

// metrics are what /metrics tells: the names, labels, help and buckets of vLLM's v1 engine (vllm/v1/metrics/loggers.py), so
// that a dashboard made for vLLM works, and the Go runtime's and the process's own. Metrics of what there is not (LoRA,
// multimodal input, speculative decoding, sleep, connectors) are left out.
//
// What is so now is read from engine.Stats at each scrape; what has happened is counted as the engine's observer. Counters
// begin anew with another engine.
type metrics struct {
	registry *prometheus.Registry
	handler  http.Handler
	series   atomic.Pointer[series] // of the current engine; nil before there is one
}

func newMetrics() *metrics {
	m := &metrics{registry: prometheus.NewRegistry()}
	m.registry.MustRegister(m, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	m.handler = promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
	return m
}

// setEngine begins new series for an engine, under the served name of its model.
func (m *metrics) setEngine(e Engine, model string) { m.series.Store(newSeries(e, model)) }

// Describe implements prometheus.Collector. It says nothing, since labels and buckets depend on the model.
func (m *metrics) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	if s := m.series.Load(); s != nil {
		s.collect(ch)
	}
}

// Step implements engine.Observer.
func (m *metrics) Step(r engine.StepRecord) {
	s := m.series.Load()
	if s == nil {
		return
	}
	s.promptTokens.Add(float64(r.PromptTokens))
	s.generationTokens.Add(float64(r.GeneratedTokens))
	s.iterationTokens.Observe(float64(r.Tokens))
	for _, d := range r.FirstTokens {
		s.timeToFirstToken.Observe(d.Seconds())
	}
	for _, d := range r.InterToken {
		s.interToken.Observe(d.Seconds())
		s.timePerOutputToken.Observe(d.Seconds())
	}
}

// Done implements engine.Observer. As in vLLM, answers that were given up or failed are counted and no more.
func (m *metrics) Done(r engine.AnswerRecord) {
	s := m.series.Load()
	if s == nil {
		return
	}
	longest := s.longest(&r)
	switch {
	case errors.Is(r.Err, context.Canceled), errors.Is(r.Err, context.DeadlineExceeded):
		s.success[reasonAbort].Inc()
		return
	case r.Err != nil:
		s.success[reasonError].Inc()
		return
	}
	if c := s.success[string(r.Reason)]; c != nil {
		c.Inc()
	}
	s.requestTime[timeTotal].Observe(r.Total.Seconds())
	s.requestTime[timeQueued].Observe(r.Queued.Seconds())
	s.requestTime[timePrefill].Observe(r.Prefill.Seconds())
	s.requestTime[timeDecode].Observe(r.Decode.Seconds())
	s.requestTime[timeInference].Observe((r.Prefill + r.Decode).Seconds())
	s.prefillComputed.Observe(float64(r.PromptTokens - r.CachedTokens))
	s.requestPrompt.Observe(float64(r.PromptTokens))
	s.requestGeneration.Observe(float64(r.GeneratedTokens))
	perToken := 0.0
	if r.GeneratedTokens > 1 {
		perToken = r.Decode.Seconds() / float64(r.GeneratedTokens-1)
	}
	s.requestTimePerToken.Observe(perToken)
	if r.MaxTokens > 0 {
		s.requestMaxTokens.Observe(float64(r.MaxTokens))
	}
	// vLLM observes these once for a request, when the last of its answers has ended.
	if r.Last {
		s.requestMaxGeneration.Observe(float64(longest))
		s.requestN.Observe(float64(max(1, r.N)))
	}
}
