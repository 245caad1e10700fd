package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/pagelight/pagelight/engine"
	"github.com/pagelight/pagelight/host"
	"github.com/pagelight/pagelight/static"
)

type serveCmd struct {
	Model string `arg:"" optional:"" default:"builtin" env:"PAGELIGHT_MODEL" help:"The model: a folder, a file in one, hf:ORG/NAME, builtin, or synthetic:NAME."`

	Host            string        `default:"127.0.0.1" env:"PAGELIGHT_HOST" help:"Address to listen on; 0.0.0.0 is every one of this machine."`
	Port            int           `default:"8080" env:"PAGELIGHT_PORT" help:"Port to listen on; 0 takes a free one."`
	ServedModelName []string      `placeholder:"NAME" env:"PAGELIGHT_SERVED_MODEL_NAME" help:"Names under which requests may ask for the model. Default: the model's own."`
	APIKey          string        `name:"api-key" placeholder:"KEY" env:"PAGELIGHT_API_KEY" help:"Requests must carry this key as a bearer token."`
	AllowedOrigins  []string      `placeholder:"ORIGIN" env:"PAGELIGHT_ALLOWED_ORIGINS" help:"Web origins (https://chat.example) whose pages may use the API, and host names by which this server may be reached."`
	MaxBodySize     byteSize      `default:"8M" placeholder:"BYTES" env:"PAGELIGHT_MAX_BODY_SIZE" help:"Largest request body. Default: 8M."`
	DrainTimeout    time.Duration `default:"30s" env:"PAGELIGHT_DRAIN_TIMEOUT" help:"How long running answers may take to finish after SIGTERM."`
	BenchReports    string        `type:"path" placeholder:"FILE" env:"PAGELIGHT_BENCH_REPORTS" help:"Append what the page /bench reports to this file, one JSON object a line. Default: take no reports."`
	servingFlags
	modelFlags
}

// Run serves until the context ends.
func (c *serveCmd) Run(a *app) error {
	if c.Port < 0 || c.Port > 65535 {
		return usagef("--port must be 0 to 65535, got %d", c.Port)
	}
	if c.DrainTimeout < 0 {
		return usagef("--drain-timeout must not be negative, got %s", c.DrainTimeout)
	}
	cfg, err := c.config()
	if err != nil {
		return err
	}
	log := c.logger(a.stderr)
	// The address is taken before the model is loaded: a port in use is told at once, not after minutes of loading.
	ln, err := net.Listen("tcp", net.JoinHostPort(c.Host, strconv.Itoa(c.Port)))
	if err != nil {
		return fmt.Errorf("cannot listen: %w", err)
	}
	defer ln.Close()
	if c.APIKey == "" && !loopback(c.Host) {
		log.Warn("anybody who reaches this address can use the model: set --api-key", "host", c.Host)
	}
	models, err := tabModels(a.ctx)
	if err != nil {
		return err
	}
	srv, err := host.New(host.Config{
		ServedModelNames: c.ServedModelName, APIKey: c.APIKey, AllowedOrigins: c.AllowedOrigins, ListenHost: c.Host,
		MaxBodyBytes: int64(c.MaxBodySize), Static: static.FS(), Models: models, Logger: log, Version: version, DrainTimeout: c.DrainTimeout,
		Reports: c.reports(),
	})
	if err != nil {
		return usageError{err}
	}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(a.ctx, ln) }()

	eng, err := c.openServed(a, srv, cfg)
	if err != nil {
		return err
	}
	defer eng.Close()
	addr := ln.Addr().(*net.TCPAddr)
	info := eng.Info()
	fmt.Fprintf(a.stdout, "model %s, weights %s, KV cache %d blocks of %d tokens (%s, %s), context %d tokens, memory budget %s, on %s (%s)\n",
		info.Model, info.Weights, info.NumBlocks, info.BlockSize, info.KVType, byteSize(info.KVBytes), info.MaxModelLen,
		byteSize(info.MemoryBudget), info.Adapter.Name, info.Adapter.Kind)
	fmt.Fprintf(a.stdout, "HTTP server started on http://%s\n", net.JoinHostPort(c.Host, strconv.Itoa(addr.Port)))
	return <-served
}

// openServed opens the model while the server already answers /health with how far it is.
func (c *serveCmd) openServed(a *app, srv *host.Server, cfg engine.Config) (*engine.Engine, error) {
	cfg.Progress, cfg.Observer = srv.SetProgress, srv.Observer()
	eng, err := c.open(a, c.Model, cfg)
	if err != nil {
		return nil, err
	}
	srv.SetEngine(eng)
	return eng, nil
}

func loopback(host string) bool {
	if host == "localhost" {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

// reports appends the reports of the page of measurements to the file that is to have them, or is nil.
func (c *serveCmd) reports() func([]byte) error {
	if c.BenchReports == "" {
		return nil
	}
	var mu sync.Mutex
	return func(report []byte) error {
		var line bytes.Buffer
		if err := json.Compact(&line, report); err != nil {
			return err
		}
		line.WriteByte('\n')
		mu.Lock()
		defer mu.Unlock()
		f, err := os.OpenFile(c.BenchReports, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
		if err != nil {
			return err
		}
		_, err = f.Write(line.Bytes())
		return errors.Join(err, f.Close())
	}
}
