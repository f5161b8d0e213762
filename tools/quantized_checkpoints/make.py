"""Writes tiny checkpoints in every format that is read, and what they must give.

    pip install -r requirements.txt
    python make.py [--out FOLDER] [--size small|full] [--only NAME]

Each folder holds a checkpoint and expected.st, in safetensors format:

    prompt       [T]         i32  random ids
    logits       [T, vocab]  f32  eager attention, float32, of the dequantized weights
    sensitivity  [1]         f32  largest change of any logit per unit of relative change of the weights

and expected.json: for each quantized tensor FNV-1a of its values, as float32 in the order [out, in]:
each is computed in float64 and rounded once. Weights come from fixed seeds, so the same versions write
the same bytes. compressed-tensors and gguf write and read their formats; packing.py does the others.
The folders of tests/quantized are those of --size small.
"""
import argparse
import copy
import json
import pathlib
import shutil

import numpy as np
import torch
import transformers
from safetensors.torch import save_file

import compressed
import gguf_file
import packing

SIZES = {
    "small": dict(hidden_size=64, intermediate_size=96, vocab_size=64, num_hidden_layers=1),
    "full": dict(hidden_size=256, intermediate_size=384, vocab_size=160, num_hidden_layers=2),
}
COMMON = dict(num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=256, rms_norm_eps=1e-5,
              bos_token_id=1, eos_token_id=2, pad_token_id=0)
MIXTURE = dict(num_experts=4, num_experts_per_tok=2, head_dim=16, norm_topk_prob=True)
PROMPT, SEED, PERTURBATION = 16, 11, 2.0 ** -12


def build(kind, size):
    sizes = dict(SIZES[size], **COMMON)
    torch.manual_seed(SEED)
    if kind == "moe":
        config = transformers.Qwen3MoeConfig(**sizes, **MIXTURE, moe_intermediate_size=sizes["hidden_size"])
        model = transformers.Qwen3MoeForCausalLM(config)
    elif kind in ("ernie_moe", "ernie_moe_wide"):
        config = transformers.Ernie4_5_MoeConfig(
            **sizes | dict(num_hidden_layers=2), use_bias=False, tie_word_embeddings=False, moe_num_experts=4, moe_k=2,
            moe_intermediate_size=256 if kind == "ernie_moe_wide" else 64, moe_num_shared_experts=1,
            moe_layer_start_index=0)
        model = transformers.Ernie4_5_MoeForCausalLM(config)
    elif kind in ("ernie", "ernie_wide"):
        if kind == "ernie_wide":
            sizes["intermediate_size"] = 2 * sizes["hidden_size"]
        config = transformers.Ernie4_5Config(**sizes, head_dim=16, use_bias=False, tie_word_embeddings=False)
        model = transformers.Ernie4_5ForCausalLM(config)
    elif kind == "qwen2":
        config = transformers.Qwen2Config(**sizes)
        model = transformers.Qwen2ForCausalLM(config)
    else:
        config = transformers.LlamaConfig(**sizes)
        model = transformers.LlamaForCausalLM(config)
    generator = torch.Generator().manual_seed(SEED)
    for name, p in model.named_parameters():
        spread = torch.randn(p.shape, generator=generator)
        p.data = 1 + 0.25 * spread if "norm" in name else spread * (1.2 / p.shape[-1] ** 0.5)
        p.data = p.data.to(torch.bfloat16).to(torch.float32)
    model.config._attn_implementation = "eager"
    return model.eval()


def stored_names(model):
    """The weights as checkpoints name them: experts apart, [out, in]."""
    out = {}
    for name, p in model.state_dict().items():
        if name.endswith("experts.gate_up_proj"):
            base, half = name[:-len("gate_up_proj")], p.shape[1] // 2
            for e in range(p.shape[0]):
                out[f"{base}{e}.gate_proj.weight"] = p[e, :half]
                out[f"{base}{e}.up_proj.weight"] = p[e, half:]
        elif name.endswith("experts.down_proj"):
            for e in range(p.shape[0]):
                out[f"{name[:-len('down_proj')]}{e}.down_proj.weight"] = p[e]
        else:
            out[name] = p
    return out


def linear(name):
    return "_proj.weight" in name


def put(model, values):
    """Sets weights by the names of stored_names."""
    with torch.no_grad():
        for name, p in stored_names(model).items():
            if name in values:
                p.copy_(torch.from_numpy(values[name]).to(p.dtype))


def logits_of(model, prompt):
    with torch.no_grad():
        return model(prompt[None]).logits[0].to(torch.float32)


def sensitivity_of(model, prompt, base):
    generator = torch.Generator().manual_seed(SEED + 1)
    kept = {n: p.detach().clone() for n, p in model.named_parameters()}
    worst = 0.0
    for _ in range(4):
        for n, p in model.named_parameters():
            if "mlp.gate.weight" not in n:
                p.data = kept[n] * (1 + PERTURBATION * torch.randn(p.shape, generator=generator))
        worst = max(worst, float((logits_of(model, prompt) - base).abs().max()) / PERTURBATION)
    for n, p in model.named_parameters():
        p.data = kept[n]
    return worst


def fnv(values):
    h = 0xCBF29CE484222325
    for b in np.ascontiguousarray(values).astype(np.float32).tobytes():
        h = (h ^ b) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return f"{h:016x}"


def prompt_of(model):
    return torch.from_numpy(np.random.default_rng(SEED).integers(
        3, model.config.vocab_size, PROMPT).astype(np.int64))


def write_expected(folder, model, digests):
    prompt = prompt_of(model)
    logits = logits_of(model, prompt)
    save_file({"prompt": prompt.to(torch.int32), "logits": logits.contiguous(),
               "sensitivity": torch.tensor([sensitivity_of(model, prompt, logits)], dtype=torch.float32)},
              folder / "expected.st")
    (folder / "expected.json").write_text(json.dumps(digests, indent=1, sort_keys=True) + "\n")


def config_json(model, quantization):
    config = model.config.to_dict()
    keep = {k: v for k, v in config.items() if not k.startswith("_") and k != "quantization_config"}
    keep["architectures"] = [type(model).__name__]
    keep["dtype"] = "bfloat16"
    if quantization is not None:
        keep["quantization_config"] = quantization
    return keep


def plain_case(model, folder, pack, quantization):
    tensors, values, digests = {}, {}, {}
    for name, p in stored_names(model).items():
        if not linear(name):
            tensors[name] = p.to(torch.bfloat16).contiguous().clone()
            continue
        module = name[:-len(".weight")]
        packed, exact = pack(name, p.to(torch.float64).numpy())
        tensors.update({f"{module}.{end}": t for end, t in packed.items()})
        values[name] = exact
        digests[next(f"{module}.{e}" for e in ("qweight", "weight_packed", "weight") if e in packed)] = fnv(exact)
    save_file(tensors, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config_json(model, quantization), indent=1) + "\n")
    put(model, values)
    write_expected(folder, model, digests)


def gptq_case(kind, **options):
    def write(model, folder):
        order = options.pop("desc_act", False)
        version = options.get("version", 1)
        rng = np.random.default_rng(SEED + 2)
        columns = {n: rng.permutation(n) for n in (SIZES["small"]["hidden_size"],
                                                   SIZES["small"]["intermediate_size"], 256, 384)}

        def pack(name, w):
            return packing.gptq(w, order=columns[w.shape[1]] if order else None, **options)

        label = options.get("label", version)
        plain_case(model, folder, pack, {
            "quant_method": "gptq", "bits": options.get("bits", 4), "group_size": options.get("group", 32),
            "desc_act": order, "sym": options.get("symmetric", True),
            "checkpoint_format": "gptq" if label == 1 else "gptq_v2"})
    return kind, write


def mislabelled(kind):
    """Zero points of version 2 under the label of version 1."""
    def write(model, folder):
        plain_case(model, folder, lambda name, w: packing.gptq(w, version=2),
                   {"quant_method": "gptq", "bits": 4, "group_size": 32, "desc_act": False, "sym": True,
                    "checkpoint_format": "gptq"})
    return kind, write


def simple(kind, pack, quantization):
    return kind, lambda model, folder: plain_case(model, folder, lambda name, w: pack(w), quantization)


def apart(model):
    """The same tensors as modules in which each expert has linear layers of its own, which are what
    compressed-tensors looks for."""
    root = torch.nn.Module()
    for name, p in stored_names(model).items():
        *path, leaf, _ = name.split(".")
        at = root
        for part in path:
            if not hasattr(at, part):
                at.add_module(part, torch.nn.Module())
            at = getattr(at, part)
        layer = torch.nn.Linear(p.shape[1], p.shape[0], bias=False) if linear(name) else torch.nn.Module()
        layer.weight = torch.nn.Parameter(p.detach().clone())
        at.add_module(leaf, layer)
    return root


def ct_case(kind, preset):
    def write(model, folder):
        written = apart(model) if kind == "moe" else copy.deepcopy(model)
        values, digests = compressed.write(written, folder, preset, stored_names, linear, fnv)
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(
            json.dumps(config_json(model, config["quantization_config"]), indent=1) + "\n")
        put(model, values)
        write_expected(folder, model, digests)
    return kind, write


def modelopt_mixed_case(kind):
    """Attention in eight-bit floats, experts in four-bit ones."""
    def write(model, folder):
        def pack(name, w):
            return packing.nvfp4(w, False) if ".experts." in name else packing.fp8_tensor(w, 0.03125)
        layers = {}
        for i in range(model.config.num_hidden_layers):
            layers[f"model.layers.{i}.self_attn"] = {"quant_algo": "FP8"}
            layers[f"model.layers.{i}.mlp.experts"] = {"quant_algo": "W4A16_NVFP4", "group_size": 16}
        plain_case(model, folder, pack, {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION",
                                         "quantized_layers": layers, "ignore": ["lm_head"]})
    return kind, write


def modelopt_awq_case(kind):
    """Layers behind no norm have factors of their inputs beside them."""
    def write(model, folder):
        rng = np.random.default_rng(SEED + 3)

        def pack(name, w):
            behind_norm = not name.endswith(("o_proj.weight", "down_proj.weight"))
            return packing.modelopt_awq(w, factors=None if behind_norm else rng.uniform(0.5, 2, w.shape[1]))

        plain_case(model, folder, pack, {"quant_method": "modelopt", "quant_algo": "W4A16_AWQ", "group_size": 32,
                                         "has_zero_point": False, "pre_quant_scale": True, "ignore": ["lm_head"]})
    return kind, write


FUSED = {"self_attn.qkv_proj": ["q_proj", "k_proj", "v_proj"], "self_attn.o_proj": ["o_proj"],
         "up_gate_proj": ["gate_proj", "up_proj"], "down_proj": ["down_proj"]}


def fused_modules(weights):
    """The linear layers by Paddle's names, with the names of the weights that each joins."""
    made = {}
    for name in filter(linear, weights):
        path, part = name[:-len(".weight")].rsplit(".", 1)
        fused = next(f for f, parts in FUSED.items() if part in parts).split(".")[-1]
        made.setdefault(f"{path}.{fused}".replace("model.", "ernie."), []).append(name)
    return {module: sorted(names, key=lambda n: next(p.index(n.split(".")[-2]) for p in FUSED.values()
                                                     if n.split(".")[-2] in p))
            for module, names in made.items()}


def paddle_plain(name, p):
    """What is no linear layer: matrices that multiply are [in, out]."""
    name = name.replace("model.", "ernie.").replace("mlp.gate.moe_statics", "mlp.moe_statics")
    dtype = torch.float32 if ".mlp.gate." in name or "moe_statics" in name else torch.bfloat16
    turned = name == "lm_head.weight" or name.endswith("mlp.gate.weight")
    return name, (p.t() if turned else p).to(dtype).contiguous().clone()


def fastdeploy_case(kind, pack, quantization):
    """In Paddle's names: projections that are computed together are one tensor. `pack` gives the packing of a module."""
    def write(model, folder):
        weights = stored_names(model)
        tensors = dict(paddle_plain(name, p) for name, p in weights.items() if not linear(name))
        values, digests = {}, {}
        for module, names in fused_modules(weights).items():
            w = np.concatenate([weights[n].to(torch.float64).numpy() for n in names])
            packed, exact = pack(module)(w)
            tensors.update({f"{module}.{end}": t for end, t in packed.items()})
            digests[f"{module}.quant_weight"] = fnv(exact)
            cuts = np.cumsum([weights[n].shape[0] for n in names])[:-1]
            values.update(zip(names, np.split(exact, cuts)))
        save_file(tensors, folder / "model.safetensors")
        config = config_json(model, quantization)
        config["architectures"] = [
            "Ernie4_5_MoeForCausalLM" if kind.startswith("ernie_moe") else "Ernie4_5_ForCausalLM"]
        (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")
        put(model, values)
        write_expected(folder, model, digests)
    return kind, write


def ernie_mixture(experts):
    """Experts as `experts` says, by their layer; all else in eight bits."""
    def pack(module):
        layer = int(module.split(".")[2])
        return experts[layer] if ".mlp.experts." in module else packing.fastdeploy_tiles(8)
    return pack


def w4a8_mixture(permuted, rotation=128):
    """Experts in w4a8, the inputs of their down_proj rotated; all else in eight bits."""
    def pack(module):
        if ".mlp.experts." not in module:
            return packing.fastdeploy_tiles(8)
        return packing.fastdeploy_w4a8(permuted, rotation if module.endswith("down_proj") else 0)
    return pack


def ct_float(format_name, group):
    """What compressed-tensors says of weights in four-bit floats."""
    weights = {"num_bits": 4, "type": "float", "symmetric": True, "dynamic": False, "group_size": group,
               "strategy": "tensor_group" if group == 16 else "group"}
    return {"quant_method": "compressed-tensors", "format": format_name, "ignore": ["lm_head"],
            "quantization_status": "compressed",
            "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights}}}


def largest_inputs(model):
    """The largest magnitude of the inputs of each linear layer, by its name, on the prompt."""
    largest, hooks = {}, []
    for name, layer in model.named_modules():
        if not linear(f"{name}.weight"):
            continue

        def look(_, args, name=name):
            largest[name] = float(args[0].detach().abs().max())
        hooks.append(layer.register_forward_pre_hook(look))
    logits_of(model, prompt_of(model))
    for hook in hooks:
        hook.remove()
    return largest


def paddlenlp_case(kind, dtype, smooth):
    """Weights [in, out] of whole numbers, under the name of the model's class; scales in two files beside them.
    `smooth`: the layers behind no norm have factors of their inputs."""
    def write(model, folder):
        base = {"dense": "llama", "qwen2": "qwen2"}[kind]
        rng = np.random.default_rng(SEED + 4)
        seen = largest_inputs(model)
        tensors, values, digests, tables = {}, {}, {}, ({}, {})
        for name, p in stored_names(model).items():
            module = name.rsplit(".", 1)[0].replace("model.", f"{base}.")
            if not linear(name):
                turned = p.t() if name == "lm_head.weight" else p
                tensors[name.replace("model.", f"{base}.")] = turned.to(torch.bfloat16).contiguous().clone()
                continue
            wrapped = smooth and module.endswith(("o_proj", "down_proj"))
            factors = rng.uniform(0.5, 2, p.shape[1]) if wrapped else None
            packed, largest, exact = packing.paddlenlp_a8w8(p.to(torch.float64).numpy(), dtype, factors)
            tensors.update({f"{module}.{end}": t for end, t in packed.items()})
            place = module + (".layer" if wrapped else "")
            tables[0][f"{place}.weight_quanter"] = largest.tolist()
            input_of = name[:-len(".weight")]
            tables[1][f"{place}.activation_quanter"] = seen[input_of] * (2 if wrapped else 1)
            if wrapped:  # what the writer leaves there
                tensors[f"{module}.bias"] = torch.zeros(p.shape[0], dtype=torch.bfloat16)
                tensors[f"{place}.weight"] = packed["weight"].clone()
                tensors[f"{place}.bias"] = tensors[f"{module}.bias"].clone()
            digests[f"{module}.weight"] = fnv(exact)
            values[name] = exact
        save_file(tensors, folder / "model.safetensors")
        for file, table in zip(("weight_scales.json", "act_scales.json"), tables):
            (folder / file).write_text(json.dumps(table) + "\n")
        quantization = {"quant_type": "a8w8", "smooth": smooth, "shift": False, "shift_smooth_all_linears": smooth,
                        "quant_method": None, "weight_quantize_algo": None, "quantization": ""}
        (folder / "config.json").write_text(json.dumps(config_json(model, quantization), indent=1) + "\n")
        put(model, values)
        write_expected(folder, model, digests)
    return kind, write


def bnb(**keys):
    return {"quant_method": "bitsandbytes", "load_in_4bit": False, "load_in_8bit": False,
            "llm_int8_skip_modules": None, **keys}


def gguf_case(kind, types, scaling=None):
    """`scaling`: Llama 3.1's, which writers turn into a factor for each pair of dimensions."""
    def write(model, folder):
        if scaling:
            model.config.rope_parameters = {"rope_type": "llama3", "rope_theta": 10000.0, **scaling}
            model.model.rotary_emb = type(model.model.rotary_emb)(model.config)
        values, digests = gguf_file.write(model, folder / "model.gguf", types, stored_names, fnv, scaling)
        put(model, values)
        write_expected(folder, model, digests)
    return kind, write


AWQ = {"quant_method": "awq", "bits": 4, "group_size": 32, "zero_point": True, "version": "gemm",
       "modules_to_not_convert": None}
AUTOFP8 = {"quant_method": "fp8", "activation_scheme": "static", "ignored_layers": ["lm_head"]}

CASES = {
    "gptq": gptq_case("dense"),
    "gptq_v2_zeros": gptq_case("dense", symmetric=False, version=2),
    "gptq_desc_act": gptq_case("dense", desc_act=True),
    "gptq_mislabelled": mislabelled("dense"),
    "gptq_moe": gptq_case("moe"),
    "awq": simple("dense", packing.awq, AWQ),
    "awq_moe": simple("moe", packing.awq, AWQ),
    "fp8_block": simple("dense", packing.fp8_block,
                        {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic",
                         "weight_block_size": [64, 64]}),
    "fp8_block_moe": simple("moe", packing.fp8_block,
                            {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic",
                             "weight_block_size": [64, 64], "modules_to_not_convert": ["lm_head", "mlp.gate"]}),
    "autofp8": simple("dense", lambda w: packing.fp8_tensor(w, 0.03125), AUTOFP8),
    "autofp8_moe": simple("moe", lambda w: packing.fp8_tensor(w, 0.03125), AUTOFP8),
    "fbgemm_fp8": simple("dense", packing.fp8_output,
                         {"quant_method": "fbgemm_fp8", "activation_scale_ub": 1200.0,
                          "modules_to_not_convert": ["lm_head"]}),
    "modelopt_fp8": simple("dense", lambda w: packing.fp8_tensor(w, 0.03125),
                           {"quant_method": "modelopt", "quant_algo": "FP8", "ignore": ["lm_head"]}),
    "ct_w4a16": ct_case("dense", "W4A16"),
    "ct_w4a16_asym": ct_case("dense", "W4A16_ASYM"),
    "ct_w8a8": ct_case("dense", "W8A8"),
    "ct_w4a16_moe": ct_case("moe", "W4A16"),
    "ct_w8a8_moe": ct_case("moe", "W8A8"),
    "ct_fp8_dynamic_moe": ct_case("moe", "FP8_DYNAMIC"),
    "ct_w4a8": ct_case("dense", "W4A8"),
    "ct_fp8_dynamic": ct_case("dense", "FP8_DYNAMIC"),
    "ct_fp8_block": ct_case("dense", "FP8_BLOCK"),
    "ct_nvfp4": simple("dense", lambda w: packing.nvfp4(w, True), ct_float("nvfp4-pack-quantized", 16)),
    "ct_mxfp4": simple("dense", packing.mxfp4, ct_float("mxfp4-pack-quantized", 32)),
    "modelopt_nvfp4": simple("dense", lambda w: packing.nvfp4(w, False),
                             {"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["lm_head"]}),
    "modelopt_mixed_moe": modelopt_mixed_case("moe"),
    "modelopt_awq": modelopt_awq_case("dense"),
    "bnb_nf4": simple("dense", lambda w: packing.bnb_nf4(w, False),
                      bnb(load_in_4bit=True, bnb_4bit_quant_type="nf4")),
    "bnb_nf4_nested": simple("dense", lambda w: packing.bnb_nf4(w, True),
                             bnb(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True)),
    "bnb_nf4_moe": simple("moe", lambda w: packing.bnb_nf4(w, True),
                          bnb(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True)),
    "bnb_int8": simple("dense", packing.bnb_int8, bnb(load_in_8bit=True)),
    "fastdeploy_wint8": fastdeploy_case("ernie", lambda module: packing.fastdeploy_int8,
                                        {"quantization": "wint8", "is_permuted": False}),
    "fastdeploy_wint4_tiles": fastdeploy_case("ernie_wide", lambda module: packing.fastdeploy_tiles(4),
                                              {"quantization": "wint4"}),
    "fastdeploy_mix_tiles": fastdeploy_case(
        "ernie_moe", ernie_mixture([packing.fastdeploy_tiles(4)] * 2),
        {"quantization": "mix_quant", "dense_quant_type": "wint8", "moe_quant_type": "wint4", "is_quantized": True}),
    "fastdeploy_w4a8": fastdeploy_case(
        "ernie_moe_wide", w4a8_mixture(permuted=False),
        {"quantization": "mix_quant", "dense_quant_type": "wint8", "moe_quant_type": "w4a8",
         "kv_cache_quant_type": "int8", "is_quantized": True, "is_permuted": False}),
    "fastdeploy_w4a8_tiles": fastdeploy_case(
        "ernie_moe_wide", w4a8_mixture(permuted=True, rotation=256),
        {"quantization": "mix_quant", "dense_quant_type": "wint8", "moe_quant_type": "w4a8", "is_quantized": True,
         "hadamard_block_size": 256}),
    "fastdeploy_wint2": fastdeploy_case(
        "ernie_moe", ernie_mixture([packing.fastdeploy_tiles(4), packing.fastdeploy_ccq]),
        {"quantization": "wint2", "dense_quant_type": "wint8", "moe_quant_type": "w4w2", "moe_quant_config": {
            "moe_w4_quant_config": {"quant_type": "wint4", "quant_start_layer": 0, "quant_end_layer": 0},
            "moe_w2_quant_config": {"quant_type": "wint2", "quant_granularity": "pp_acc", "quant_group_size": 64,
                                    "quant_start_layer": 1, "quant_end_layer": 1}}}),
    "paddlenlp_a8w8": paddlenlp_case("dense", torch.bfloat16, smooth=False),
    "paddlenlp_a8w8_smooth": paddlenlp_case("qwen2", torch.int8, smooth=True),
    "gguf_rope_freqs": gguf_case("dense", "Q8_0", {"factor": 8.0, "low_freq_factor": 1.0,
                                                   "high_freq_factor": 4.0,
                                                   "original_max_position_embeddings": 64}),
    "gguf_q4_0": gguf_case("dense", "Q4_0"),
    "gguf_q4_1": gguf_case("dense", "Q4_1"),
    "gguf_q8_0": gguf_case("dense", "Q8_0"),
    "gguf_q4_0_moe": gguf_case("moe", "Q4_0"),
}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", default="tests/quantized")
    parser.add_argument("--size", choices=SIZES, default="small")
    parser.add_argument("--only", default="")
    args = parser.parse_args()
    for name, (kind, write) in CASES.items():
        if args.only and args.only not in name:
            continue
        folder = pathlib.Path(args.out) / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        write(build(kind, args.size), folder)
        print(name, sum(f.stat().st_size for f in folder.iterdir()))


main()
