package host

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"time"
)

const (
	readHeaderTimeout = 10 * time.Second
	idleTimeout       = 2 * time.Minute
	maxHeaderBytes    = 64 << 10
	// goodbye is how long cancelled requests may take to say so.
	goodbye = 3 * time.Second
)

// Serve answers on a listener until ctx ends, and then stops in good order: new requests get 503 while running ones have
// DrainTimeout to finish; those that do not are cancelled. It returns nil after that, and closes the listener in any case.
func (s *Server) Serve(ctx context.Context, ln net.Listener) error {
	srv := &http.Server{
		Handler:           s,
		ReadHeaderTimeout: readHeaderTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		// No WriteTimeout: a stream may be long. Each write has its own (observe).
		ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
	logging, stopLogging := context.WithCancel(ctx)
	defer stopLogging()
	go s.logThroughput(logging, throughputInterval)
	failed := make(chan error, 1)
	go func() { failed <- srv.Serve(ln) }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	// The listener stays open meanwhile: a 503 tells a load balancer more than a refused connection.
	drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.cfg.DrainTimeout)
	defer cancel()
	if err := s.Drain(drain); err != nil {
		s.log.Warn("requests were cancelled at the end of the drain", "after", s.cfg.DrainTimeout)
	}
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), goodbye)
	defer cancel()
	if err := srv.Shutdown(end); err != nil {
		_ = srv.Close()
	}
	if err := <-failed; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// Drain refuses new requests and waits for those that run. When ctx ends first it cancels them, waits a little for them
// to say so, and returns the error of ctx. A server that was drained stays so.
func (s *Server) Drain(ctx context.Context) error {
	s.mu.Lock()
	if !s.isDraining() {
		close(s.draining)
	}
	s.mu.Unlock()
	finished := make(chan struct{})
	go func() {
		s.active.Wait()
		close(finished)
	}()
	var err error
	select {
	case <-finished:
	case <-ctx.Done():
		err = ctx.Err()
	}
	s.end(errDraining)
	if err != nil {
		select {
		case <-finished:
		case <-time.After(goodbye):
		}
	}
	return err
}
