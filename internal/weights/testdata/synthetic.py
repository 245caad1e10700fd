#!/usr/bin/env python3
"""Write synthetic.json: slices of the synthetic full-size model, computed by the make.py that states its rule.

Needs numpy.  Usage: synthetic.py FULL_SHAPE_FOLDER > synthetic.json
Each slice is given as bf16 bit patterns of the first and last 8 elements of a row, and the sum of all its patterns.
"""
import importlib.util
import json
import os
import sys

import numpy as np

np.seterr(over="ignore")
sys.dont_write_bytecode = True
spec = importlib.util.spec_from_file_location("make", os.path.join(sys.argv[1], "make.py"))
make = importlib.util.module_from_spec(spec)
spec.loader.exec_module(make)

PICKS = {
    "model.embed_tokens.weight": [0, 1, 4097, 103423],
    "model.layers.0.input_layernorm.weight": [0],
    "model.layers.0.self_attn.q_proj.weight": [0, 2047],
    "model.layers.3.self_attn.k_proj.weight": [17, 255],
    "model.layers.9.self_attn.v_proj.weight": [128],
    "model.layers.17.self_attn.o_proj.weight": [0, 1023],
    "model.layers.5.mlp.gate_proj.weight": [3071],
    "model.layers.5.mlp.up_proj.weight": [1],
    "model.layers.17.mlp.down_proj.weight": [0, 700, 1023],
    "model.norm.weight": [0],
}
out = []
for name, shape in make.shapes():
    for row in PICKS.get(name, []):
        values = make.norm(name, shape[0]) if len(shape) == 1 else make.linear(name, *shape, row, row + 1)[0]
        b = make.bf16(np.ascontiguousarray(values)).astype(int)
        out.append(dict(tensor=name, row=row, k=len(b), first=b[:8].tolist(), last=b[-8:].tolist(), sum=int(b.sum())))
print("[\n" + ",\n".join(json.dumps(o) for o in out) + "\n]")
