"""--logprobs-mode: what a server reports as log-probabilities of drawn tokens."""
import json
import math
import urllib.request

import pytest
from edge import Edge, demo_model

KEEP, TEMPERATURE = 3, 0.8
BODY = {"model": "demo", "max_tokens": 6, "seed": 4, "ignore_eos": True}
DRAWN = {"temperature": TEMPERATURE, "top_k": KEEP, "top_p": 1}
TEXT = {"prompt": "The capital of France", "logprobs": 5, "prompt_logprobs": 2,
        "return_tokens_as_token_ids": True}
CHAT = {"messages": [{"role": "user", "content": "What is 27 + 45?"}], "logprobs": True, "top_logprobs": 5}
MODES = ("raw_logprobs", "raw_logits", "processed_logprobs", "processed_logits")
# Values are float32 of magnitudes below 64, written in full: a few roundings of 2^-19.
CLOSE = 1e-4


def post(server, path, body):
    request = urllib.request.Request(server.url + path, json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=30) as response:
        return json.loads(response.read())["choices"][0]


@pytest.fixture(scope="module")
def replies():
    """What each mode reports of the same requests: drawn, greedy, and a chat."""
    out = {}
    for mode in MODES:
        running = Edge(demo_model(), "--logprobs-mode", mode)
        try:
            out[mode] = {
                "drawn": post(running, "/v1/completions", {**BODY, **DRAWN, **TEXT}),
                "greedy": post(running, "/v1/completions", {**BODY, **TEXT, "temperature": 0}),
                "chat": post(running, "/v1/chat/completions", {**BODY, **DRAWN, **CHAT})}
        finally:
            running.close()
    return out


def best(replies, mode, what="drawn"):
    """A dict from token to value for each position."""
    return replies[mode][what]["logprobs"]["top_logprobs"]


def test_the_tokens_are_the_same(replies):
    for what in ("drawn", "greedy"):
        assert len({replies[mode][what]["text"] for mode in MODES}) == 1
    assert len({replies[mode]["chat"]["message"]["content"] for mode in MODES}) == 1


def test_the_prompt_has_raw_ones_in_every_mode(replies):
    prompts = [replies[mode]["drawn"]["prompt_logprobs"] for mode in MODES]
    assert prompts[0] and all(prompt == prompts[0] for prompt in prompts)


def test_logits_are_what_is_normalized(replies):
    for raw, logits in zip(best(replies, "raw_logprobs"), best(replies, "raw_logits")):
        offsets = [logits[token] - value for token, value in raw.items()]
        assert len(offsets) >= 5 and max(offsets) - min(offsets) < CLOSE and offsets[0] > 0


def test_processed_ones_are_of_what_is_drawn_from(replies):
    for raw, logits, logprobs in zip(*(best(replies, mode) for mode in (
            "raw_logits", "processed_logits", "processed_logprobs"))):
        kept = [token for token, value in logprobs.items() if value > -9999]
        assert len(kept) == KEEP and all(logits[token] == -9999 for token in logprobs if token not in kept)
        assert sum(math.exp(logprobs[token]) for token in kept) == pytest.approx(1, abs=CLOSE)
        for token in kept:
            assert logits[token] == pytest.approx(raw[token] / TEMPERATURE, abs=CLOSE)


def test_greedy_ones_have_no_temperature(replies):
    for raw, processed in (MODES[0], MODES[2]), (MODES[1], MODES[3]):
        for mine, want in zip(best(replies, processed, "greedy"), best(replies, raw, "greedy")):
            assert mine == pytest.approx(want, abs=CLOSE)


def test_chats_report_the_same(replies):
    for entry in replies["processed_logprobs"]["chat"]["logprobs"]["content"]:
        values = [one["logprob"] for one in entry["top_logprobs"] if one["logprob"] > -9999]
        assert len(values) == KEEP and entry["logprob"] in values
        assert sum(map(math.exp, values)) == pytest.approx(1, abs=CLOSE)


# Rows of guesses are kept and shaped like those of the next token. Without measured costs, how many
# drafts are checked depends on the text alone.
def test_drafts_do_not_show(start_server):
    form = 'Text: Lena is 31 years old and lives in Rome. Fill in this JSON: {"name": "", "age": 0, "city": ""}'
    body = {**BODY, **CHAT, **DRAWN, "messages": [{"role": "user", "content": form}], "max_tokens": 24,
            "ignore_eos": False}
    drafts = json.dumps({"method": "ngram", "num_speculative_tokens": 4, "min_ngram_size": 1})
    plain, guessed = (start_server("--device", "reference", "--logprobs-mode", "processed_logits", *flags)
                      for flags in ([], ["--speculative-config", drafts]))
    assert post(plain, "/v1/chat/completions", body) == post(guessed, "/v1/chat/completions", body)
    assert guessed.metric("vllm:spec_decode_num_accepted_tokens_total") >= 2
