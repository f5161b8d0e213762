"""The layouts of quantized checkpoints in plain numpy, one function each.

A function takes a weight [out, in] in float64 and returns (tensors, values): the tensors of one
layer by the ending of their names, and the weight that they stand for in float64.
"""
import numpy as np
import torch

PLACES = [0, 2, 4, 6, 1, 3, 5, 7]  # AWQ: which output each nibble of a word holds


def words(codes, bits):
    """Packs the last axis, the first element in the lowest bits."""
    per = 32 // bits
    parts = codes.astype(np.uint32).reshape(*codes.shape[:-1], -1, per)
    out = np.zeros(parts.shape[:-1], np.uint32)
    for i in range(per):
        out |= parts[..., i] << np.uint32(bits * i)
    return torch.from_numpy(out.view(np.int32).copy())


def grouped(w, group):
    group = w.shape[1] if group < 0 else group
    return w.reshape(w.shape[0], -1, group)


def f16(x):
    return x.astype(np.float16).astype(np.float64)


def gptq(w, bits=4, group=32, symmetric=True, version=1, order=None):
    """`order`: the columns in the order in which their groups follow each other (desc_act)."""
    columns = np.arange(w.shape[1]) if order is None else order
    g = grouped(w[:, columns], group)
    top, middle = 2 ** bits - 1, 2 ** (bits - 1)
    if symmetric:
        scale = f16(2 * np.abs(g).max(2) / top)
        zero = np.full_like(scale, middle)
    else:
        low, high = np.minimum(g.min(2), 0), np.maximum(g.max(2), 0)
        scale = f16((high - low) / top)
        zero = np.clip(np.rint(-low / scale), 0, top)
    codes = np.clip(np.rint(g / scale[..., None]) + zero[..., None], 0, top)
    values = np.empty_like(w)
    values[:, columns] = ((codes - zero[..., None]) * scale[..., None]).reshape(w.shape)
    stored = np.empty_like(w)
    stored[:, columns] = codes.reshape(w.shape)
    group_of = np.empty(w.shape[1], np.int32)
    group_of[columns] = np.arange(w.shape[1]) // g.shape[2]
    offset = 1 if version == 1 else 0
    return {"qweight": words(stored, bits).t().contiguous(),
            "qzeros": words((zero - offset).T, bits),
            "scales": torch.from_numpy(scale.T.astype(np.float16).copy()),
            "g_idx": torch.from_numpy(group_of)}, values


def awq(w, group=32):
    g = grouped(w, group)
    low, high = g.min(2), g.max(2)
    scale = f16(np.maximum(high - low, 1e-5) / 15)
    zero = np.clip(-np.rint(low / scale), 0, 15)
    codes = np.clip(np.rint(g / scale[..., None]) + zero[..., None], 0, 15)
    values = ((codes - zero[..., None]) * scale[..., None]).reshape(w.shape)

    def interleaved(x):  # [.., out] -> words along out
        return words(x.reshape(x.shape[0], -1, 8)[..., PLACES].reshape(x.shape), 4)

    return {"qweight": interleaved(codes.reshape(w.shape).T), "qzeros": interleaved(zero.T),
            "scales": torch.from_numpy(scale.T.astype(np.float16).copy())}, values


def fp8(x):
    return torch.from_numpy(np.clip(x, -448, 448)).to(torch.float32).to(torch.float8_e4m3fn)


def float8(w, scale, per_element):
    """`scale` as it is stored, and widened to the shape of w."""
    codes = fp8(w / per_element)
    return codes, codes.to(torch.float64).numpy() * per_element


def fp8_block(w, block=64):
    rows, cols = (-(-n // block) for n in w.shape)
    scale = np.ones((rows, cols))
    for r in range(rows):
        for c in range(cols):
            amax = np.abs(w[r * block:(r + 1) * block, c * block:(c + 1) * block]).max()
            scale[r, c] = np.float32(amax / 448)
    wide = scale.repeat(block, 0)[:w.shape[0]].repeat(block, 1)[:, :w.shape[1]]
    codes, values = float8(w, scale, wide)
    return {"weight": codes, "weight_scale_inv": torch.from_numpy(scale.astype(np.float32))}, values


def fp8_tensor(w, input_scale=None):
    scale = float(np.float32(np.abs(w).max() / 448))
    codes, values = float8(w, scale, scale)
    tensors = {"weight": codes, "weight_scale": torch.tensor(scale, dtype=torch.float32)}
    if input_scale is not None:
        tensors["input_scale"] = torch.tensor(input_scale, dtype=torch.float32)
    return tensors, values


def fp8_output(w):
    scale = (np.abs(w).max(1, keepdims=True) / 448).astype(np.float32).astype(np.float64)
    codes, values = float8(w, scale, scale)
    return {"weight": codes, "weight_scale": torch.from_numpy(scale.astype(np.float32))}, values
