"""Makes tests/golden: tiny random checkpoints of every family and what transformers says of them.

    python tools/golden/make_golden.py [--only NAME] [--out tests/golden] [--expected]

Needs torch, transformers (5.17 or later; older ones compute DeepSeek otherwise) and safetensors.
Each case is a folder that save_pretrained wrote (stored as cases.py says), plus expected.st, in
safetensors format:

    prompt       [T]          i32  random ids, longer than one page of 64
    logits       [T, vocab]   f32  eager attention, float32, of the weights as stored
    greedy       [16]         i32  the continuation by argmax
    sensitivity  [1]          f32  largest change of any logit per unit of relative change of the
                                   weights, measured with small random perturbations; tests
                                   derive their tolerances from it
    bf16_rows    [T]          f32  for each row the largest root mean square change of its logits
                                   in DRAWS evaluations in which every number that a bf16
                                   evaluation stores has the error of a rounding (bf16_noise.py)

--expected keeps the checkpoints and makes expected.st anew.

Weights are drawn with deviations that spread the logits, norms around 1, biases and correction
biases away from 0. A seed is taken only if the greedy path and every choice of experts have a
margin that rounding cannot cross, and if ERNIE's correction bias changes some choices. A case of
DeepSeek must be broken by every mutant of its model that applies to it (deepseek.py).
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
import deepseek
import paddle_layout
from bf16_noise import bf16_rows
from cases import CASES, SMALL

PROMPT, NEW = 83, 16
GREEDY_MARGIN, ROUTER_MARGIN = 0.02, 2e-5
# How far beyond the tolerance of golden_test.cc in float32 every mutant must be.
MUTANT_MARGIN, TOLERANCE = 20, 8 * 128 ** 0.5 * 2.0 ** -24
# The tolerance may be this part of the deviation of logits; it is more where the perturbation of
# weights that measures it changes a choice of experts.
MOST_TOLERANCE = 0.005
DRAWS = 128
# float_gate: the size of the weights that all experts share, and of their differences.
GATE_COMMON, GATE_APART = 4.0, 0.03
# Relative perturbation of the weights. Crowded gates take a smaller one, which must not change a choice.
PERTURBATION, CROWDED_PERTURBATION = 2.0 ** -14, 2.0 ** -19


def randomize(model, seed, bias_shift=0.0):
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
    for name, buffer in model.named_buffers():
        if name.endswith("e_score_correction_bias"):
            buffer.copy_(normal(buffer.shape, 0.15, bias_shift))
    model.tie_weights()


def crowd_gates(model, seed):
    """Gates whose rows differ by a few bf16 steps only."""
    generator = torch.Generator().manual_seed(seed + 500)
    for name, p in model.named_parameters():
        if not name.endswith(".gate.weight"):
            continue
        common = GATE_COMMON * torch.randn(p.shape[1], generator=generator)
        p.data = common + GATE_APART * torch.randn(p.shape, generator=generator)


def cast(model, dtype):
    """As transformers loads a checkpoint in `dtype`: what it keeps in float32 stays so."""
    kept = {name: p.data for name, p in model.named_parameters()
            if name.endswith((".gate.weight", "e_score_correction_bias"))}
    model.to(dtype)
    for name, p in model.named_parameters():
        if name in kept:
            p.data = kept[name]
    return model


def router_margin(model, ids):
    """(smallest gap between the last expert chosen and the first not, does the bias matter)."""
    seen, handles = [], []

    def record(module, args):
        if hasattr(module, "topk_group"):
            seen.append((deepseek.margins(module, args[0]), True))
            return
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
def sensitivity(model, ids, logits, perturbation):
    """Each number that an evaluation rounds acts like a small relative change of a weight."""
    generator = torch.Generator().manual_seed(1)
    kept = [p.data.clone() for p in model.parameters()]
    worst = 0.0
    for _ in range(4):
        for p, old in zip(model.parameters(), kept):
            p.data = old * (1 + perturbation * torch.randn(old.shape, generator=generator))
        model.tie_weights()
        worst = max(worst, (model(ids).logits[0] - logits).abs().max().item())
    for p, old in zip(model.parameters(), kept):
        p.data = old
    return worst / perturbation


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


def write_checkpoint(folder, name, seed):
    kind, config, options = CASES[name]
    cls = getattr(transformers, kind)
    torch.manual_seed(seed)
    model = cls(cls.config_class(**{**SMALL, **config}, attn_implementation="eager")).eval()
    randomize(model, seed, options.get("bias_shift", 0.0))
    dtype = getattr(torch, options.get("dtype", "float32"))
    if options.get("float_gate"):
        crowd_gates(model, seed)
        cast(model, dtype)
    else:
        model.to(dtype)
    shutil.rmtree(folder, ignore_errors=True)
    model.save_pretrained(
        folder, **({"max_shard_size": options["shard"]} if "shard" in options else {}))
    if options.get("stacked_experts"):
        stack_experts(folder, model)


def load(folder, name):
    cls = getattr(transformers, CASES[name][0])
    return cls.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()


def write_expected(folder, model, prompt, logits, greedy_ids, spread):
    save_file({"prompt": prompt[0].int(), "logits": logits.contiguous(),
               "greedy": greedy_ids.int().contiguous(), "sensitivity": torch.tensor([spread]),
               "bf16_rows": bf16_rows(model, prompt, logits, DRAWS)}, folder / "expected.st")


def renew_expected(name, out):
    """expected.st of a checkpoint that stays as it is."""
    folder = out / name
    old = load_file(folder / "expected.st")
    model = load(folder, name)
    write_expected(folder, model, old["prompt"][None].long(), old["logits"], old["greedy"],
                   old["sensitivity"].item())
    print(f"{name}: bf16 rows {load_file(folder / 'expected.st')['bf16_rows'].median():.3f} "
          f"of {old['logits'].std():.2f}")
    return True


def make(name, out, seed):
    options = CASES[name][2]
    folder = out / name
    write_checkpoint(folder, name, seed)
    model = load(folder, name)
    generator = torch.Generator().manual_seed(seed + 1000)
    prompt = torch.randint(3, SMALL["vocab_size"], (1, PROMPT), generator=generator)
    ids, margin = greedy(model, prompt)
    experts, bias_matters = router_margin(model, ids)
    if margin < GREEDY_MARGIN or experts < ROUTER_MARGIN or not bias_matters:
        return False
    with torch.no_grad():
        logits = model(prompt).logits[0].float()
    spread = sensitivity(model, prompt, logits,
                         CROWDED_PERTURBATION if options.get("float_gate") else PERTURBATION)
    if TOLERANCE * spread > MOST_TOLERANCE * logits.std():
        return False
    if "Deepseek" in CASES[name][0]:
        mutant, change = deepseek.weakest_mutant(model, prompt, logits, "bias_shift" in options)
        print(f"{name}: the weakest mutant, {mutant}, changes a logit by {change:.3g}")
        if change < MUTANT_MARGIN * TOLERANCE * spread:
            return False
    write_expected(folder, model, prompt, logits, ids[0, PROMPT:], spread)
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
    parser.add_argument("--expected", action="store_true")
    parser.add_argument("--out", type=pathlib.Path,
                        default=pathlib.Path(__file__).resolve().parents[2] / "tests" / "golden")
    args = parser.parse_args()
    torch.set_num_threads(1)
    for name in CASES:
        if args.only not in (None, name):
            continue
        if args.expected:
            renew_expected(name, args.out)
        elif not any(make(name, args.out, seed) for seed in range(1, 60)):
            raise SystemExit(f"{name}: no seed has clear margins")


if __name__ == "__main__":
    main()
