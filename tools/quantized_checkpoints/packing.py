"""The layouts of quantized checkpoints in plain numpy, one function each.

A function takes a weight [out, in] in float64 and returns (tensors, values): the tensors of one
layer by the ending of their names, and the weight that they stand for in float64.
"""
import json

import numpy as np
import torch

SEED_OF_CODES = 5
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


def bf16(x):
    return torch.from_numpy(x).to(torch.bfloat16).to(torch.float64).numpy()


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


E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])
NF4 = np.array([-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635,
                -0.18477343022823334, -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725,
                0.24611230194568634, 0.33791524171829224, 0.44070982933044434, 0.5626170039176941,
                0.7229568362236023, 1.0], np.float32)


def nearest(x, values):
    return np.abs(x[..., None] - values).argmin(-1).astype(np.uint8)


def e2m1(x):
    return nearest(np.abs(x), E2M1) | np.where(x < 0, 8, 0).astype(np.uint8)


def e2m1_values(codes):
    return np.where(codes & 8, -1, 1) * E2M1[codes & 7]


def low_first(codes):
    return torch.from_numpy((codes[:, 0::2] | codes[:, 1::2] << 4).copy())


def nvfp4(w, divides):
    """compressed-tensors divides by the scale of the whole weight, ModelOpt multiplies by it."""
    g = grouped(w, 16)
    whole = np.float32(6 * 448 / np.abs(w).max() if divides else np.abs(w).max() / (6 * 448))
    wanted = np.abs(g).max(2) / 6 * whole if divides else np.abs(g).max(2) / 6 / whole
    stored = fp8(wanted)
    scale = stored.to(torch.float32).numpy()
    scale = scale / whole if divides else scale * whole  # in float32
    codes = e2m1(g / scale[..., None].astype(np.float64))
    values = (e2m1_values(codes) * scale[..., None].astype(np.float64)).reshape(w.shape)
    codes = low_first(codes.reshape(w.shape))
    if divides:
        return {"weight_packed": codes, "weight_scale": stored,
                "weight_global_scale": torch.tensor([whole])}, values
    return {"weight": codes, "weight_scale": stored, "weight_scale_2": torch.tensor(whole)}, values


def modelopt_awq(w, group=32, factors=None):
    """`factors` multiply inputs: weights are divided by them before they are rounded."""
    inputs = np.ones(w.shape[1]) if factors is None else bf16(factors)
    g = grouped(w / inputs, group)
    scale = bf16(np.abs(g).max(2) / 7)
    codes = np.clip(np.rint(g / scale[..., None]), -8, 7).astype(np.int64)
    values = (codes * scale[..., None]).reshape(w.shape) * inputs
    halves = codes.reshape(w.shape) & 15
    tensors = {"weight": torch.from_numpy((halves[0::2] | halves[1::2] << 4).astype(np.uint8)),
               "weight_scale": torch.from_numpy(scale).to(torch.bfloat16)}
    if factors is not None:
        tensors["pre_quant_scale"] = torch.from_numpy(inputs).to(torch.bfloat16)
    return tensors, values


def mxfp4(w):
    g = grouped(w, 32)
    power = np.floor(np.log2(np.abs(g).max(2))) - 2
    codes = e2m1(g / 2.0 ** power[..., None])
    values = (e2m1_values(codes) * 2.0 ** power[..., None]).reshape(w.shape)
    return {"weight_packed": low_first(codes.reshape(w.shape)),
            "weight_scale": torch.from_numpy((power + 127).astype(np.uint8))}, values


def bnb_nf4(w, nested):
    """Blocks of 64 of the flattened matrix; nested: their magnitudes are codes of a map themselves."""
    flat = w.astype(np.float32).reshape(-1, 64)
    absmax = np.abs(flat).max(1)
    tensors, state = {}, {"quant_type": "nf4", "blocksize": 64, "dtype": "bfloat16", "shape": list(w.shape)}
    if nested:
        offset = np.float32(absmax.mean())
        table = np.sort(np.tanh(np.linspace(-2, 2, 256)) / np.tanh(2)).astype(np.float32)
        rest = absmax - offset
        outer = np.array([np.abs(rest[i:i + 256]).max() for i in range(0, len(rest), 256)], np.float32)
        of_block = outer.repeat(256)[:len(rest)]
        codes = nearest(rest / of_block, table)
        absmax = table[codes] * of_block + offset  # in float32
        tensors.update({"weight.absmax": torch.from_numpy(codes), "weight.nested_absmax": torch.from_numpy(outer),
                        "weight.nested_quant_map": torch.from_numpy(table)})
        state.update(nested_blocksize=256, nested_dtype="float32", nested_offset=float(offset))
    else:
        tensors["weight.absmax"] = torch.from_numpy(absmax)
    codes = nearest(flat / absmax[:, None], NF4)
    values = (NF4[codes] * absmax[:, None]).astype(np.float64).reshape(w.shape)  # in float32
    codes = codes.reshape(-1)
    text = np.frombuffer(json.dumps(state).encode(), np.uint8)
    tensors.update({"weight": torch.from_numpy((codes[0::2] << 4 | codes[1::2])[:, None].copy()),
                    "weight.quant_map": torch.from_numpy(NF4.copy()),
                    "weight.quant_state.bitsandbytes__nf4": torch.from_numpy(text.copy())})
    return tensors, values


def fastdeploy_int8(w):
    """[in, out], as Paddle has all weights."""
    scale = bf16(np.abs(w).max(1) / 127)
    codes = np.clip(np.rint(w / scale[:, None]), -127, 127).astype(np.int8)
    return {"quant_weight": torch.from_numpy(codes.T.copy()),
            "weight_scale": torch.from_numpy(scale).to(torch.bfloat16)}, codes * scale[:, None]


def in_tiles(codes, bits):
    """Codes [out, in] in the order of Paddle's weight_quantize for tensor cores: within 16 (8 bits) or 32 inputs
    the lanes of a fragment come together, and 64 inputs of 2 or 4 outputs follow each other."""
    out, width = codes.shape
    lanes, together = (2, 2) if bits == 8 else (4, 4)
    mixed = codes.reshape(out, -1, lanes, 8).swapaxes(2, 3).reshape(out, width)
    shifted = (mixed + 2 ** (bits - 1)).astype(np.uint8)
    if bits == 4:
        shifted = shifted[:, 0::2] | shifted[:, 1::2] << 4
    size = 64 * bits // 8
    tiles = shifted.reshape(out // together, together, width // 64, size).swapaxes(1, 2)
    return torch.from_numpy(tiles.reshape(-1, width).view(np.int8).copy())


def fastdeploy_tiles(bits):
    top = 2 ** (bits - 1) - 1

    def pack(w):
        scale = bf16(np.abs(w).max(1) / top)
        codes = np.clip(np.rint(w / scale[:, None]), -top, top).astype(np.int64)
        return {"quant_weight": in_tiles(codes, bits),
                "weight_scale": torch.from_numpy(scale).to(torch.bfloat16)}, codes * scale[:, None]
    return pack


def in_w4a8_order(packed):
    """Bytes [in / 2, out] in the order of FastDeploy's kernels, step by step as they are put in it: pairs of bytes
    to places among those of 64 inputs of 4 outputs, then the halves of each word of 8."""
    half, out = packed.shape
    width = 2 * half
    order = np.array([0, 2, 4, 6, 1, 3, 5, 7])
    pairs = packed[0::2].astype(np.uint16) | packed[1::2].astype(np.uint16) << 8  # [in / 4, out]
    placed = np.zeros(width // 4 * out, np.uint16)
    for k in range(width // 4):
        for n in range(out):
            placed[order[k % 8] + k % 16 // 8 * 8 + n % 4 * 16 + k // 16 * 64 + n // 4 * width] = pairs[k, n]
    words = placed.view(np.uint32)
    mixed = np.zeros_like(words)
    for i in range(8):
        mixed |= (words >> np.uint32(4 * i) & np.uint32(15)) << np.uint32(4 * order[i])
    return mixed.view(np.uint8).reshape(half, out)


def hadamard(size):
    """Sylvester's matrix of ones and minus ones."""
    matrix = np.ones((1, 1), np.int64)
    while len(matrix) < size:
        matrix = np.block([[matrix, matrix], [matrix, -matrix]])
    return matrix


def fastdeploy_w4a8(permuted, rotation=0):
    """Bytes of two inputs, the even one in the low half. In the order of the kernels, scales are their factors. With a
    rotation, elements are meant for inputs that are multiplied by the Hadamard matrix of so many."""
    def pack(w):
        turn = np.kron(np.eye(w.shape[1] // rotation, dtype=np.int64), hadamard(rotation)) if rotation else None
        if rotation:
            w = w @ turn / rotation
        largest = np.abs(w).max(1).astype(np.float32)
        seen = np.float32(8 + w.shape[1] / 64)
        scale = (largest / np.float32(7)).astype(np.float64)  # in float32
        stored, of_input = torch.from_numpy(largest), seen
        if permuted:
            of_input = np.float32(1) / seen
            stored = torch.from_numpy(largest.astype(np.float64) / (127 * 112) / np.float64(of_input)).to(torch.bfloat16)
            scale = (16 * 127 * np.float64(of_input) * stored.to(torch.float64).numpy()).astype(np.float32).astype(
                np.float64)
        codes = np.clip(np.rint(w / scale[:, None]), -7, 7).astype(np.int64)
        halves = (codes & 15).astype(np.uint8).T
        packed = halves[0::2] | halves[1::2] << 4
        if permuted:
            packed = in_w4a8_order(packed)
        return {"quant_weight": torch.from_numpy(packed.copy().view(np.int8)), "weight_scale": stored,
                "activation_scale": torch.tensor([of_input])}, (codes @ turn if rotation else codes) * scale[:, None]
    return pack


def fastdeploy_ccq(w):
    """Two bits an element by a convolutional code: of the 256 words of an output the one whose windows are nearest."""
    out, width = w.shape
    groups = grouped(w, 64)
    amax = np.abs(groups).max(2)
    whole = bf16(amax.max(1) / (15 * 24))
    local = np.clip(np.ceil(amax / 24 / whole[:, None]), 1, 15).astype(np.uint8)
    local[0, 0] = 0  # a group of zeros
    scale = (local * whole[:, None]).repeat(64, 1)
    rng = np.random.default_rng(SEED_OF_CODES)
    code_scale = rng.uniform(120, 128, out).astype(np.float32)
    code_zp = rng.uniform(0, 100, out).astype(np.float32)
    words = np.floor(np.arange(256, dtype=np.float32) * code_scale[:, None] + code_zp[:, None]
                     + np.float32(0.5)).astype(np.int64)
    windows = (words[..., None] >> np.array([9, 6, 3, 0]) & 63) - 32  # [out, 256, 4]
    wanted = (w / np.maximum(scale, 1e-30)).reshape(out, -1, 4)
    wanted = np.where(np.abs(wanted) > 100, 0, wanted)
    distance = ((wanted[:, :, None] - windows[:, None]) ** 2).sum(-1)
    codes = distance.argmin(-1).astype(np.uint8)  # [out, in / 4]
    values = np.take_along_axis(windows, codes[..., None].astype(np.int64), 1).reshape(out, width) * scale + 0.0
    high = np.pad(local, ((0, 0), (0, local.shape[1] % 2)))
    return {"quant_weight": torch.from_numpy(codes.T.copy()),
            "weight_scale": torch.from_numpy((high[:, 0::2] << 4 | high[:, 1::2]).T.copy()),
            "super_scales": torch.from_numpy(whole).to(torch.bfloat16),
            "code_scale": torch.from_numpy(code_scale), "code_zp": torch.from_numpy(code_zp)}, values


def paddlenlp_a8w8(w, dtype, factors=None):
    """[in, out]; the second tensor is the table's: largest magnitudes. `factors` multiply inputs: weights are divided
    by them before they are rounded."""
    inputs = np.ones(w.shape[1]) if factors is None else bf16(factors)
    largest = np.abs(w / inputs).max(1).astype(np.float32)
    scale = (largest / np.float32(127)).astype(np.float64)  # in float32
    codes = np.clip(np.rint(w / inputs / scale[:, None]), -128, 127).astype(np.int64)
    tensors = {"weight": torch.from_numpy(codes.T.copy()).to(dtype)}
    if factors is not None:
        tensors.update(smooth_weight=torch.from_numpy(inputs).to(torch.bfloat16),
                       shift_bias=torch.zeros(w.shape[1], dtype=torch.bfloat16))
    return tensors, largest, codes * scale[:, None] * inputs


def bnb_int8(w):
    largest = np.abs(w).max(1).astype(np.float32)
    scale = (largest / np.float32(127)).astype(np.float64)  # in float32
    codes = np.clip(np.rint(w * 127 / largest[:, None]), -127, 127).astype(np.int8)
    return {"weight": torch.from_numpy(codes), "SCB": torch.from_numpy(largest),
            "weight_format": torch.tensor(0, dtype=torch.uint8)}, codes * scale[:, None]
