"""Prompts that share beginnings, and the greedy answer that each one gets alone."""
import json
import random
import urllib.request

VOCAB, FIRST = 4096, 16  # those of models/demo; tokens before FIRST are special


def greedy(prompt, max_tokens):
    return {"prompt": prompt, "max_tokens": max_tokens, "temperature": 0, "ignore_eos": True,
            "return_token_ids": True}


def make_requests(seed, count, context):
    """Bodies of /v1/completions: conversations that go on, others that begin like them, and
    strangers. All greedy, of a fixed length."""
    rng = random.Random(seed)
    token = lambda: rng.randrange(FIRST, VOCAB)
    stems = [[token() for _ in range(rng.randrange(40, context // 2))] for _ in range(6)]
    bodies = []
    for _ in range(count):
        stem = rng.choice(stems)
        shared = stem[:rng.choice((0, len(stem) // 2, len(stem), len(stem)))]
        prompt = shared + [token() for _ in range(rng.randrange(1, 40))]
        most = min(96, context - len(prompt) - 1)
        bodies.append(greedy(prompt, rng.randrange(4, most)))
    return bodies


def long_requests(seed, count, context):
    """The same with short prompts and answers as long as the context allows: streams that are
    surely under way when something happens."""
    rng = random.Random(~seed)
    prompts = [[rng.randrange(FIRST, VOCAB) for _ in range(8 + i)] for i in range(count)]
    return [greedy(prompt, context - len(prompt) - 1) for prompt in prompts]


def answers_alone(port, bodies, timeout=60):
    """The tokens of each, one request at a time."""
    out = []
    for body in bodies:
        request = urllib.request.Request(f"http://127.0.0.1:{port}/v1/completions",
                                         json.dumps(body).encode(),
                                         {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=timeout) as reply:
            choice = json.load(reply)["choices"][0]
        out.append(choice["completion_token_ids"])
        assert len(out[-1]) == body["max_tokens"]
    return out


def malformed(rng):
    """A body that must be refused."""
    good = {"prompt": "a", "max_tokens": 2}
    return rng.choice([
        b"", b"{", b"[]", b"null", b"\xff\xfe{}", b'{"prompt": "a", "max_tokens": 2',
        b'{"prompt": ' + b"[" * 20000 + b"]" * 20000 + b"}",
        *(json.dumps({**good, **bad}).encode() for bad in (
            {"prompt": 7}, {"prompt": []}, {"prompt": [VOCAB]}, {"prompt": [-1]},
            {"prompt": [5] * 100_000}, {"max_tokens": -1}, {"max_tokens": "x"}, {"n": 0},
            {"n": 10 ** 30}, {"temperature": "hot"}, {"temperature": 1e300}, {"top_p": 2},
            {"stop": [1, 2]}, {"logit_bias": {"x": "y"}}, {"stream": "perhaps"},
            {"model": "another"}, {"cache_salt": 5}))])


def garbage(rng):
    """Bytes that are no request, or end too early."""
    return rng.choice([
        rng.randbytes(rng.randrange(1, 4000)),
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + rng.randbytes(500),  # a TLS greeting
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"\r\n" * 2000,
        b"GET /" + b"a" * 100_000, b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
        b"Content-Length: 99999999999999999999\r\n\r\n",
        b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"zz\r\n" + rng.randbytes(50), b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
        b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
        b"GET /health HTTP/1.1\nHost: localhost\n\n", b"\0" * 3000])
