"""Attacks by bodies: lists, large replies, normalisation, odd JSON, and what clients rely on."""
import json
import os
import time

from attack import Attack
from target import MODEL, chat

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
MARKS = {"one mark": "\u0301", "two marks": "\u0301\u0323", "three marks": "\u0315\u0300\u0334"}


def nfc_model(folder):
    """The demo model with a tokenizer that normalises, as Qwen's does."""
    model = folder / "nfc"
    if not model.exists():
        model.mkdir()
        for file in MODEL.iterdir():
            if file.is_file() and file.name != "tokenizer.json":
                os.symlink(file, model / file.name)
        tokenizer = json.loads((MODEL / "tokenizer.json").read_text())
        tokenizer["normalizer"] = {"type": "NFC"}
        (model / "tokenizer.json").write_text(json.dumps(tokenizer))
    return model


def nfc(scene):
    for name, marks in MARKS.items():
        # Marks of one combining class first, then those of a lower one: each has to pass all before.
        count = scene.count(40000, 20000) // len(marks)
        text = "a" + "".join(mark * count for mark in marks)
        for form, value in (("sorted late", text), ("mixed", "a" + marks * count)):
            if scene.left():
                scene.job(f"{name}, {form}", "/tokenize", {"prompt": value})
    for path, body in ((TEXT, {"prompt": "a" + "\u0301" * 20000 + "\u0323" * 20000, "max_tokens": 1}),
                       (CHAT, chat("\u0301" * 20000 + "\u0323" * 20000)),
                       (TEXT, {"prompt": "a", "max_tokens": 1,
                               "stop": ["\u0301" * 250 + "\u0323" * 250] * 64}),
                       (TEXT, {"prompt": "a", "max_tokens": 1,
                               "bad_words": ["\u0301" * 500 + "\u0323" * 500] * 64})):
        if scene.left():
            scene.job(f"marks at {path}", path, body)


def lists(scene):
    """Lists that count for the whole call, times many prompts."""
    prompts = scene.count(2048, 1024)
    bodies = {
        "stop": {"stop": [f"{i:04d}" + "ab" * 500 for i in range(64)]},
        "stop_token_ids": {"stop_token_ids": list(range(1024))},
        "bad_words": {"bad_words": [f"word {i}" for i in range(1024)]},
        "bad_words_token_ids": {"bad_words_token_ids": [[i, i + 1, i + 2] for i in range(1000)]},
        "logit_bias": {"logit_bias": {str(i): 1 for i in range(4096)}},
    }
    for name, field in bodies.items():
        body = json.dumps({"prompt": ["a"] * prompts, "max_tokens": 1, **field}).encode()

        def leave(_, body=body):
            with scene.target.connect(3) as plain:
                plain.sendall(scene.target.post_bytes(TEXT, body))
                time.sleep(scene.count(1.5, 0.7))  # taken in, and then its client leaves
        scene.together(leave, scene.count(4, 2))
        if scene.stand_up():
            scene.wrong(f"{name}: crash")
        scene.note(f"{name} {scene.target.peak():.0f} MiB")
        if not scene.left():
            break


def product(n, tokens):
    """n times tokens times log-probabilities: refused, or written without holding up the others."""
    def run(scene):
        body = chat("Tell me a story.", n=n, max_tokens=tokens, logprobs=True, top_logprobs=20,
                    ignore_eos=True)
        reply = scene.target.post(CHAT, body, scene.left())
        scene.stand_up()
        scene.expect(reply.status in (200, 400), f"n={n}: {reply.status or 'no answer'}")
        scene.note(f"{reply.status}, {len(reply.body) / 1e6:.0f} MB after {reply.seconds:.1f} s")
    return run


def prompt_logprobs(scene):
    body = {"prompt": [5] * 2000, "max_tokens": 1, "prompt_logprobs": -1}
    reply = scene.target.post(TEXT, body, min(30, scene.left()))
    scene.stand_up()
    scene.expect(reply.status in (200, 400), f"prompt_logprobs -1: {reply.status or 'no answer'}")
    scene.note(f"{reply.status}, {len(reply.body) / 1e6:.0f} MB after {reply.seconds:.1f} s")


def longest_token():
    vocabulary = json.loads((MODEL / "tokenizer.json").read_text())["model"]["vocab"]
    return max(vocabulary.items(), key=lambda entry: len(entry[0]))[1]


def unread(scene):
    """Large replies that are no streams, and that nobody reads."""
    body = json.dumps({"tokens": [longest_token()] * scene.count(1500000, 500000)}).encode()
    open_ones = []
    for _ in range(scene.count(20, 8)):
        plain = scene.target.connect(10, window=4096)
        try:
            plain.sendall(scene.target.post_bytes("/detokenize", body))
            open_ones.append(plain)
        except OSError:
            plain.close()
        if not scene.left():
            break
    time.sleep(min(5, scene.left()))
    scene.note(f"{len(open_ones)} unread, {scene.target.peak():.0f} MiB")
    for plain in open_ones:
        plain.close()


def left_bodies(scene):
    """Bodies of 16 MB whose clients leave once they are sent."""
    body = b'{"prompt": "' + b"a b c d " * 2000000 + b'"}'

    def leave(_):
        with scene.target.connect(5) as plain:
            plain.sendall(scene.target.post_bytes("/tokenize", body))
    scene.together(leave, scene.count(120, 16), workers=4)
    scene.note(f"{scene.target.peak():.0f} MiB")


def ordinary(scene):
    """Honest heavy jobs of eight clients, while somebody asks for the list of models."""
    text = json.dumps({"prompt": "one two three four " * 60000}).encode()
    ids = json.dumps({"tokens": list(range(100, 4000)) * 300}).encode()

    def work(i):
        while scene.left() > 2:
            if i % 2:
                scene.target.post("/tokenize", text, 30)
            else:
                scene.target.post("/detokenize", ids, 30)

    def ask(_):
        took = []
        time.sleep(1)
        while scene.left() > 3:
            for path in ("/v1/models", "/metrics"):
                took.append(scene.target.fetch(path, 20).seconds)
            time.sleep(0.05)
        return sorted(took)
    scene.end = time.monotonic() + scene.count(10, 5)
    took = scene.together(lambda i: ask(i) if i == 0 else work(i), 9)[0] or [99.0]
    p50 = took[len(took) // 2]
    scene.note(f"/v1/models and /metrics p50 {p50 * 1e3:.0f} ms, worst {took[-1] * 1e3:.0f}")
    scene.expect(p50 < 0.1, f"/v1/models and /metrics wait behind heavy work: p50 {p50:.2f} s")


def clients(scene):
    """What openai's and other clients rely on."""
    post = scene.target.post
    streamed = {"stream": True, "max_tokens": 2}
    def events(**fields):
        reply = post(CHAT, {**chat(), **streamed, **fields})
        return [line[6:] for line in reply.body.decode().splitlines() if line.startswith("data: ")]
    for options in ({}, {"include_obfuscation": False}):
        lines = events(stream_options=options)
        empty = [line for line in lines if line != "[DONE]" and not json.loads(line)["choices"]]
        scene.expect(not empty, f"stream_options {options} switches include_usage on")
    with_usage = events(stream_options={"include_usage": True})
    scene.expect(len(with_usage) > 1 and not json.loads(with_usage[-2])["choices"],
                 "include_usage has no event of its own")
    lone = post(CHAT, b'{"messages":[{"role":"user","content":"a\\ud800b"}],"max_tokens":1}')
    scene.expect(lone.status == 200, f"a lone surrogate: {lone.status}")
    same = [post("/tokenize", body).json().get("tokens")
            for body in (b'{"prompt":"a\\ud800b"}', b'{"prompt":"a\\ufffdb"}')]
    scene.expect(same[0] and same[0] == same[1], "a lone surrogate is not U+FFFD")
    role = post(CHAT, {"messages": [{"role": "wizard", "content": "a"}], "max_tokens": 1})
    scene.expect(role.status == 400, f"an unknown role: {role.status}")
    ids = post(CHAT, chat(return_token_ids=True)).json()
    scene.expect("token_ids" in ids["choices"][0] and "prompt_token_ids" in ids,
                 "return_token_ids has not vLLM's shape")
    late = events(max_tokens=2000, timeout=0.2, ignore_eos=True)
    scene.expect(late and late[-1] == "[DONE]", "an error event is not followed by [DONE]")
    scene.expect(len(late) > 1 and "error" in json.loads(late[-2]), "a timeout leaves no error event")
    tiny = post(CHAT, chat(repetition_penalty=1e-6))
    scene.expect(tiny.status == 200, f"repetition_penalty 1e-6: {tiny.status}")


ATTACKS = [
    Attack("t06", "combining marks", nfc, model=nfc_model, peak=512, quick=True),
    # Its prompts are honest work as well, thousands in one queue: others wait their turn.
    Attack("t08", "lists times prompts", lists, peak=512, quick=True, judge_clients=False),
    Attack("t09", "n times tokens times logprobs", product(128, 1900), peak=1024),
    Attack("t09b", "one large reply", product(6, 1900), peak=512),
    Attack("t09c", "prompt_logprobs of everything", prompt_logprobs, ("--max-logprobs", "-1"),
           peak=1024),
    Attack("t12", "unread replies", unread, peak=1024),
    Attack("t24", "bodies whose clients leave", left_bodies, peak=1280),
    Attack("t26", "honest heavy jobs", ordinary, peak=1024, judge_clients=False),
    Attack("t22", "what clients rely on", clients, quick=True),
]
