package host

import (
	"strconv"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pagelight/pagelight/engine"
)

// engineLabel is the label "engine" of every series: vLLM counts its data-parallel engines, and here there is one.
const engineLabel = "0"

// The values of finished_reason besides those of engine.FinishReason, in vLLM's words.
const (
	reasonAbort = "abort"
	reasonError = "error"
)

// The buckets of vLLM.
var (
	stepBuckets       = []float64{1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384}
	answerBuckets     = []float64{1, 2, 5, 10, 20}
	firstTokenBuckets = []float64{
		.001, .005, .01, .02, .04, .06, .08, .1, .25, .5, .75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560,
	}
	tokenBuckets   = []float64{.01, .025, .05, .075, .1, .15, .2, .3, .4, .5, .75, 1, 2.5, 5, 7.5, 10, 20, 40, 80}
	requestBuckets = []float64{.3, .5, .8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680}
)

// countBuckets are 1, 2, 5, 10, 20, 50 and so on up to most.
func countBuckets(most int) []float64 {
	var b []float64
	for unit := 1; ; unit *= 10 {
		for _, v := range []int{1, 2, 5} {
			if v*unit > most {
				return b
			}
			b = append(b, float64(v*unit))
		}
	}
}

// What the times of a request are of.
const (
	timeTotal = iota
	timeQueued
	timeInference
	timePrefill
	timeDecode
	numTimes
)

// series are the metrics of one engine.
type series struct {
	engine Engine
	all    []prometheus.Collector

	// What Stats tells at a scrape.
	running, waiting, kvUsage, oldKVUsage, queries, hits, preemptions *prometheus.Desc

	cacheInfo prometheus.Gauge

	promptTokens, generationTokens         prometheus.Counter
	success                                map[string]prometheus.Counter // by finished_reason
	iterationTokens                        prometheus.Histogram
	timeToFirstToken                       prometheus.Histogram
	interToken, timePerOutputToken         prometheus.Histogram // the same under its newer and its older name
	requestTime                            [numTimes]prometheus.Histogram
	requestTimePerToken                    prometheus.Histogram
	requestPrompt, requestGeneration       prometheus.Histogram
	requestMaxTokens, requestMaxGeneration prometheus.Histogram
	requestN, prefillComputed              prometheus.Histogram

	mu         sync.Mutex
	longestYet map[string]int // most new tokens of the answers that have ended, by requests that have more than one
}

func newSeries(e Engine, model string) *series {
	labels := prometheus.Labels{"model_name": model, "engine": engineLabel}
	s := &series{engine: e, longestYet: map[string]int{}, success: map[string]prometheus.Counter{}}

	desc := func(name, help string) *prometheus.Desc { return prometheus.NewDesc("vllm:"+name, help, nil, labels) }
	s.running = desc("num_requests_running", "Number of requests in model execution batches.")
	s.waiting = desc("num_requests_waiting", "Number of requests waiting to be processed.")
	s.kvUsage = desc("kv_cache_usage_perc", "KV-cache usage. 1 means 100 percent usage.")
	s.oldKVUsage = desc("gpu_cache_usage_perc", "GPU KV-cache usage. 1 means 100 percent usage. DEPRECATED: Use vllm:kv_cache_usage_perc instead.")
	s.queries = desc("prefix_cache_queries_total", "Prefix cache queries, in terms of number of queried tokens.")
	s.hits = desc("prefix_cache_hits_total", "Prefix cache hits, in terms of number of cached tokens.")
	s.preemptions = desc("num_preemptions_total", "Cumulative number of preemption from the engine.")

	info := e.Info()
	s.cacheInfo = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "vllm:cache_config_info", Help: "Information of the LLMEngine CacheConfig",
		ConstLabels: prometheus.Labels{
			"engine": engineLabel, "block_size": strconv.Itoa(info.BlockSize), "cache_dtype": string(info.KVType), "num_gpu_blocks": strconv.Itoa(info.NumBlocks),
		},
	})
	s.cacheInfo.Set(1)
	s.all = append(s.all, s.cacheInfo)

	counter := func(name, help string, labels prometheus.Labels) prometheus.Counter {
		c := prometheus.NewCounter(prometheus.CounterOpts{Name: "vllm:" + name, Help: help, ConstLabels: labels})
		s.all = append(s.all, c)
		return c
	}
	s.promptTokens = counter("prompt_tokens_total", "Number of prefill tokens processed.", labels)
	s.generationTokens = counter("generation_tokens_total", "Number of generation tokens processed.", labels)
	for _, reason := range []string{string(engine.FinishStop), string(engine.FinishLength), reasonAbort, reasonError} {
		s.success[reason] = counter("request_success_total", "Count of successfully processed requests.",
			prometheus.Labels{"model_name": model, "engine": engineLabel, "finished_reason": reason})
	}

	histogram := func(name, help string, buckets []float64) prometheus.Histogram {
		h := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "vllm:" + name, Help: help, ConstLabels: labels, Buckets: buckets})
		s.all = append(s.all, h)
		return h
	}
	counts := countBuckets(max(1, info.MaxModelLen))
	s.iterationTokens = histogram("iteration_tokens_total", "Histogram of number of tokens per engine_step.", stepBuckets)
	s.requestPrompt = histogram("request_prompt_tokens", "Number of prefill tokens processed.", counts)
	s.requestGeneration = histogram("request_generation_tokens", "Number of generation tokens processed.", counts)
	s.requestMaxGeneration = histogram("request_max_num_generation_tokens", "Histogram of maximum number of requested generation tokens.", counts)
	s.requestMaxTokens = histogram("request_params_max_tokens", "Histogram of the max_tokens request parameter.", counts)
	s.requestN = histogram("request_params_n", "Histogram of the n request parameter.", answerBuckets)
	s.prefillComputed = histogram("request_prefill_kv_computed_tokens", "Histogram of new KV tokens computed during prefill (excluding cached tokens).", counts)
	s.timeToFirstToken = histogram("time_to_first_token_seconds", "Histogram of time to first token in seconds.", firstTokenBuckets)
	s.interToken = histogram("inter_token_latency_seconds", "Histogram of inter-token latency in seconds.", tokenBuckets)
	s.timePerOutputToken = histogram("time_per_output_token_seconds",
		"Histogram of time per output token in seconds. DEPRECATED: Use vllm:inter_token_latency_seconds instead.", tokenBuckets)
	s.requestTimePerToken = histogram("request_time_per_output_token_seconds", "Histogram of time_per_output_token_seconds per request.", tokenBuckets)
	for of, name := range [numTimes][2]string{
		timeTotal:     {"e2e_request_latency_seconds", "Histogram of e2e request latency in seconds."},
		timeQueued:    {"request_queue_time_seconds", "Histogram of time spent in WAITING phase for request."},
		timeInference: {"request_inference_time_seconds", "Histogram of time spent in RUNNING phase for request."},
		timePrefill:   {"request_prefill_time_seconds", "Histogram of time spent in PREFILL phase for request."},
		timeDecode:    {"request_decode_time_seconds", "Histogram of time spent in DECODE phase for request."},
	} {
		s.requestTime[of] = histogram(name[0], name[1], requestBuckets)
	}
	return s
}

func (s *series) collect(ch chan<- prometheus.Metric) {
	st := s.engine.Stats()
	gauge := func(d *prometheus.Desc, v float64) { ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v) }
	gauge(s.running, float64(st.Running))
	gauge(s.waiting, float64(st.Waiting))
	gauge(s.kvUsage, st.KVUsage)
	gauge(s.oldKVUsage, st.KVUsage)
	count := func(d *prometheus.Desc, v int64) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v))
	}
	count(s.queries, st.PrefixQueries)
	count(s.hits, st.PrefixHits)
	count(s.preemptions, st.Preemptions)
	for _, c := range s.all {
		c.Collect(ch)
	}
}

// longest is the most new tokens of a request's answers that have ended, that of r included.
func (s *series) longest(r *engine.AnswerRecord) int {
	if r.N <= 1 {
		return r.GeneratedTokens
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	n := max(s.longestYet[r.ID], r.GeneratedTokens)
	if r.Last {
		delete(s.longestYet, r.ID)
	} else {
		s.longestYet[r.ID] = n
	}
	return n
}
