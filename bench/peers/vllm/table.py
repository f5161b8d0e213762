#!/usr/bin/env python3
"""Puts the figures of serve.sh or offline.sh side by side, as Markdown.

    table.py served OUT MODEL LOAD...
    table.py offline OUT MODEL BATCH...

A ratio above 1 says that Skiff is that many times better, whichever way the figure counts.
"""
import json
import os
import re
import sys

SERVED = [("time to first token", "ttft_ms", ("p50", "p90", "p99")), ("time per output token", "tpot_ms", ("p50", "p90", "p99")),
          ("between pieces", "itl_ms", ("p50", "p90", "p99")), ("whole request", "e2e_ms", ("p50", "p90", "p99"))]


def read(path):
    """The JSON of a file, or None where there is none."""
    try:
        with open(path) as file:
            return json.load(file)
    except (OSError, ValueError):
        return None


def ratio(better, worse):
    return f"{better / worse:.2f}" if better and worse else "–"


def number(value):
    if not value:
        return "–"
    return f"{value:,.0f}" if value >= 1000 else f"{value:.1f}"


def print_table(head, rows):
    print("| " + " | ".join(head) + " |")
    print("|" + "---|" * len(head))
    for row in rows:
        print("| " + " | ".join(row) + " |")


def counts(report):
    if report is None:
        return "–"
    text = f"{report['succeeded']} of {report['sent']}"
    if report["failed"] or report["refused"]:
        text += f" ({report['failed']} failed, {report['refused']} refused: {report['first_error']})"
    return text + (f", {report['reopened']} sent again" if report["reopened"] else "")


def served_rows(load, ours, theirs):
    def at(report, key, which=None):
        value = (report or {}).get(key)
        return value[which] if which and value else value

    yield [load, "requests answered", counts(ours), counts(theirs), ""]
    for name, key in ("requests/s", "requests_per_second"), ("output tokens/s", "output_tokens_per_second"):
        a, b = at(ours, key), at(theirs, key)
        yield [load, name, number(a), number(b), ratio(a, b)]
    for name, key, columns in SERVED:
        a, b = ([at(report, key, column) for column in columns] for report in (ours, theirs))
        yield [load, f"{name} {' / '.join(columns)}, ms", " / ".join(map(number, a)), " / ".join(map(number, b)),
               " / ".join(ratio(y, x) for x, y in zip(a, b))]


def print_agreement(out, model):
    ours, theirs = (read(os.path.join(out, f"{model}.{engine}.tokens.json")) for engine in ("skiff", "vllm"))
    if not ours or not theirs:
        return
    first = sum(a[0] == b[0] for a, b in zip(ours, theirs))
    pairs = [(x, y) for a, b in zip(ours, theirs) for x, y in zip(a, b)]
    print(f"\nGreedy tokens after {len(ours)} prompts: the first is the same for {first}, of all tokens "
          f"{sum(x == y for x, y in pairs)} of {len(pairs)} (dummy weights are different ones in each engine).")


def served(out, model, loads):
    rows = []
    for load in loads:
        reports = [read(os.path.join(out, f"{model}.{engine}.{load}.json")) for engine in ("skiff", "vllm")]
        rows += served_rows(load, *reports)
    print(f"\n### {model}, served\n")
    print_table(["load", "what", "Skiff", "vLLM", "ratio"], rows)
    print_agreement(out, model)


def skiff_latency(path):
    """Milliseconds to the first token and decoded tokens per second, as `skiff bench latency` prints them."""
    try:
        with open(path) as file:
            text = file.read()
    except OSError:
        return None, None
    first = re.search(r"^time to first +([\d.]+) ms", text, re.M)
    decode = re.search(r"^decode .*: ([\d.]+) tokens/s", text, re.M)
    return tuple(float(match[1]) if match else None for match in (first, decode))


def offline(out, model, batches):
    theirs = {}
    try:
        with open(os.path.join(out, f"{model}.vllm.jsonl")) as file:
            for line in file:
                if line.startswith("{"):
                    figure = json.loads(line)
                    theirs[figure["metric"]] = figure
    except OSError:
        pass
    rows = []
    for batch in batches:
        a, b = skiff_latency(os.path.join(out, f"{model}.skiff.{batch}.log"))[1], theirs.get(f"decode_b{batch}", {}).get("tok_s")
        rows.append([f"decode, batch {batch}, tokens/s", number(a), number(b), ratio(a, b)])
    a, b = skiff_latency(os.path.join(out, f"{model}.skiff.prompt.log"))[0], theirs.get("prefill_8192", {}).get("ms")
    rows.append(["first token of a prompt of 8,192, ms", number(a), number(b), ratio(b, a)])
    print(f"\n### {model}, offline\n")
    print_table(["what", "Skiff", "vLLM", "ratio"], rows)


if __name__ == "__main__":
    if len(sys.argv) < 5 or sys.argv[1] not in ("served", "offline"):
        sys.exit(__doc__)
    {"served": served, "offline": offline}[sys.argv[1]](sys.argv[2], sys.argv[3], sys.argv[4:])
