package cpu

import (
	"testing"

	"github.com/pagelight/pagelight/internal/gpu"
	"github.com/pagelight/pagelight/internal/gpu/contract"
)

func TestFetch(t *testing.T) {
	contract.Fetch(t, func(t testing.TB) gpu.Device { return open(t, Options{Workers: 2}) })
}
