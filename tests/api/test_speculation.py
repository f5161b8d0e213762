"""Speculative decoding over HTTP: the same replies, fewer steps, and counts of drafts."""
import concurrent.futures
import json

import openai
import pytest

from api_server import Server
from edge import demo_model

METHODS = ["ngram", "suffix", "mtp", "draft_model"]
FORM = ('Text: {} is {} years old and lives in {}. Fill in this JSON: '
        '{{"name": "", "age": 0, "city": ""}}')
QUESTIONS = [FORM.format("Lena", 31, "Rome"), FORM.format("Omar", 58, "Oslo"),
             "count to ten", "What is the capital of France?"]


def start(method, *flags, drafts=5):
    config = {"method": method, "num_speculative_tokens": drafts}
    if method == "ngram":
        config["min_ngram_size"] = 1
    if method == "draft_model":
        config["model"] = str(demo_model())  # it drafts for itself
    return Server(demo_model(), "--speculative-config", json.dumps(config), *flags)


@pytest.fixture(scope="module", params=METHODS)
def drafting(request):
    running = start(request.param)
    yield running
    running.close()


@pytest.fixture(scope="module")
def counted():
    """Where no cost is measured, how many drafts are checked depends on the texts alone."""
    running = start("ngram", "--device", "reference")
    yield running
    running.close()


def ask(client, text, **more):
    return client.chat.completions.create(
        model="demo", messages=[{"role": "user", "content": text}], **{"temperature": 0, **more})


OPTIONS = [
    {},
    {"temperature": 0.9, "seed": 7},
    {"temperature": 0.9, "seed": 7, "n": 3, "logprobs": True, "top_logprobs": 2},
    {"frequency_penalty": 0.6, "presence_penalty": 0.3, "temperature": 0.7, "seed": 3},
    {"logit_bias": {"34": 2}, "temperature": 0.7, "seed": 3},
    {"stop": [" is", "5"]},
    {"max_tokens": 5},
    {"extra_body": {"min_tokens": 20, "repetition_penalty": 1.2}, "max_tokens": 40},
    {"extra_body": {"bad_words": ["Rome", "seven"]}},
    {"extra_body": {"ignore_eos": True}, "max_tokens": 60},
    {"response_format": {"type": "json_object"}, "max_tokens": 60},
]


@pytest.mark.parametrize("options", OPTIONS, ids=range(len(OPTIONS)))
def test_replies_are_those_without_drafts(server, drafting, options):
    plain, drafts = server.client(), drafting.client()
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        wanted = list(pool.map(lambda text: ask(plain, text, **options), QUESTIONS))
        got = list(pool.map(lambda text: ask(drafts, text, **options), QUESTIONS))
    for a, b in zip(wanted, got):
        assert [c.model_dump() for c in a.choices] == [c.model_dump() for c in b.choices]
        assert a.usage.completion_tokens == b.usage.completion_tokens
        details = a.usage.completion_tokens_details
        assert details.accepted_prediction_tokens == details.rejected_prediction_tokens == 0


def test_usage_and_metrics_count_drafts(counted):
    names = ["num_drafts", "num_draft_tokens", "num_accepted_tokens"]
    before = [counted.metric(f"vllm:spec_decode_{name}_total") for name in names]
    steps = counted.metric("fastdeploy:steps_total")
    usage = ask(counted.client(), QUESTIONS[0]).usage
    details = usage.completion_tokens_details
    accepted, rejected = details.accepted_prediction_tokens, details.rejected_prediction_tokens
    assert accepted >= 2
    after = [counted.metric(f"fastdeploy:spec_decode_{name}_total") for name in names]
    checks, drafted, kept = (b - a for a, b in zip(before, after))
    assert (drafted, kept) == (accepted + rejected, accepted)
    assert 0 < checks < usage.completion_tokens
    assert counted.metric("fastdeploy:steps_total") - steps <= usage.completion_tokens - accepted + 1


def test_the_drafts_of_a_module_are_mostly_right():
    running = start("mtp", "--device", "reference", drafts=1)
    try:
        details = ask(running.client(), QUESTIONS[2]).usage.completion_tokens_details
        accepted, rejected = details.accepted_prediction_tokens, details.rejected_prediction_tokens
        assert accepted > 2 * rejected
        assert running.metric("fastdeploy:spec_decode_num_draft_tokens_total") == accepted + rejected
    finally:
        running.close()


def test_a_prediction_is_drafted_from(server, counted):
    text = "count to ten"
    wanted = ask(server.client(), text)
    said = wanted.choices[0].message.content
    without = ask(counted.client(), text)
    usage = ask(counted.client(), text, prediction={"type": "content", "content": said})
    assert usage.choices[0].message.content == without.choices[0].message.content == said
    accepted = usage.usage.completion_tokens_details.accepted_prediction_tokens
    assert accepted > without.usage.completion_tokens_details.accepted_prediction_tokens
    assert accepted >= usage.usage.completion_tokens / 2


def test_streams_have_several_tokens_in_a_piece(drafting):
    chunks = list(ask(drafting.client(), QUESTIONS[0], stream=True))
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert json.loads(text) == {"name": "Lena", "age": 31, "city": "Rome"}


def test_a_prediction_that_cannot_be_is_refused(drafting):
    for wrong in ("x", {"type": "content"}, {"type": "content", "content": "word " * 20000}):
        with pytest.raises(openai.BadRequestError) as caught:
            ask(drafting.client(), "hi", extra_body={"prediction": wrong})
        assert caught.value.body["param"] == "prediction"
