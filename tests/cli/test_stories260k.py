"""A real trained model against figures made by another implementation (llama2.c)."""
import json
import math

import npy
import pytest


@pytest.fixture(scope="module")
def model(shared):
    path = shared / "data/models/stories260K-hf"
    if not path.is_dir():
        pytest.skip(f"no model at {path}")
    return path


@pytest.fixture(scope="module")
def cases(model):
    return json.loads((model / "expected_greedy.json").read_text())["cases"]


@pytest.mark.parametrize("device", ["cpu", "reference"])
def test_greedy_and_logits(skiff, model, cases, device, tmp_path):
    """Every continuation token for token, and the top five logits of every position."""
    for i, case in enumerate(cases):
        prompt, every = case["prompt_ids"], case["all_ids"]
        wanted = every[len(prompt):]
        out = skiff.ok("predict", model, "--prompt-token-ids", ",".join(map(str, prompt)),
                       "--max-tokens", max(len(wanted), 1), "--temperature", 0,
                       "--dtype", "float32", "--device", device)
        got = json.loads(out)["token_ids"]
        got = got[:got.index(1)] if 1 in got else got  # llama2.c stops at BOS and drops it
        assert got == wanted, case["prompt"]

        dump = tmp_path / f"{i}.npy"
        skiff.ok("predict", model, "--prompt-token-ids", ",".join(map(str, every)),
                 "--max-tokens", 1, "--dtype", "float32", "--device", device,
                 "--dump-logits", dump)
        rows = npy.read(dump)
        for position, top in enumerate(case["top5"]):
            for token, logit in zip(top["ids"], top["logits"]):
                assert abs(rows[position][token] - logit) < 1e-3


def test_perplexity(skiff, model, shared, tmp_path):
    """The sum of negative log-likelihoods, as expected_perplexity.json says how to compute it."""
    for case in json.loads((model / "expected_perplexity.json").read_text())["cases"]:
        text = case["text"]
        if text is None:
            source = shared / "data" / case["name"].split(",")[0]
            if not source.exists():
                continue
            text = source.read_text(encoding="utf-8")[:8000]
        ids = json.loads(skiff.ok("tokenize", model, "--no-special", stdin=json.dumps(text) + "\n"))
        assert len(ids) == case["tokens"]
        total = 0.0
        for start in range(0, len(ids), case["window"]):
            window = ids[start:start + case["window"]]
            dump = tmp_path / "window.npy"
            skiff.ok("predict", model, "--prompt-token-ids", ",".join(map(str, [1] + window[:-1])),
                     "--max-tokens", 1, "--dtype", "float32", "--dump-logits", dump)
            for row, token in zip(npy.read(dump), window):
                top = max(row)
                total += top + math.log(sum(math.exp(x - top) for x in row)) - row[token]
        # Figures are printed with six decimals; float32 logits of both sides differ by ~1e-5.
        assert total == pytest.approx(case["nll_sum"], rel=1e-4)
        assert math.exp(total / len(ids)) == pytest.approx(case["perplexity"], rel=1e-3)
