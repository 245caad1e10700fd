package main

import (
	"fmt"
	"strconv"

	"github.com/pagelight/pagelight/engine"
)

// servingFlags say how a server shares one device among many requests. Their names and meanings are vLLM's where it has them.
type servingFlags struct {
	MaxNumSeqs                int     `placeholder:"N" env:"PAGELIGHT_MAX_NUM_SEQS" help:"Answers worked on at once. Default by kind of device: 64 for a GPU, else 16."`
	MaxNumBatchedTokens       int     `placeholder:"N" env:"PAGELIGHT_MAX_NUM_BATCHED_TOKENS" help:"Most tokens in one step: longer prompts are computed in chunks. Default by kind of device: 512 for a GPU, else 64."`
	MaxNumWaiting             int     `default:"256" placeholder:"N" env:"PAGELIGHT_MAX_NUM_WAITING" help:"Answers that may wait; more get 429. 0 is any number."`
	SchedulingPolicy          string  `enum:"fcfs,priority" default:"fcfs" env:"PAGELIGHT_SCHEDULING_POLICY" help:"Whose turn it is: fcfs (first come, first served) or priority (the request's priority, lowest first)."`
	MaxNumOvertakes           int     `default:"64" placeholder:"N" env:"PAGELIGHT_MAX_NUM_OVERTAKES" help:"With the policy priority: later answers that may come before a waiting one, which then has its turn whatever its priority."`
	LongPrefillTokenThreshold int     `placeholder:"N" env:"PAGELIGHT_LONG_PREFILL_TOKEN_THRESHOLD" help:"Most tokens of one prompt in one step, so that a long one leaves room for others. Default: no bound."`
	MaxBurst                  int     `placeholder:"N" env:"PAGELIGHT_MAX_BURST" help:"Most tokens of an answer that the device chooses before the host looks at them; fewer while somebody waits. Default 16, the most; 1 is one at a time."`
	EnablePrefixCaching       bool    `default:"true" negatable:"" env:"PAGELIGHT_ENABLE_PREFIX_CACHING" help:"Keep keys and values of prompts for requests that begin alike."`
	Deterministic             bool    `env:"PAGELIGHT_DETERMINISTIC" help:"The same tokens bit for bit, alone or batched, cached or not; costs speed."`
	GPUMemoryUtilization      float64 `name:"gpu-memory-utilization" placeholder:"SHARE" env:"PAGELIGHT_GPU_MEMORY_UTILIZATION" help:"Refused: WebGPU does not tell how much memory there is. Use --gpu-memory."`
}

func (f *servingFlags) config() (engine.Config, error) {
	if f.GPUMemoryUtilization != 0 {
		return engine.Config{}, usagef("--gpu-memory-utilization is a share of the device's memory, and WebGPU does not tell how much that is: give --gpu-memory BYTES")
	}
	for name, n := range map[string]int{
		"max-num-seqs": f.MaxNumSeqs, "max-num-batched-tokens": f.MaxNumBatchedTokens, "max-num-waiting": f.MaxNumWaiting, "max-burst": f.MaxBurst,
		"long-prefill-token-threshold": f.LongPrefillTokenThreshold,
	} {
		if n < 0 {
			return engine.Config{}, usagef("--%s must not be negative, got %d", name, n)
		}
	}
	if f.MaxNumOvertakes < 1 {
		return engine.Config{}, usagef("--max-num-overtakes must be at least 1, got %d: for the order of arrival there is --scheduling-policy fcfs", f.MaxNumOvertakes)
	}
	return engine.Config{
		MaxSeqs: f.MaxNumSeqs, MaxBatchedTokens: f.MaxNumBatchedTokens, MaxWaiting: f.MaxNumWaiting, Policy: engine.Policy(f.SchedulingPolicy),
		MaxOvertakes: f.MaxNumOvertakes, LongPrefillThreshold: f.LongPrefillTokenThreshold, NoPrefixCache: !f.EnablePrefixCaching, Deterministic: f.Deterministic,
		MaxBurst: f.MaxBurst,
	}, nil
}

// modelLen is a number of tokens, or "auto" for as many as the model and the memory allow.
type modelLen int

// UnmarshalText reads a modelLen.
func (m *modelLen) UnmarshalText(text []byte) error {
	if string(text) == "auto" {
		*m = 0
		return nil
	}
	n, err := strconv.Atoi(string(text))
	if err != nil || n < 1 {
		return fmt.Errorf("%q is neither a number of tokens nor auto", text)
	}
	*m = modelLen(n)
	return nil
}
