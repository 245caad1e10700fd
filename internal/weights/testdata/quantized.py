#!/usr/bin/env python3
"""Write quantized.json: random words in the layouts of AWQ and GPTQ, and the weights that they stand for.

The unpacking is that of the tools: shift all eight places out of a word at once, then put the columns in order (AutoAWQ,
awq/utils/packing_utils.py: unpack_awq, reverse_awq_order; AutoGPTQ, nn_modules/qlinear/qlinear_cuda_old.py: forward).
Needs numpy only.  Usage: quantized.py > quantized.json
"""
import base64, json
import numpy as np

IN, OUT, GROUP = 32, 32, 16
GROUPS = IN // GROUP
rng = np.random.default_rng(20)


def words(*shape):
    return rng.integers(-2**31, 2**31, shape, dtype=np.int64).astype(np.int32)


def scales():
    s = rng.uniform(0.001, 0.02, (GROUPS, OUT)).astype(np.float16)
    s[0, 0] = np.float16(2.0**-24)  # the smallest half
    s[1, 3] = np.float16(-0.01)
    return s


def tensor(name, dtype, x):
    return dict(Name=name, DType=dtype, Shape=list(x.shape), Data=base64.b64encode(x.tobytes()).decode())


def shift_out(x, bits, axis):
    """int32 words -> codes, the lowest bits first, along axis."""
    places = np.arange(0, 32, bits, dtype=np.int32)
    if axis == 1:
        y = np.right_shift(x[:, :, None], places[None, None, :]) & (2**bits - 1)
        return y.reshape(x.shape[0], -1)
    y = np.right_shift(x[:, None, :], places[None, :, None]) & (2**bits - 1)
    return y.reshape(-1, x.shape[1])


def awq():
    q, z, s = words(IN, OUT // 8), words(GROUPS, OUT // 8), scales()
    order = np.arange(OUT).reshape(-1, 8)[:, [0, 4, 1, 5, 2, 6, 3, 7]].reshape(-1)
    iw, iz = shift_out(q, 4, 1)[:, order], shift_out(z, 4, 1)[:, order]
    w = (iw - np.repeat(iz, GROUP, 0)).astype(np.float32) * np.repeat(s, GROUP, 0).astype(np.float32)
    return case("awq", dict(quant_method="awq", bits=4, group_size=GROUP, zero_point=True, version="gemm"), w,
                [tensor("qweight", "I32", q), tensor("qzeros", "I32", z), tensor("scales", "F16", s)])


def gptq(name, bits, desc, form):
    per = 32 // bits
    q, z, s = words(IN // per, OUT), words(GROUPS, OUT // per), scales()
    z[0, 0] = -1  # zero points whose stored form is all ones: 0 in v1, the largest in v2
    g = np.arange(IN, dtype=np.int32) // GROUP
    if desc:
        g = rng.permutation(g).astype(np.int32)
    iw, iz = shift_out(q, bits, 0), shift_out(z, bits, 1)
    if form == "gptq":
        iz = (iz + 1) & (2**bits - 1)
    w = s[g].astype(np.float32) * (iw - iz[g]).astype(np.float32)
    config = dict(quant_method="gptq", bits=bits, group_size=GROUP, desc_act=desc, sym=False, checkpoint_format=form)
    return case(name, config, w, [tensor("qweight", "I32", q), tensor("qzeros", "I32", z), tensor("scales", "F16", s), tensor("g_idx", "I32", g)])


def case(name, config, w, tensors):
    return dict(name=name, config=config, tensors=tensors, weight=[float(x) for x in w.T.reshape(-1)])


print(json.dumps([awq(), gptq("gptq", 4, False, "gptq"), gptq("gptq v2", 4, False, "gptq_v2"),
                  gptq("gptq in 8 bits", 8, False, "gptq"), gptq("gptq by activation", 4, True, "gptq")]))
