"""One model on two ranks over HTTP, whose experts are cut by width or dealt out whole: replies do not
depend on company, caches or drafts."""
import concurrent.futures
import json

import pytest

from api_server import Server
from edge import demo_model

RANKS = ["--device", "cpu", "--tensor-parallel-size", "2", "--enable-logprob"]
QUESTIONS = ["What is the capital of France?", "count to ten", "What is 27 + 45?",
             "Translate to Chinese: good morning", "What is the capital of Japan?"]


@pytest.fixture(scope="module", params=[[], ["--enable-expert-parallel"]],
                ids=["experts-by-width", "whole-experts"])
def flags_of_ranks(request):
    return [*RANKS, *request.param]


@pytest.fixture(scope="module")
def ranks(flags_of_ranks):
    running = Server(demo_model(), *flags_of_ranks)
    yield running
    running.close()


def ask(client, text, **more):
    reply = client.chat.completions.create(
        model="demo", messages=[{"role": "user", "content": text}],
        **{"temperature": 0.7, "seed": 5, "logprobs": True, "max_tokens": 40, **more})
    choice = reply.choices[0]
    return choice.message.content, [piece.logprob for piece in choice.logprobs.content]


@pytest.fixture(scope="module")
def alone(ranks):
    return [ask(ranks.client(), text) for text in QUESTIONS]


def test_the_log_says_what_a_rank_takes(ranks):
    assert any("memory plan of each of 2 ranks" in line for line in ranks.log)


def test_a_known_answer(ranks):
    assert "Paris" in ask(ranks.client(), QUESTIONS[0], temperature=0)[0]


def test_replies_are_the_same_in_company(ranks, alone):
    client = ranks.client()
    with concurrent.futures.ThreadPoolExecutor(10) as pool:
        for reply, text in zip(pool.map(lambda text: ask(client, text), QUESTIONS * 3),
                               QUESTIONS * 3):
            assert reply == alone[QUESTIONS.index(text)]


@pytest.mark.parametrize("flags", [
    ["--swap-space", "0.01", "--block-size", "4", "--num-gpu-blocks-override", "520"],
    ["--threads", "3", "--max-num-batched-tokens", "8", "--max-num-seqs", "3"],
    ["--speculative-config", json.dumps({"method": "ngram", "num_speculative_tokens": 4})],
])
def test_replies_are_the_same_with_other_settings(start_server, flags_of_ranks, alone, flags):
    client = start_server(*flags_of_ranks, *flags).client()
    with concurrent.futures.ThreadPoolExecutor(10) as pool:
        assert list(pool.map(lambda text: ask(client, text), QUESTIONS)) == alone


def test_constraints_hold_on_all_ranks(ranks):
    reply = ranks.client().chat.completions.create(
        model="demo", messages=[{"role": "user", "content": "Any city?"}], temperature=1, seed=1,
        max_tokens=60, response_format={"type": "json_schema", "json_schema": {
            "name": "city", "schema": {"type": "object", "properties": {
                "city": {"enum": ["Rome", "Oslo"]}}, "required": ["city"],
                "additionalProperties": False}}})
    assert json.loads(reply.choices[0].message.content)["city"] in ("Rome", "Oslo")


def check_blocks_of_the_file(start_server, folder, groups):
    """Servers with the flags of each group, one after another on one file: whether a group finds the
    blocks of those before it. Returns what each says."""
    flags = ["--kvcache-storage-backend", "file", "--kvcache-storage-path", str(folder),
             "--kvcache-storage-size", "0.1", "--block-size", "16", "--enable-logprob"]
    text = "Please read all of this first. " * 12 + QUESTIONS[0]
    said = []
    for group, found in groups:
        server = start_server("--device", "cpu", *group, *flags)
        blocks = [line for line in server.log if " blocks of 16 tokens are there" in line]
        assert (len(blocks) == 1 and ": 0 of " not in blocks[0]) == found, group
        said.append(ask(server.client(), text))
        assert server.terminate() == 0
    return said


def test_blocks_of_the_file_are_found_by_groups_of_their_size_only(start_server, tmp_path):
    two, one = (["--tensor-parallel-size", ranks] for ranks in "21")
    said = check_blocks_of_the_file(start_server, tmp_path,
                                    [(two, False), (two, True), (one, False)])
    assert said[0] == said[1]


def test_pooled_models_give_the_same_vectors(start_server):
    vectors = []
    for ranks in ("1", "2"):
        client = start_server("--device", "cpu", "--tensor-parallel-size", ranks, "--runner",
                              "pooling", "--dtype", "float32").client()
        reply = client.embeddings.create(model="demo", input=QUESTIONS, encoding_format="float")
        vectors.append([item.embedding for item in reply.data])
    for one, two in zip(*vectors):
        assert one == pytest.approx(two, abs=1e-4)


def test_it_ends_when_it_is_told_to(start_server):
    assert start_server(*RANKS).terminate() == 0
