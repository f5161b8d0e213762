"""`skiff quantize`: folders that the program and, where it is installed, transformers can use."""
import json
import signal
import subprocess
import time

import npy
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
    for to, *flag in (("fp8", "--group-size", 64), ("awq", "--damping", 0.1), ("w4a16", "--act-order"),
                      ("w8a16", "--min-expert-tokens", 8)):
        said = skiff.refused("quantize", demo, "--to", to, "--out", tmp_path / "a", *flag)
        assert flag[0] in said and f"--to {to}" in said and "leave it out" in said
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


@pytest.mark.parametrize("to", ["w4a16", "gptq", "w8a16"])
def test_transformers_computes_the_same(skiff, demo, tmp_path, to):
    """Weights have the same values there, so logits in float32 differ by rounding alone."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("compressed_tensors")
    model = demo.parents[1] / "tests/golden/llama"
    ids = [5, 17, 99, 3, 42, 8, 64, 23]
    data = tmp_path / "ids.jsonl"
    data.write_text(json.dumps({"ids": ids * 8}) + "\n" + json.dumps({"ids": ids[::-1] * 8}) + "\n")
    out = tmp_path / "out"
    quantize(skiff, model, out, to, "--layout", "compressed-tensors", "--group-size", -1,
             "--data", data)
    dump = tmp_path / "logits.npy"
    skiff.ok("predict", out, "--prompt-token-ids", ",".join(map(str, ids)), "--max-tokens", 1,
             "--dtype", "float32", "--dump-logits", dump)
    theirs = transformers.AutoModelForCausalLM.from_pretrained(out, dtype=torch.float32)
    with torch.no_grad():
        logits = theirs(torch.tensor([ids])).logits[0].tolist()
    for mine, want in zip(npy.read(dump), logits):
        assert max(abs(a - b) for a, b in zip(mine, want)) < 1e-3
