"""Writes blocks.txt: blocks of real GGUF files, and the f32 weights that they stand for.

    python3 blocks.py FOLDER > blocks.txt

FOLDER has GGUF files that llama.cpp's quantizer made, and reference.py, whose dequant is written from the definitions in numpy
and gives llama.cpp's own numbers bit for bit. A line is a type, a block as hexadecimal bytes, and its weights as the bits of
f32 in hexadecimal, the first weight first.
"""
import glob
import os
import sys

import numpy as np

folder = sys.argv[1]
sys.path.insert(0, folder)
import reference  # noqa: E402

wanted = ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "IQ4_NL", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K"]
found = {}
for path in sorted(glob.glob(os.path.join(folder, "*.gguf"))):
    g = reference.GGUF(path)
    for name in sorted(g.t):
        dims, kind, offset = g.t[name]
        kind, values, size = reference.TYPES[kind]
        if kind in wanted and kind not in found:
            n = int(np.prod(dims)) // values
            found[kind] = [bytes(g.buf[offset + i * size:offset + (i + 1) * size]) for i in (0, n // 2)]
for kind in wanted:
    for block in found[kind]:
        values = reference.TYPES[{v[0]: k for k, v in reference.TYPES.items()}[kind]][1]
        weights = reference.dequant(kind, np.frombuffer(block, np.uint8), values)
        print(kind, block.hex(), "".join("%08x" % v for v in weights.view(np.uint32)))
