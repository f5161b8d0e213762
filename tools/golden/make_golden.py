"""Makes tests/golden: tiny random checkpoints of every family and what transformers says of them.

    python tools/golden/make_golden.py [--only NAME] [--out tests/golden]

Needs torch, transformers (5.x) and safetensors. Each case is a folder that save_pretrained wrote
(stored as cases.py says), plus expected.st, in safetensors format:

    prompt       [T]          i32  random ids, longer than one page of 64
    logits       [T, vocab]   f32  eager attention, float32, of the weights as stored
    greedy       [16]         i32  the continuation by argmax
    sensitivity  [1]          f32  largest change of any logit per unit of relative change of the
                                   weights, measured with random perturbations of 2^-14; tests
                                   derive their tolerances from it

Weights are drawn with deviations that spread the logits, norms around 1, biases and correction
biases away from 0. A seed is taken only if the greedy path and every choice of experts have a
margin that rounding cannot cross, and if ERNIE's correction bias changes some choices.
"""
import argparse
import json
import pathlib
import shutil
import sys

import torch
import transformers
from safetensors.torch import load_file, save_file

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import paddle_layout
from cases import CASES, SMALL

PROMPT, NEW = 83, 16
GREEDY_MARGIN, ROUTER_MARGIN = 0.02, 2e-5
PERTURBATION = 2.0 ** -14


def randomize(model, seed):
    generator = torch.Generator().manual_seed(seed)

    def normal(shape, deviation, mean=0.0):
        return mean + deviation * torch.randn(shape, generator=generator)

    for name, p in model.named_parameters():
        if "norm" in name:
            p.data = normal(p.shape, 0.25, 1.0)
        elif name.endswith("e_score_correction_bias"):
            p.data = normal(p.shape, 0.08)
        elif p.dim() == 1:
            p.data = normal(p.shape, 0.3)
        elif "embed_tokens" in name:
            p.data = normal(p.shape, 0.5)
        else:
            gain = 2.0 if "lm_head" in name or ".gate." in name else 1.3
            p.data = normal(p.shape, gain / p.shape[-1] ** 0.5)
    model.tie_weights()


def router_margin(model, ids):
    """(smallest gap between the last expert chosen and the first not, does the bias matter)."""
    seen, handles = [], []

    def record(module, args):
        x = args[0].reshape(-1, args[0].shape[-1])
        probs = torch.softmax(x.float() @ module.weight.float().t(), -1)
        bias = getattr(getattr(module, "moe_statics", None), "e_score_correction_bias", None)
        scores = probs if bias is None else probs + bias
        top = scores.topk(module.top_k + 1, -1)
        moved = bias is not None and bool((probs.topk(module.top_k).indices.sort().values
                                           != top.indices[:, :-1].sort().values).any())
        seen.append(((top.values[:, -2] - top.values[:, -1]).min().item(), bias is None or moved))

    for module in model.modules():
        if type(module).__name__.endswith("Router"):
            handles.append(module.register_forward_pre_hook(record))
    with torch.no_grad():
        model(ids)
    for handle in handles:
        handle.remove()
    return min([m for m, _ in seen], default=1.0), all(b for _, b in seen)


@torch.no_grad()
def greedy(model, ids):
    margin = 1e9
    for _ in range(NEW):
        top = model(ids).logits[0, -1].topk(2)
        margin = min(margin, (top.values[0] - top.values[1]).item())
        ids = torch.cat([ids, top.indices[:1].view(1, 1)], 1)
    return ids, margin


@torch.no_grad()
def sensitivity(model, ids, logits):
    """Each number that an evaluation rounds acts like a small relative change of a weight."""
    generator = torch.Generator().manual_seed(1)
    kept = [p.data.clone() for p in model.parameters()]
    worst = 0.0
    for _ in range(4):
        for p, old in zip(model.parameters(), kept):
            p.data = old * (1 + PERTURBATION * torch.randn(old.shape, generator=generator))
        model.tie_weights()
        worst = max(worst, (model(ids).logits[0] - logits).abs().max().item())
    for p, old in zip(model.parameters(), kept):
        p.data = old
    return worst / PERTURBATION


def old_config(folder):
    """The keys as transformers 4 wrote them."""
    path = folder / "config.json"
    config = json.loads(path.read_text())
    rope = config.pop("rope_parameters")
    config["rope_theta"] = rope.pop("rope_theta")
    config["rope_scaling"] = rope if rope["rope_type"] != "default" else None
    config["torch_dtype"] = config.pop("dtype")
    path.write_text(json.dumps(config, indent=1, sort_keys=True))


def stack_experts(folder, model):
    """Expert weights as [experts, out, in] tensors, the form that transformers 5 computes with."""
    save_file({k: v.contiguous() for k, v in model.state_dict().items()}, folder / "model.safetensors")


def make(name, out, seed):
    kind, config, options = CASES[name]
    cls = getattr(transformers, kind)
    torch.manual_seed(seed)
    model = cls(cls.config_class(**{**SMALL, **config}, attn_implementation="eager")).eval()
    randomize(model, seed)
    folder = out / name
    shutil.rmtree(folder, ignore_errors=True)
    model.to(getattr(torch, options.get("dtype", "float32"))).save_pretrained(
        folder, **({"max_shard_size": options["shard"]} if "shard" in options else {}))
    if options.get("stacked_experts"):
        stack_experts(folder, model)
    model = cls.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    generator = torch.Generator().manual_seed(seed + 1000)
    prompt = torch.randint(3, SMALL["vocab_size"], (1, PROMPT), generator=generator)
    ids, margin = greedy(model, prompt)
    experts, bias_matters = router_margin(model, ids)
    if margin < GREEDY_MARGIN or experts < ROUTER_MARGIN or not bias_matters:
        return False
    with torch.no_grad():
        logits = model(prompt).logits[0].float()
    spread = sensitivity(model, prompt, logits)
    save_file({"prompt": prompt[0].int(), "logits": logits.contiguous(),
               "greedy": ids[0, PROMPT:].int().contiguous(),
               "sensitivity": torch.tensor([spread])}, folder / "expected.st")
    if options.get("old_config"):
        old_config(folder)
    if options.get("paddle"):
        paddle_layout.write(folder, out / (name + "_paddle"))
    size = sum(f.stat().st_size for f in folder.iterdir())
    print(f"{name}: seed {seed}, {size} bytes, logits deviation {logits.std():.2f}, greedy margin {margin:.3f}, "
          f"expert margin {experts:.1e}, sensitivity {spread:.1f}")
    return True


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only")
    parser.add_argument("--out", type=pathlib.Path,
                        default=pathlib.Path(__file__).resolve().parents[2] / "tests" / "golden")
    args = parser.parse_args()
    torch.set_num_threads(1)
    for name in CASES:
        if args.only in (None, name) and not any(make(name, args.out, seed) for seed in range(1, 60)):
            raise SystemExit(f"{name}: no seed has clear margins")


if __name__ == "__main__":
    main()
