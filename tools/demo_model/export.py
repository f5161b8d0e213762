"""Writes and reads the checkpoint in the layout of Hugging Face's Ernie4_5_MoeForCausalLM.

Weights are bfloat16; the router and its correction bias are float32, as in the ERNIE 4.5 releases.
"""
import json
from dataclasses import asdict

import torch
from safetensors.torch import load_file, save_file

from model import MTP, Config, Model
from tokenizer import MODEL_DIR, write_json

MTP_DIR = "mtp"


def hf_tensors(model):
    c, out = model.c, {}
    for name, p in model.state_dict().items():
        if ".mlp.experts_" in name:
            layer, kind = name.split(".mlp.experts_")
            parts = p.chunk(c.moe_num_experts, 1 if kind == "down" else 0)
            for e, part in enumerate(parts):
                out[f"model.{layer}.mlp.experts.{e}.{kind}_proj.weight"] = part.bfloat16()
        elif name.endswith(".mlp.bias"):
            out[f"model.{name[:-5]}.moe_statics.e_score_correction_bias"] = p.float()[None]
        elif name.endswith(".mlp.gate.weight"):
            out["model." + name] = p.float()
        else:
            out["model." + name] = p.bfloat16()
    return {n: t.detach().cpu().contiguous() for n, t in out.items()}


def configs(c):
    shared = {k: v for k, v in asdict(c).items() if not k.startswith("moe_")}
    shared |= {"model_type": "ernie4_5_moe", "hidden_act": "silu", "use_bias": False, "tie_word_embeddings": True, "dtype": "bfloat16", "torch_dtype": "bfloat16",
               "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0, "rope_scaling": None, "initializer_range": 0.02, "use_cache": True}
    moe = {k: v for k, v in asdict(c).items() if k.startswith("moe_")}
    moe |= {"moe_layer_end_index": c.num_hidden_layers - 1, "moe_layer_interval": 1, "moe_norm_min": 1e-12, "moe_use_aux_free": True,
            "moe_gate": "topk", "moe_capacity": [64, 64, 64], "num_nextn_predict_layers": 1,
            "rope_parameters": {"rope_type": "default", "rope_theta": c.rope_theta}}
    main = {"architectures": ["Ernie4_5_MoeForCausalLM"], **shared, **moe}
    # the draft layer has a dense MLP
    mtp = {"architectures": ["Ernie4_5_MTPForCausalLM"], **shared, "num_hidden_layers": 1, "num_nextn_predict_layers": 1, "moe_num_experts": 0}
    return main, mtp


def save(model, mtp=None, folder=MODEL_DIR):
    folder.mkdir(parents=True, exist_ok=True)
    main, draft = configs(model.c)
    write_json(folder / "config.json", main)
    save_file(hf_tensors(model), str(folder / "model.safetensors"), metadata={"format": "pt"})
    if mtp is not None:
        (folder / MTP_DIR).mkdir(exist_ok=True)
        write_json(folder / MTP_DIR / "config.json", draft)
        tensors = {"model." + n: p.detach().bfloat16().cpu().contiguous() for n, p in mtp.state_dict().items()}
        save_file(tensors, str(folder / MTP_DIR / "model.safetensors"), metadata={"format": "pt"})


def load(folder=MODEL_DIR, device="cpu", dtype=torch.float32):
    """The shipped weights in our own model (with its draft layer, if there is one)."""
    c = Config(**{k: v for k, v in json.loads((folder / "config.json").read_text()).items() if k in Config.__dataclass_fields__})
    t = load_file(str(folder / "model.safetensors"))
    state = {}
    for name in Model(c).state_dict():
        if ".mlp.experts_" in name:
            layer, kind = name.split(".mlp.experts_")
            parts = [t[f"model.{layer}.mlp.experts.{e}.{kind}_proj.weight"] for e in range(c.moe_num_experts)]
            state[name] = torch.cat(parts, 1 if kind == "down" else 0)
        elif name.endswith(".mlp.bias"):
            state[name] = t[f"model.{name[:-5]}.moe_statics.e_score_correction_bias"][0]
        else:
            state[name] = t["model." + name]
    model = Model(c)
    model.load_state_dict({n: p.float() for n, p in state.items()})
    mtp = None
    if (folder / MTP_DIR / "model.safetensors").exists():
        mtp = MTP(c)
        mtp.load_state_dict({n.removeprefix("model."): p.float() for n, p in load_file(str(folder / MTP_DIR / "model.safetensors")).items()})
        mtp = mtp.to(device, dtype).eval()
    return model.to(device, dtype).eval(), mtp


@torch.no_grad()
def check_transformers(folder=MODEL_DIR, device="cpu"):
    """Largest difference of fp32 logits between transformers' implementation and ours."""
    from transformers import AutoTokenizer, Ernie4_5_MoeForCausalLM

    import chat
    import corpus
    from model import causal
    theirs, info = Ernie4_5_MoeForCausalLM.from_pretrained(str(folder), dtype=torch.float32, output_loading_info=True)
    theirs = theirs.to(device).eval()
    ours, _ = load(folder, device)
    tok = AutoTokenizer.from_pretrained(str(folder))
    worst = 0.0
    for h in corpus.load_heldout()[::25]:
        text = chat.prompt(h["messages"], h.get("tools"), h.get("thinking", False))
        templated = tok.apply_chat_template(h["messages"], tools=h.get("tools"), enable_thinking=h.get("thinking", False), add_generation_prompt=True, tokenize=False)
        assert text == templated, (text, templated)
        ids = torch.tensor([tok(text, add_special_tokens=False)["input_ids"]], device=device)
        hidden = ours(ids, torch.arange(ids.shape[1], device=device)[None], causal)
        worst = max(worst, (ours.logits(hidden) - theirs(ids).logits.float()).abs().max().item())
    return {"max_logit_difference": worst, "missing_keys": sorted(info["missing_keys"]), "unexpected_keys": sorted(info["unexpected_keys"])}
