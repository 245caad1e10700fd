#!/usr/bin/env python3
"""Print f32 bits and the bits of the nearest IEEE half, by Python's struct, for half_test.go.  Usage: halves.py > halves.txt"""
import random
import struct

random.seed(1)
f32 = lambda bits: struct.unpack("<f", struct.pack("<I", bits))[0]
cases = []
for h in random.sample(range(0x7C00), 150) + [0, 1, 2, 3, 0x3FE, 0x3FF, 0x400, 0x401, 0x7BFE, 0x7BFF]:
    x = struct.unpack("<e", struct.pack("<H", h))[0]
    y = struct.unpack("<e", struct.pack("<H", h + 1))[0] if h < 0x7BFF else 65536.0
    middle = struct.unpack("<I", struct.pack("<f", (x + y) / 2))[0]  # between two halves, exact in f32
    cases += [struct.unpack("<I", struct.pack("<f", x))[0], middle - 1, middle, middle + 1]
cases += [random.randrange(0x30000000, 0x48000000) for _ in range(200)] + [1, 0x7FFFFF, 0x800000, 0x7F7FFFFF, 0x32FFFFFF, 0x33000000, 0x33000001]
for bits in cases:
    try:
        half = struct.unpack("<H", struct.pack("<e", f32(bits)))[0]
    except OverflowError:
        half = 0x7C00
    print(f"{bits:08x} {half:04x}")
