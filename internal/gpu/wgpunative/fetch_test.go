//go:build cgo && !js

package wgpunative_test

import (
	"testing"

	"github.com/pagelight/pagelight/internal/gpu/contract"
	"github.com/pagelight/pagelight/internal/gpu/gputest"
)

func TestFetch(t *testing.T) { contract.Fetch(t, gputest.Open) }
