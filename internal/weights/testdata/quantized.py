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


WF = np.array([[0, 3, 6, 9, 12, 15, 18, 21, 24, 27, 30, 0], [0, 1, 4, 7, 10, 13, 16, 19, 22, 25, 28, 31],
               [0, 2, 5, 8, 11, 14, 17, 20, 23, 26, 29, 0]], np.int32)


def shift_out_3(x, axis):
    """The same for 3 bits: of each three words 11, 11 and 10 codes, two of which are put together from two words."""
    x = np.moveaxis(x, axis, 0).reshape(-1, 3, 1, x.shape[1 - axis])
    y = np.right_shift(x, WF[None, :, :, None])
    y[:, 0, 10] = (y[:, 0, 10] & 3) | ((y[:, 1, 0] << 2) & 4)
    y[:, 1, 11] = (y[:, 1, 11] & 1) | ((y[:, 2, 0] << 1) & 6)
    y = np.concatenate([y[:, 0, :11], y[:, 1, 1:12], y[:, 2, 1:11]], 1) & 7
    return np.moveaxis(y.reshape(-1, y.shape[2]), 0, axis)


def awq():
    q, z, s = words(IN, OUT // 8), words(GROUPS, OUT // 8), scales()
    order = np.arange(OUT).reshape(-1, 8)[:, [0, 4, 1, 5, 2, 6, 3, 7]].reshape(-1)
    iw, iz = shift_out(q, 4, 1)[:, order], shift_out(z, 4, 1)[:, order]
    w = (iw - np.repeat(iz, GROUP, 0)).astype(np.float32) * np.repeat(s, GROUP, 0).astype(np.float32)
    return case("awq", dict(quant_method="awq", bits=4, group_size=GROUP, zero_point=True, version="gemm"), w,
                [tensor("qweight", "I32", q), tensor("qzeros", "I32", z), tensor("scales", "F16", s)])


def gptq(name, bits, desc, form):
    q, z, s = words(IN * bits // 32, OUT), words(GROUPS, OUT * bits // 32), scales()
    z[0, 0] = -1  # zero points whose stored form is all ones: 0 in v1, the largest in v2
    g = np.arange(IN, dtype=np.int32) // GROUP
    if desc:
        g = rng.permutation(g).astype(np.int32)
    iw, iz = (shift_out_3(q, 0), shift_out_3(z, 1)) if bits == 3 else (shift_out(q, bits, 0), shift_out(z, bits, 1))
    if form == "gptq":
        iz = (iz + 1) & (2**bits - 1)
    w = s[g].astype(np.float32) * (iw - iz[g]).astype(np.float32)
    config = dict(quant_method="gptq", bits=bits, group_size=GROUP, desc_act=desc, sym=False, checkpoint_format=form)
    return case(name, config, w, [tensor("qweight", "I32", q), tensor("qzeros", "I32", z), tensor("scales", "F16", s), tensor("g_idx", "I32", g)])


def case(name, config, w, tensors):
    return dict(name=name, config=config, tensors=tensors, weight=[float(x) for x in w.T.reshape(-1)])


print(json.dumps([awq(), gptq("gptq", 4, False, "gptq"), gptq("gptq v2", 4, False, "gptq_v2"),
                  gptq("gptq in 8 bits", 8, False, "gptq"), gptq("gptq by activation", 4, True, "gptq"),
                  gptq("gptq in 2 bits", 2, False, "gptq"), gptq("gptq in 3 bits", 3, True, "gptq")]))
