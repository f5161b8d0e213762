"""Greedy continuations of stories260K over HTTP, token for token as llama2.c's run.c gives them."""
import json

import pytest


def cases(folder):
    return json.loads((folder / "expected_greedy.json").read_text())["cases"]


def continuation(case):
    return case["all_ids"][len(case["prompt_ids"]):]


def body(case, **options):
    return {"model": "stories260K-hf", "prompt": case["prompt_ids"], "temperature": 0,
            "max_tokens": len(continuation(case)),
            "extra_body": {"return_token_ids": True, "ignore_eos": True}, **options}


def test_one_at_a_time(stories):
    folder, server = stories
    with server.client() as client:
        for case in cases(folder):
            choice = client.completions.create(**body(case)).choices[0]
            assert choice.completion_token_ids == continuation(case), case["prompt"]


def test_all_in_one_request_streamed(stories):
    folder, server = stories
    all_cases = cases(folder)
    most = min(len(continuation(case)) for case in all_cases)
    prompts = [case["prompt_ids"] for case in all_cases]
    got = [[] for _ in prompts]
    with server.client() as client:
        for chunk in client.completions.create(**body(all_cases[0], prompt=prompts, max_tokens=most,
                                                      stream=True)):
            for choice in chunk.choices:
                got[choice.index] += choice.completion_token_ids
    for case, ids in zip(all_cases, got):
        assert ids == continuation(case)[:most], case["prompt"]


@pytest.mark.parametrize("count", [1, 5])
def test_best_logprobs_are_the_reference_logits(stories, count):
    """logprob = logit - logsumexp, both of which the reference gives for each position."""
    folder, server = stories
    case = cases(folder)[1]
    first = len(case["prompt_ids"]) - 1
    with server.client() as client:
        logprobs = client.completions.create(**body(case, max_tokens=8, logprobs=count)).choices[0].logprobs
    for i, value in enumerate(logprobs.token_logprobs):
        reference = case["top5"][first + i]
        best = reference["logits"][0] - reference["logsumexp"]
        # fp32 sums in another order, over five layers of width 64: parts in 1e5 of logits near 10.
        assert value == pytest.approx(best, abs=2e-3)
