"""Writes an ERNIE 4.5 checkpoint in the layout of its "-Paddle" releases.

Linear weights are [in, out]; q|k|v and gate|up are one tensor each, stacked along the output
axis; names start with "ernie."; the configuration keeps its older keys.
"""
import json
import pathlib
import re

import torch
from safetensors.torch import load_file, save_file

LINEAR = re.compile(r"(_proj|\.gate|lm_head)\.weight$")


def fuse(tensors, parts, fused, kind):
    """Stacks the `kind` ("weight" or "bias") tensors of modules named `parts` into `fused`."""
    if f"{parts[0]}.{kind}" in tensors:
        stacked = torch.cat([tensors.pop(f"{p}.{kind}") for p in parts], 0)
        tensors[f"{fused}.{kind}"] = stacked


def to_paddle(tensors):
    tensors = dict(tensors)
    modules = {name.rsplit(".", 1)[0] for name in tensors}
    for module in modules:
        for kind in ("weight", "bias"):
            if module.endswith(".q_proj"):
                stem = module[: -len("q_proj")]
                fuse(tensors, [stem + p + "_proj" for p in "qkv"], stem + "qkv_proj", kind)
            if module.endswith(".gate_proj"):
                stem = module[: -len("gate_proj")]
                fuse(tensors, [stem + "gate_proj", stem + "up_proj"], stem + "up_gate_proj", kind)
    out = {}
    for name, tensor in tensors.items():
        if LINEAR.search(name):
            tensor = tensor.t()
        name = re.sub(r"^model\.", "ernie.", name).replace(".gate.moe_statics.", ".moe_statics.")
        out[name] = tensor.contiguous()
    return out


def write(source: pathlib.Path, target: pathlib.Path):
    target.mkdir(parents=True, exist_ok=True)
    save_file(to_paddle(load_file(source / "model.safetensors")), target / "model.safetensors",
              metadata={"format": "np"})
    config = json.loads((source / "config.json").read_text())
    config["rope_theta"] = config.pop("rope_parameters")["rope_theta"]
    config["torch_dtype"] = config.pop("dtype")
    if config["architectures"] == ["Ernie4_5ForCausalLM"]:
        config["architectures"] = ["Ernie4_5_ForCausalLM"]
    (target / "config.json").write_text(json.dumps(config, indent=1, sort_keys=True))
