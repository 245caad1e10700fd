package model

import (
	"fmt"

	"github.com/pagelight/pagelight/internal/gpu"
	"github.com/pagelight/pagelight/internal/kernels"
	"github.com/pagelight/pagelight/internal/quant"
	"github.com/pagelight/pagelight/internal/weights"
)

// blockSize is the number of tokens in a block of the cache; the kernels know it as BLOCK.
const blockSize = 16

// Cache is the memory of the paged KV cache: per layer one buffer of keys and one of values, [blocks, kvHeads, 16, headDim] as
// quant.KVType says.
type Cache struct {
	K, V      []gpu.Buffer // [layers]
	NumBlocks int
	KV        quant.KVType
}

// BlockBytes is the size of one block over all layers, K and V.
func BlockBytes(cfg *weights.Config, kv quant.KVType) int64 {
	return int64(2*cfg.NumLayers) * layerBlockBytes(cfg, kv)
}

func layerBlockBytes(cfg *weights.Config, kv quant.KVType) int64 {
	return kv.BlockBytes(cfg.NumKVHeads, cfg.HeadDim)
}

// MaxBlocks is the largest cache that the device's limits allow, in blocks.
func MaxBlocks(cfg *weights.Config, kv quant.KVType, l gpu.Limits) int {
	return int(min(l.MaxStorageBinding, l.MaxBufferSize) / layerBlockBytes(cfg, kv))
}

// MaxPositions is the longest sequence that the kernels can walk through and whose rotary table the device can bind as one.
func MaxPositions(cfg *weights.Config, l gpu.Limits) int {
	return int(min(kernels.MaxPositions, min(l.MaxStorageBinding, l.MaxBufferSize)/ropeTableBytes(cfg, 1)))
}

// NewCache allocates a cache; when the device refuses, nothing stays allocated.
func NewCache(dev gpu.Device, cfg *weights.Config, numBlocks int, kv quant.KVType) (*Cache, error) {
	c := &Cache{NumBlocks: numBlocks, KV: kv}
	size := int64(numBlocks) * layerBlockBytes(cfg, kv)
	for i := range cfg.NumLayers {
		for _, part := range []struct {
			name string
			list *[]gpu.Buffer
		}{{"k_cache", &c.K}, {"v_cache", &c.V}} {
			b, err := dev.NewBuffer(fmt.Sprintf("layer %d %s", i, part.name), size, gpu.UsageStorage|gpu.UsageCopySrc)
			if err != nil {
				c.Release()
				return nil, err
			}
			*part.list = append(*part.list, b)
		}
	}
	return c, nil
}

// Release frees the cache.
func (c *Cache) Release() {
	for _, b := range append(c.K, c.V...) {
		b.Release()
	}
	c.K, c.V = nil, nil
}
