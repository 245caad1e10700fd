#!/usr/bin/env python3
"""Print columns of convolutional codes and the weights that they stand for, for ccq_test.go.  Usage: ccq.py > ccq.txt

Written from the public layouts of PaddleNLP (2.75 bits) and FastDeploy (2.5 and 2 bits), in numpy, with f32 in their order:
(window - zero) * local * super. A line is the layout, the code words of a column of 192 weights in hexadecimal, its local
scales for 2 bits, super scale, code scale and code zero, and the bits of the weights.
"""
import numpy as np

rng = np.random.default_rng(1)
K = 192
f = np.float32


def line(layout, words, local, numbers, weights):
    bits = "".join("%08x" % v for v in np.asarray(weights, f).view(np.uint32))
    print(layout, words, local, *["%08x" % f(v).view(np.uint32) for v in numbers], bits)


for _ in range(2):
    super_scale = f(rng.uniform(0.001, 0.002))
    b = rng.integers(0, 256, (K // 64, 22))
    rows = np.arange(64)
    window = b[:, rows // 3] >> np.array([4, 2, 0])[rows % 3] & 0xF
    w = (window - 8).astype(f) * (b[:, 21:] & 0xF).astype(f) * super_scale
    line("ccq2.75g64", bytes(b.astype(np.uint8).ravel()).hex(), "-", (super_scale, 0, 0), w.ravel())

    h = rng.integers(0, 1 << 16, (K // 64, 10))
    window = h[:, rows // 7] >> np.array([13, 11, 9, 6, 4, 2, 0])[rows % 7] & 0x7
    w = (window - 4).astype(f) * (h[:, 9:] & 0x1FFF).astype(f) * super_scale
    line("ccq2.5g64", h.astype("<u2").tobytes().hex(), "-", (super_scale, 0, 0), w.ravel())

    scale, zero = [(f(162.0744), f(10334)), (f(120.9989), f(-2275.3))][_]
    b = rng.integers(0, 256, K // 4)
    local = rng.integers(0, 16, 4)  # of 64 weights each; the last one is not used
    code = np.floor(b.astype(f) * scale + zero + f(0.5)).astype(np.int32)
    window = code[:, None] >> np.array([9, 6, 3, 0]) & 0x3F
    w = (window - 32).astype(f).ravel() * np.repeat(local[:3], 64).astype(f) * super_scale
    packed = local[0::2] << 4 | local[1::2]  # the even group in the high nibble
    line("ccq2g64", bytes(b.astype(np.uint8)).hex(), bytes(packed.astype(np.uint8)).hex(), (super_scale, scale, zero), w)
