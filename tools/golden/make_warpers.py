"""tests/sampling/warpers.json: what transformers' logits warpers leave of rows of logits.

Run with torch and transformers:  python tools/golden/make_warpers.py
The warpers stand in the order that vLLM and FastDeploy use: temperature, min_p, top_k, top_p.
"""
import json
import pathlib

import torch
from transformers.generation.logits_process import (
    LogitsProcessorList,
    MinPLogitsWarper,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

VOCAB = 24
OUT = pathlib.Path(__file__).parents[2] / "tests/sampling/warpers.json"


def warpers(case):
    out = LogitsProcessorList([TemperatureLogitsWarper(case["temperature"])])
    if case["min_p"] > 0:
        out.append(MinPLogitsWarper(case["min_p"]))
    if case["top_k"] > 0:
        out.append(TopKLogitsWarper(case["top_k"]))
    if case["top_p"] < 1:
        out.append(TopPLogitsWarper(case["top_p"]))
    return out


def kept(logits, case):
    """Tokens, most likely first. Their probabilities follow from the logits."""
    scores = warpers(case)(torch.zeros(1, 1, dtype=torch.long), torch.tensor([logits]))[0]
    order = torch.argsort(-scores, stable=True)
    return [int(i) for i in order if scores[i] > -torch.inf]


def main():
    generator = torch.Generator().manual_seed(12)
    four = [float(torch.log(torch.tensor(x))) for x in (0.1, 0.4, 0.2, 0.3)]
    rows = [four] + [
        (torch.randn(VOCAB, generator=generator) * scale).tolist() for scale in (0.7, 2.0, 3.5)
    ]
    grid = [
        {"temperature": t, "min_p": m, "top_k": k, "top_p": p}
        for t in (0.7, 1.0, 1.6)
        for m in (0.0, 0.03, 0.2)
        for k in (0, 2, 5, 12)
        for p in (0.3, 0.55, 0.8, 0.95, 1.0)
    ]
    cases = [
        dict(case, row=r, kept=kept(row, case)) for r, row in enumerate(rows) for case in grid
    ]
    OUT.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"rows": rows, "cases": cases}, separators=(",", ":"))
    OUT.write_text(text.replace("},{", "},\n{") + "\n")
    print(f"{len(cases)} cases, {OUT.stat().st_size} bytes")


if __name__ == "__main__":
    main()
