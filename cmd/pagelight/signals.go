package main

import (
	"context"
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// interrupts decides what Ctrl-C does: it ends the program in good order, unless somebody has said what it is to do instead.
type interrupts struct {
	mu   sync.Mutex
	hook func()
}

// instead makes Ctrl-C call hook, and not end the program, until undo is called.
func (i *interrupts) instead(hook func()) (undo func()) {
	set := func(f func()) {
		i.mu.Lock()
		defer i.mu.Unlock()
		i.hook = f
	}
	set(hook)
	return func() { set(nil) }
}

// taken calls the hook and says whether there was one.
func (i *interrupts) taken() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.hook != nil {
		i.hook()
	}
	return i.hook != nil
}

// notify returns a context that ends with SIGTERM and with an interrupt that is not taken. The signal after that one has the
// system's own effect: whoever cannot wait presses Ctrl-C again. stop ends the watch.
func (i *interrupts) notify(parent context.Context) (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancel(parent)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		defer signal.Stop(signals)
		for {
			select {
			case <-ctx.Done():
				return
			case s := <-signals:
				if s != os.Interrupt || !i.taken() {
					cancel()
					return
				}
			}
		}
	}()
	return ctx, cancel
}
