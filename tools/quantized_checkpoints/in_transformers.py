"""Do folders of `skiff quantize` mean in transformers what they mean here?

    python tools/quantized_checkpoints/in_transformers.py [--skiff build/cpu/skiff] [--only WORD ...]

Quantizes the demo model and tiny models of tests/golden with --layout compressed-tensors, has
transformers compute the logits of a prompt, compares them with those of `skiff predict
--dump-logits`, both in float32, and prints a table in Markdown. Needs the packages of
requirements.txt; tests/cli/test_quantize.py runs the tiny models.

How transformers gets the weights, the first way that works:

    folder      from_pretrained() of the folder
    dequantize  the same with CompressedTensorsConfig(dequantize=True)
    unpacked    compressed-tensors unpacks every tensor, and transformers loads the values

Three things are done for it. Scales get float32 once the folder has been loaded as it is, because
weights that the package unpacks early, experts among them, are rounded to the type of the scales.
The scale of a token's 8-bit integers is max / 127 (the package divides by 127.5). Inputs of experts
are rounded as those of other layers: transformers leaves that out, and those of shared experts, which
are [tokens, in], the package scales by element.

The bound. Sums of K terms in float32 act like exact sums whose terms were changed by sqrt(K) * 2^-24
of themselves, so the two evaluations differ like two of weights that differ by sqrt(2 K) * 2^-24.
DRAWS evaluations with random changes of this size show how far that moves the logits; one more
exceeds the largest change with probability 1 / (DRAWS + 1), and twice that change only if its
errors are of another kind. Where inputs are rounded, too, one beside a tie falls to its other side,
which moves logits by as much as the format is coarse: then the prompt is short, and of PROMPTS the
one with the least bound is taken, in a tiny model one without such an input.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

import torch
import transformers
from compressed_tensors.compressors import BaseCompressor
from compressed_tensors.quantization import QuantizationConfig
from compressed_tensors.utils import match_name
from safetensors.torch import load_file, save_file

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tests/cli"))
import npy  # noqa: E402

torch.set_num_threads(1)  # these models are tiny
DRAWS = 16
PROMPTS, SHORT = 24, 5  # where inputs are rounded
LENGTH = 32
WAYS = ("folder", "dequantize", "unpacked")


def prompt(vocab, seed, length):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(3, vocab, (length,), generator=generator).tolist()


def run(*words):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr)


def quantized(skiff, model, to, flags, place):
    vocab = json.loads((model / "config.json").read_text())["vocab_size"]
    data, out = place / "data.jsonl", place / "out"
    data.write_text("".join(json.dumps({"ids": prompt(vocab, seed, 64)}) + "\n" for seed in range(6)))
    run(skiff, "quantize", model, "--to", to, "--layout", "compressed-tensors", "--out", out, "--data", data, *flags)
    return out


def logits_of_skiff(skiff, folder, ids, place):
    logits = place / "logits.npy"
    run(skiff, "predict", folder, "--prompt-token-ids", ",".join(map(str, ids)), "--max-tokens", 1,
        "--dtype", "float32", "--dump-logits", logits)
    return torch.tensor(npy.read(logits))


def description(folder):
    """The scheme of all layers of the class, and the whole configuration."""
    quantization = json.loads((folder / "config.json").read_text())["quantization_config"]
    config = QuantizationConfig.model_validate(quantization)
    return next(s for s in config.config_groups.values() if "Linear" in s.targets), config


def tensors_of(folder):
    tensors = {}
    for file in sorted(folder.glob("*.safetensors")):
        tensors |= load_file(file)
    return tensors


def values(folder):
    """The tensors of the folder, with the weights that compressed-tensors makes of rounded ones."""
    tensors = tensors_of(folder)
    for_all, config = description(folder)
    by_name = [(t, s) for s in config.config_groups.values() for t in s.targets if t != "Linear"]
    for scale in [name for name in tensors if name.endswith(".weight_scale")]:
        module = scale[:-len(".weight_scale")]
        scheme = next((s for t, s in by_name if match_name(module, t)), for_all)
        parts = {name[len(module) + 1:]: tensors.pop(name) for name in list(tensors)
                 if name.startswith(module + ".") and name != module + ".bias"}
        compressor = BaseCompressor.get_value_from_registry(scheme.format)
        tensors[module + ".weight"] = compressor.decompress(parts, scheme)["weight"].contiguous()
    return tensors


def written(place, name, config, tensors):
    folder = place / name
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    return folder


def with_wide_scales(folder, place):
    config = json.loads((folder / "config.json").read_text())
    return written(place, "wide", config, {name: tensor.float() if name.endswith(".weight_scale") else tensor
                                           for name, tensor in tensors_of(folder).items()})


def unpacked(folder, place):
    config = json.loads((folder / "config.json").read_text())
    del config["quantization_config"]
    return written(place, "plain", config, {name: tensor.float() for name, tensor in values(folder).items()})


def from_folder(folder, way):
    options = {}
    if way == "dequantize":
        options["quantization_config"] = transformers.CompressedTensorsConfig(dequantize=True)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32,
                                                              experts_implementation="eager", **options)
    for p in model.parameters():  # those that were unpacked have the type of the scales
        if p.dtype in (torch.bfloat16, torch.float16):
            p.data = p.data.float()
    with torch.no_grad():
        model(torch.tensor([[5]]))
    return model


def loaded(folder, place):
    """The model, the way by which transformers got it, and what it said of earlier ways."""
    wide, why = with_wide_scales(folder, place), []
    for way in WAYS[:2]:
        try:
            from_folder(folder, way)
            return from_folder(wide, way), way, why
        except (RuntimeError, ValueError, AssertionError, AttributeError) as error:
            why.append(f"{way}: {str(error).splitlines()[0]}")
    return from_folder(unpacked(wide, place), "unpacked"), "unpacked", why


def rounding(activations):
    """What rounds a token's inputs as Skiff's format says."""
    eight, group = activations.type == "int", activations.group_size

    def rounded(x):
        tiles = x.unflatten(-1, (-1, group)) if group and x.shape[-1] % group == 0 else x
        largest = tiles.abs().amax(-1, keepdim=True)
        step = torch.where(largest > 0, largest, 1) / (127 if eight else 448)
        code = (tiles / step).round() if eight else (tiles / step).to(torch.float8_e4m3fn).float()
        return (code * step).reshape(x.shape)
    return rounded


def round_inputs(model, folder):
    """Rounds what transformers does not, or not so."""
    scheme, config = description(folder)
    if not scheme.input_activations:
        return
    rounded, plain = rounding(scheme.input_activations), set(config.ignore)
    shared = any(".shared_expert" in name for name, _ in model.named_modules())
    replaced = scheme.input_activations.type == "int" or shared
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.Linear) and name not in plain:
            if replaced or not hasattr(module, "quantization_scheme"):
                module.register_forward_pre_hook(lambda _, inputs: (rounded(inputs[0]), *inputs[1:]))
        elif isinstance(getattr(module, "gate_up_proj", None), torch.nn.Parameter):
            module.forward = rounding_forward(module.forward, rounded)
    for module in model.modules():  # modules share schemes
        if replaced and hasattr(module, "quantization_scheme"):
            module.quantization_scheme.input_activations = None


def rounding_forward(forward, rounded):
    """Experts of all tokens are no modules: their products go through the function."""
    linear = torch.nn.functional.linear

    def run(*args, **kwargs):
        torch.nn.functional.linear = lambda x, weight, bias=None: linear(rounded(x), weight, bias)
        try:
            return forward(*args, **kwargs)
        finally:
            torch.nn.functional.linear = linear
    return run


@torch.no_grad()
def bound_of(model, ids):
    """Twice the largest change of a logit in DRAWS evaluations, and the logits."""
    logits = model(torch.tensor([ids])).logits[0]
    weights = [p for p in model.parameters() if p.dtype == torch.float32]
    kept = [p.data for p in weights]
    generator = torch.Generator().manual_seed(1)
    most = 0.0
    for _ in range(DRAWS):
        for p, old in zip(weights, kept):
            p.data = old * (1 + (2 * old.shape[-1]) ** 0.5 * 2.0 ** -24 * torch.randn(old.shape, generator=generator))
        most = max(most, (model(torch.tensor([ids])).logits[0] - logits).abs().max().item())
    for p, old in zip(weights, kept):
        p.data = old
    return 2 * most, logits


def compare(skiff, model, to, flags):
    """A dict: way, difference, bound, largest (the largest logit), why (what earlier ways said)."""
    with tempfile.TemporaryDirectory() as folder:
        place = pathlib.Path(folder)
        out = quantized(skiff, model, to, flags, place)
        theirs, way, why = loaded(out, place)
        round_inputs(theirs, out)
        rounds = description(out)[0].input_activations is not None
        prompts = [prompt(theirs.config.vocab_size, seed, SHORT if rounds else LENGTH)
                   for seed in range(PROMPTS if rounds else 1)]
        bound, ids, logits = min((bound, ids, logits) for ids in prompts for bound, logits in [bound_of(theirs, ids)])
        mine = logits_of_skiff(skiff, out, ids, place)
        return {"way": way, "difference": (mine - logits).abs().max().item(), "bound": bound,
                "largest": logits.abs().max().item(), "why": why}


def cases(model, group):
    groups, zeros = ["--group-size", group], ["--symmetric", "false"]
    for to, flags in (("w4a16", groups), ("w4a16", groups + zeros), ("gptq", groups), ("awq", groups),
                      ("awq", groups + ["--symmetric", "true"]), ("w8a16", []), ("a8w8", []), ("w4a8", groups),
                      ("fp8", []), ("fp8-block", [])):
        yield model, to, flags


ALL = [case for model, group in (("tests/golden/llama", "-1"), ("tests/golden/qwen3_moe", "-1"),
                                 ("tests/golden/ernie45_moe", "-1"), ("models/demo", "128"))
       for case in cases(model, group)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--skiff", default=str(ROOT / "build/cpu/skiff"))
    parser.add_argument("--only", nargs="*", default=[], help="words that a row must contain")
    args = parser.parse_args()
    transformers.logging.set_verbosity_error()
    print("| model | `--to` | transformers has | largest logit | largest difference | bound |\n|---|---|---|---|---|---|")
    worst = 0.0
    for model, to, flags in ALL:
        name = " ".join([to, *flags])
        if not all(word in f"{model} {name}" for word in args.only):
            continue
        row = compare(args.skiff, ROOT / model, to, flags)
        worst = max(worst, row["difference"] / row["bound"])
        print(f"| {pathlib.Path(model).name} | `{name}` | {row['way']} | {row['largest']:.1f} "
              f"| {row['difference']:.1e} | {row['bound']:.1e} |", flush=True)
        for line in row["why"]:
            print("  ", line, file=sys.stderr)
    sys.exit(worst > 1)


if __name__ == "__main__":
    main()
