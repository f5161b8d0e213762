"""Accuracy on heldout.jsonl: exact match of the greedy reply, per skill.

    python3 evaluate.py --url http://127.0.0.1:8000/v1 [--model NAME]    a served model (standard library only)
    python3 evaluate.py --torch                                          the files in models/demo, with PyTorch
"""
import argparse
import json
import sys
import urllib.request
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import chat

HELDOUT = Path(__file__).parent / "heldout.jsonl"


def cases(limit=None):
    with open(HELDOUT, encoding="utf-8") as f:
        lines = [json.loads(line) for line in f]
    return lines if limit is None else lines[::max(1, len(lines) // limit)]


def right(case, reply):
    """Exact match; a tool call counts by its name and arguments, a reply by what follows its thoughts."""
    reply = chat.strip_think(reply).strip()
    if "<tool_call>" in case["answer"]:
        return chat.parse_call(reply) == chat.parse_call(case["answer"])
    return reply == case["answer"]


def thought_as_asked(case, reply):
    return "</think>" in reply or not case.get("thinking")


def report(results, file=sys.stdout):
    """Prints the table and returns {"accuracy": ..., "skills": {...}}."""
    per = defaultdict(list)
    for case, ok, _ in results:
        per[case["skill"]].append(ok)
    skills = {k: round(sum(v) / len(v), 4) for k, v in per.items()}
    accuracy = round(sum(ok for _, ok, _ in results) / len(results), 4)
    for k, v in per.items():
        print(f"{k:12s} {sum(v):4d} / {len(v):4d}  {100 * skills[k]:6.2f} %", file=file)
    print(f"{'all':12s} {sum(ok for _, ok, _ in results):4d} / {len(results):4d}  {100 * accuracy:6.2f} %", file=file)
    wrong = [(c, r) for c, ok, r in results if not ok]
    for c, r in wrong[:40]:
        print(f"  [{c['skill']}] {c['messages'][-1]['content']!r}\n      wanted {c['answer']!r}\n      got    {r!r}", file=file)
    return {"accuracy": accuracy, "cases": len(results), "skills": skills}


# ---------------------------------------------------------------- over HTTP


def to_openai(messages):
    """Calls in the history as tool_calls, the way an API client sends them."""
    out, last = [], 0
    for i, m in enumerate(messages):
        call = chat.parse_call(m["content"]) if m["role"] == "assistant" else None
        if call:
            last = i
            function = {"name": call[0], "arguments": json.dumps(call[1], ensure_ascii=False)}
            out.append({"role": "assistant", "content": "", "tool_calls": [{"id": f"call_{i}", "type": "function", "function": function}]})
        elif m["role"] == "tool":
            out.append({**m, "tool_call_id": f"call_{last}"})
        else:
            out.append(m)
    return out


def ask(url, model, case):
    body = {"model": model, "messages": to_openai(case["messages"]), "temperature": 0, "max_tokens": 256}
    if "tools" in case:
        body["tools"] = case["tools"]
    if case.get("thinking"):
        body["chat_template_kwargs"] = {"enable_thinking": True}
    request = urllib.request.Request(url.rstrip("/") + "/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=120) as f:
        m = json.load(f)["choices"][0]["message"]
    thoughts = f"<think>{m['reasoning_content']}</think>\n\n" if m.get("reasoning_content") else ""
    text = m.get("content") or ""
    if m.get("tool_calls"):
        fn = m["tool_calls"][0]["function"]
        text += '<tool_call>{"name": ' + json.dumps(fn["name"]) + ', "arguments": ' + fn["arguments"] + "}</tool_call>"
    return thoughts + text


def run_url(url, model, limit, workers):
    if model is None:
        with urllib.request.urlopen(url.rstrip("/") + "/models", timeout=30) as f:
            model = json.load(f)["data"][0]["id"]
    held = cases(limit)
    with ThreadPoolExecutor(workers) as pool:
        replies = list(pool.map(lambda c: ask(url, model, c), held))
    return report([(c, right(c, r), r) for c, r in zip(held, replies)])


# ---------------------------------------------------------------- with PyTorch


def prompt_ids(case):
    import tokenizer
    return tokenizer.load().encode(chat.prompt(case["messages"], case.get("tools"), case.get("thinking", False)), add_special_tokens=False).ids


def run_torch(model, layer, limit=None, batch=64):
    """Greedy replies of the shipped weights in fp32; also how often the draft layer agrees."""
    import mtp
    import tokenizer
    from model import generate
    held = sorted(cases(limit), key=lambda c: len(prompt_ids(c)))
    samples = []
    for i in range(0, len(held), batch):
        prompts = [prompt_ids(c) for c in held[i:i + batch]]
        samples += list(zip(prompts, generate(model, prompts)))
    replies = [tokenizer.load().decode(reply, skip_special_tokens=False) for _, reply in samples]
    order = {s: i for i, s in enumerate(dict.fromkeys(c["skill"] for c in cases()))}
    results = sorted(((c, right(c, r), r) for c, r in zip(held, replies)), key=lambda x: order[x[0]["skill"]])
    out = report(results)
    out["thought_when_asked"] = round(sum(thought_as_asked(c, r) for c, _, r in results) / len(results), 4)
    if layer is not None:
        out["mtp_agreement"] = round(mtp.agreement(model, layer, samples), 4)
        print(f"draft layer agrees with the model's own choice: {100 * out['mtp_agreement']:.2f} %")
    return out


def write_expected(model, path=None):
    """A few greedy replies as token ids (fp32 arithmetic on the shipped weights), for engine tests."""
    import tokenizer
    from model import generate
    lines = []
    for c in cases()[::68]:
        ids = prompt_ids(c)
        reply = generate(model, [ids])[0]
        lines.append({"skill": c["skill"], "prompt_ids": ids, "output_ids": reply, "text": tokenizer.load().decode(reply, skip_special_tokens=False)})
    path = path or tokenizer.MODEL_DIR / "expected_greedy.json"
    path.write_text("[\n" + ",\n".join(json.dumps(x, ensure_ascii=False) for x in lines) + "\n]\n", encoding="utf-8")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--url", help="base of an OpenAI-style API, such as http://127.0.0.1:8000/v1")
    p.add_argument("--model", help="model name to send (default: the first that the server lists)")
    p.add_argument("--torch", action="store_true", help="evaluate models/demo with PyTorch")
    p.add_argument("--limit", type=int, help="only about this many cases")
    p.add_argument("--workers", type=int, default=8, help="requests at a time")
    p.add_argument("--device", default="cpu")
    a = p.parse_args()
    if a.url:
        result = run_url(a.url, a.model, a.limit, a.workers)
    elif a.torch:
        import export
        result = run_torch(*export.load(device=a.device), a.limit)
    else:
        p.error("give --url or --torch")
    print(json.dumps(result))
    sys.exit(result["accuracy"] < 0.9)


if __name__ == "__main__":
    main()
