#!/usr/bin/env python3
"""Writes blocks.json: random blocks of every quantized type, and the weights that they stand for.

    python3 make_blocks.py FOLDER > blocks.json

FOLDER holds reference.py, a dequantizer in numpy whose values equal ggml's own bit for bit.
"""
import base64, json, struct, sys
import numpy as np

sys.path.insert(0, sys.argv[1])
from reference import TYPES, dequant

# Where a block has halves, and how they are drawn: scales of either sign, from subnormal to large.
HALVES = {'Q4_0': [0], 'Q4_1': [0, 2], 'Q5_0': [0], 'Q5_1': [0, 2], 'Q8_0': [0], 'IQ4_NL': [0], 'Q2_K': [80, 82],
          'Q3_K': [108], 'Q4_K': [0, 2], 'Q5_K': [0, 2], 'Q6_K': [208]}
rng = np.random.default_rng(7)
out = []
for name, values, size in TYPES.values():
    if name not in HALVES:
        continue
    blocks = rng.integers(0, 256, (6 if values == 256 else 24, size), np.uint8)
    for i, b in enumerate(blocks):
        for at in HALVES[name]:
            h = np.float16(rng.choice([-1, 1]) * 2.0 ** rng.uniform(-24 if i % 4 == 0 else -12, 2))
            b[at:at + 2] = np.frombuffer(struct.pack('<e', h), np.uint8)
    w = dequant(name, blocks.reshape(-1), blocks.shape[0] * values)
    out.append({'type': name, 'blocks': base64.b64encode(blocks.tobytes()).decode(),
                'weights': base64.b64encode(w.astype('<f4').tobytes()).decode()})
json.dump(out, sys.stdout, indent=0)
print()
