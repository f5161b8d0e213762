"""`skiff quantize`: folders that the program and, where it is installed, transformers can use."""
import json
import signal
import subprocess
import sys
import time

import pytest

LINES = [
    {"messages": [{"role": "user", "content": "What is 27 + 45?"}], "answer": "27 + 45 = 72."},
    {"messages": [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hi!"}]},
    {"text": "The capital of France is Paris. " * 12},
    {"ids": list(range(100, 220))},
]


@pytest.fixture
def data(tmp_path):
    path = tmp_path / "data.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in LINES * 3))
    return path


def quantize(skiff, model, out, to, *args):
    return skiff.ok("quantize", model, "--to", to, "--out", out, *args)


def table_row(printed):
    """Mean KL, 99.9 % KL, agreement, perplexity before and after."""
    cells = [cell.strip() for cell in printed.strip().splitlines()[-1].strip("|").split("|")]
    return [float(cell.split()[0]) for cell in cells]


def test_a_gptq_folder_answers_as_the_model_did(skiff, demo, data, tmp_path):
    printed = quantize(skiff, demo, tmp_path / "out", "gptq", "--data", data, "--samples", 8,
                       "--eval-samples", 4, "--sequence-length", 128, "--threads", 1,
                       "--ignore", "re:.*layers\\.[2-5]\\.")  # a dense layer and one of experts
    kl, worst, agreement, before, after = table_row(printed)[:5]
    assert 0 < kl <= worst and agreement > 90 and abs(after / before - 1) < 0.1
    config = json.loads((tmp_path / "out/config.json").read_text())["quantization_config"]
    assert config["quant_method"] == "gptq" and config["group_size"] == 128
    assert (tmp_path / "out/tokenizer.json").exists()
    assert "gptq" in skiff.ok("inspect", tmp_path / "out")
    ask = ["--prompt", "What is 27 + 45?", "--temperature", 0, "--max-tokens", 16]
    answers = [json.loads(skiff.ok("predict", m, *ask))["output"] for m in (demo, tmp_path / "out")]
    assert answers[0] == answers[1]


def test_what_the_model_writes_itself_is_the_same_each_time(skiff, shared, tmp_path):
    model = shared / "data/models/stories260K-hf"
    if not model.is_dir():
        pytest.skip(f"no model at {model}")
    files = []
    for threads in (1, 2):
        out = tmp_path / str(threads)
        quantize(skiff, model, out, "awq", "--layout", "compressed-tensors", "--samples", 6,
                 "--eval-samples", 2, "--sequence-length", 96, "--threads", threads, "--seed", 7)
        files.append((out / "model.safetensors").read_bytes())
    assert files[0] == files[1]


def test_a_signal_leaves_nothing_behind(skiff, demo, data, tmp_path):
    command = [skiff.binary, "quantize", demo, "--to", "gptq", "--out", tmp_path / "out/",
               "--data", data, "--threads", "1"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as running:
        while not list(tmp_path.glob(f".out.{running.pid}.partial/data-*")):
            assert running.poll() is None
            time.sleep(0.01)
        running.send_signal(signal.SIGINT)
        assert running.wait(20) == 128 + signal.SIGINT
        assert b"is removed" in running.stderr.read()
    assert [path.name for path in tmp_path.iterdir()] == ["data.jsonl"]


def test_refusals_name_what_is_wrong(skiff, demo, data, tmp_path):
    assert "--to" in skiff.refused("quantize", demo, "--out", tmp_path / "a")
    assert "--out" in skiff.refused("quantize", demo, "--to", "fp8")
    assert "w3a16" in skiff.refused("quantize", demo, "--to", "w3a16", "--out", tmp_path / "a")
    assert "exists already" in skiff.refused("quantize", demo, "--to", "fp8", "--out", tmp_path)
    for to, *flag in (("fp8", "--group-size", 64), ("w4a8", "--damping", 0.1), ("w4a16", "--act-order"),
                      ("w8a16", "--min-expert-tokens", 8)):
        said = skiff.refused("quantize", demo, "--to", to, "--out", tmp_path / "a", *flag)
        assert flag[0] in said and f"--to {to}" in said and "leave it out" in said
    assert "--shift" in skiff.refused("quantize", demo, "--to", "a8w8", "--shift", "--out", tmp_path / "a")
    assert "a8w8" in skiff.refused("quantize", demo, "--to", "gptq", "--shift", "--out", tmp_path / "a")
    assert "Ernie4_5_Moe" in skiff.refused("quantize", demo, "--to", "a8w8", "--layout", "paddlenlp",
                                           "--out", tmp_path / "a")
    bad = tmp_path / "bad.jsonl"
    bad.write_text('{"words": 1}\n')
    assert "line 1" in skiff.refused("quantize", demo, "--to", "fp8", "--out", tmp_path / "a",
                                     "--data", bad)
    bad.write_text('{"ids": [1, 2, 999999]}\n' * 2)
    assert "999999" in skiff.refused("quantize", demo, "--to", "fp8", "--out", tmp_path / "a",
                                     "--data", bad)
    assert not (tmp_path / "a").exists()
    root = demo.parents[1]
    assert "quantized already" in skiff.refused("quantize", root / "tests/quantized/gptq", "--to",
                                                "fp8", "--out", tmp_path / "a")


def test_paddlenlps_tables_lie_beside_the_tensors(skiff, demo, tmp_path):
    model = demo.parents[1] / "tests/golden/llama"
    data = tmp_path / "ids.jsonl"
    data.write_text("".join(json.dumps({"ids": [(i * k) % 112 for i in range(64)]}) + "\n" for k in (5, 7, 11)))
    out = tmp_path / "out"
    quantize(skiff, model, out, "a8w8", "--layout", "paddlenlp", "--data", data, "--kv-cache-dtype", "int8")
    weights, inputs, cache = (json.loads((out / f"{name}_scales.json").read_text())
                              for name in ("weight", "act", "cachekv"))
    layer = "llama.layers.0.self_attn"
    assert len(weights[f"{layer}.k_proj.weight_quanter"]) == 16
    assert inputs[f"{layer}.k_proj.activation_quanter"] == inputs[f"{layer}.q_proj.activation_quanter"] > 0
    keys = cache[f"{layer}.cachek_matmul.activation_quanter"]
    assert len(keys) == 4 and keys[0] == keys[1] != keys[2] == keys[3]  # two heads share one
    quantization = json.loads((out / "config.json").read_text())["quantization_config"]
    assert quantization["quant_type"] == "a8w8c8" and quantization["shift"] is False
    assert "a8w8" in skiff.ok("inspect", out)
    ask = ["--prompt-token-ids", "5,17,99,3", "--max-tokens", 4, "--kv-cache-dtype", "int8", "--dtype", "float32"]
    skiff.ok("predict", out, *ask)
    del weights[f"{layer}.k_proj.weight_quanter"]
    (out / "weight_scales.json").write_text(json.dumps(weights))
    assert f"{layer}.k_proj.weight_quanter" in skiff.refused("predict", out, *ask)


GROUPS, ZEROS = ["--group-size", "-1"], ["--symmetric", "false"]


# How transformers gets the weights (tools/quantized_checkpoints/in_transformers.py): it loads the
# folder, or only with dequantize=True, or can no more than compute with what compressed-tensors
# unpacks. Versions that do it more directly are welcome.
@pytest.mark.parametrize("model,to,flags,way", [
    ("llama", "w4a16", GROUPS, "folder"), ("llama", "w4a16", GROUPS + ZEROS, "dequantize"),
    ("llama", "gptq", ["--group-size", "32"], "folder"), ("llama", "awq", GROUPS, "dequantize"),
    ("llama", "w8a16", [], "folder"), ("llama", "a8w8", [], "folder"), ("llama", "a8w8", ["--shift"], "folder"),
    ("llama", "w4a8", GROUPS, "folder"), ("llama", "fp8", [], "folder"), ("llama", "fp8-block", [], "dequantize"),
    ("qwen3_moe", "gptq", GROUPS, "folder"), ("qwen3_moe", "fp8", [], "folder"),
    ("ernie45_moe", "awq", GROUPS, "unpacked"), ("ernie45_moe", "awq", GROUPS + ["--symmetric", "true"], "folder"),
    ("ernie45_moe", "a8w8", [], "unpacked"), ("ernie45_moe", "fp8", [], "folder")])
def test_transformers_computes_the_same(skiff, demo, model, to, flags, way):
    for package in ("torch", "transformers", "compressed_tensors"):
        pytest.importorskip(package, reason="see tools/quantized_checkpoints/requirements.txt")
    root = demo.parents[1]
    sys.path.append(str(root / "tools/quantized_checkpoints"))
    import in_transformers
    row = in_transformers.compare(skiff.binary, root / "tests/golden" / model, to, flags)
    ways = in_transformers.WAYS
    assert ways.index(row["way"]) <= ways.index(way), row["why"]
    assert row["difference"] <= row["bound"] < 1e-3 * row["largest"]
