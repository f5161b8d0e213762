"""compressed-tensors writes its own format, and says what it means."""
import torch
from compressed_tensors.compressors import ModelCompressor
from compressed_tensors.quantization import (QuantizationConfig, QuantizationStatus, QuantizationStrategy,
                                             apply_quantization_config, preset_name_to_scheme)
from compressed_tensors.quantization.utils import calculate_qparams
from safetensors.torch import save_file

GROUP, BLOCK = 32, 64


def bounds(w, args):
    """The least and the largest value of each block, in the shape of the scales."""
    if args.strategy == QuantizationStrategy.GROUP:
        g = w.reshape(w.shape[0], -1, args.group_size)
        return g.amin(2), g.amax(2)
    if args.strategy == QuantizationStrategy.BLOCK:
        h, v = args.block_structure
        low = torch.zeros(-(-w.shape[0] // h), -(-w.shape[1] // v))
        high = torch.zeros_like(low)
        for r in range(low.shape[0]):
            for c in range(low.shape[1]):
                part = w[r * h:(r + 1) * h, c * v:(c + 1) * v]
                low[r, c], high[r, c] = part.min(), part.max()
        return low, high
    return w.amin(1, keepdim=True), w.amax(1, keepdim=True)


def write(model, folder, preset, stored_names, linear, fnv):
    scheme = preset_name_to_scheme(preset, ["Linear"])
    if scheme.weights.group_size:
        scheme.weights.group_size = GROUP
    if scheme.weights.block_structure:
        scheme.weights.block_structure = [BLOCK, BLOCK]
    config = QuantizationConfig(config_groups={"group_0": scheme}, ignore=["lm_head"],
                                quantization_status=QuantizationStatus.FROZEN)
    model = model.to(torch.bfloat16)
    apply_quantization_config(model, config)
    for module in model.modules():
        args = getattr(getattr(module, "quantization_scheme", None), "weights", None)
        if args is None:
            continue
        scale, zero = calculate_qparams(*bounds(module.weight.data.float(), args), args)
        module.weight_scale.data = scale.to(module.weight_scale.dtype)
        if hasattr(module, "weight_zero_point"):
            module.weight_zero_point.data = zero.to(module.weight_zero_point.dtype)
    compressor = ModelCompressor.from_pretrained_model(model)
    compressor.compress_model(model)
    state = {k: v.contiguous().clone() for k, v in model.state_dict().items()}
    save_file(state, folder / "model.safetensors")
    (folder / "config.json").write_text("{}")
    compressor.update_config(folder)
    return unpacked(state, scheme.weights, fnv)


def unpacked(state, args, fnv):
    """The values by the definition of the format: elements and scales, multiplied in float64."""
    values, digests = {}, {}
    for name, scale in state.items():
        if not name.endswith(".weight_scale"):
            continue
        module = name[:-len(".weight_scale")]
        packed = f"{module}.weight_packed" in state
        stored = f"{module}.weight_packed" if packed else f"{module}.weight"
        q = nibbles(state[stored], args.num_bits) if packed else state[stored].to(torch.float64)
        s = widened(scale.to(torch.float64), q.shape, args)
        zero = state.get(f"{module}.weight_zero_point")
        if zero is not None:
            z = nibbles(zero.t().contiguous(), args.num_bits).t() if packed else zero.to(torch.float64)
            q = q - widened(z, q.shape, args)
        values[f"{module}.weight"] = (q * s).numpy()
        digests[stored] = fnv(values[f"{module}.weight"])
    return values, digests


def widened(x, shape, args):
    if args.strategy == QuantizationStrategy.BLOCK:
        h, v = args.block_structure
        return x.repeat_interleave(h, 0)[:shape[0]].repeat_interleave(v, 1)[:, :shape[1]]
    return x.repeat_interleave(shape[1] // x.shape[1], 1)


def nibbles(words, bits):
    per = 32 // bits
    parts = torch.stack([words.to(torch.int64) >> bits * i & 2 ** bits - 1 for i in range(per)], 2)
    return (parts.reshape(words.shape[0], -1) - 2 ** (bits - 1)).to(torch.float64)
