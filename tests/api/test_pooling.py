"""Embeddings, scores and rewards, as the official OpenAI client and plain HTTP see them."""
import base64
import json
import math
import socket
import struct

import httpx
import openai
import pytest

from api_server import Server
from tiny_models import END, VOCAB, WIDTH, row_of, write_model

ROUTES = ["/v1/embeddings", "/v1/reward", "/v1/chat/reward", "/v1/classify", "/classify", "/v1/rerank", "/v2/rerank",
          "/rerank", "/v1/score", "/score"]
DOCUMENTS = ["Paris is the capital of France.", "Bread is made of flour.", "yes", "x" * 90]


def post(server, path, **body):
    return httpx.post(server.url + path, json=body, timeout=60)


def good(server, path, **body):
    reply = post(server, path, **body)
    assert reply.status_code == 200, reply.text
    return reply.json()


def refused(server, path, **body):
    reply = post(server, path, **body)
    assert reply.status_code == 400, reply.text
    return reply.json()["error"]


def embed(server, value, **body):
    data = good(server, "/v1/embeddings", input=value, **body)["data"]
    return [one["embedding"] for one in data]


def unit(vector):
    length = math.sqrt(sum(x * x for x in vector))
    return [x / length for x in vector]


def near(got, want):
    return len(got) == len(want) and all(abs(a - b) < 1e-5 for a, b in zip(got, want))


class Model:
    """A model and the server of it."""

    def __init__(self, folder, *flags, **options):
        self.tensors = write_model(folder, **options)
        self.folder, self.flags, self.running = folder, flags, None

    def __enter__(self):
        self.running = Server(self.folder, "--device", "cpu", "--threads", "1", *self.flags)
        return self

    def __exit__(self, *_):
        self.running.close()


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """Embeddings of a model whose rows are known; 8 or 16 numbers of them are embeddings, too."""
    with Model(tmp_path_factory.mktemp("plain"), "--runner", "pooling", mixes=False,
               matryoshka_dimensions=[8, 16]) as model:
        yield model


@pytest.fixture(scope="module")
def judge(tmp_path_factory):
    """Pairs of texts, by the logits of "yes" and "no"."""
    with Model(tmp_path_factory.mktemp("judge"), "--convert", "classify", "--max-num-batched-tokens",
               "64", arch="Qwen3ForCausalLM", max_position_embeddings=1024) as model:
        yield model


def test_floats_and_base64_are_the_same_bits(plain):
    client = plain.running.client()
    texts = ["one", "two and more", "\u00e9"]
    # The client asks for base64 where nothing is said, and decodes it.
    decoded = client.embeddings.create(model="default", input=texts)
    floats = client.embeddings.create(model="default", input=texts, encoding_format="float")
    for one, other in zip(decoded.data, floats.data, strict=True):
        assert struct.pack(f"<{WIDTH}f", *one.embedding) == struct.pack(f"<{WIDTH}f", *other.embedding)
    assert [one.index for one in decoded.data] == [0, 1, 2]
    assert decoded.usage.prompt_tokens == decoded.usage.total_tokens == 4 + 13 + 3
    raw = good(plain.running, "/v1/embeddings", input="one", encoding_format="base64")
    assert raw["object"] == "list" and raw["data"][0]["object"] == "embedding"
    assert base64.b64decode(raw["data"][0]["embedding"]) == struct.pack(
        f"<{WIDTH}f", *floats.data[0].embedding)


def test_the_last_row_is_what_is_embedded(plain):
    want = unit(row_of(plain.tensors, END))
    assert near(embed(plain.running, "abc")[0], want)
    bare = embed(plain.running, "abc", add_special_tokens=False)[0]
    assert near(bare, unit(row_of(plain.tensors, VOCAB.index("c"))))
    raw = embed(plain.running, "abc", add_special_tokens=False, normalize=False)[0]
    assert near(raw, row_of(plain.tensors, VOCAB.index("c")))


def test_every_form_of_input(plain):
    ids = [VOCAB.index(letter) for letter in "abc"]
    want = embed(plain.running, ids)
    assert embed(plain.running, [ids]) == want
    assert embed(plain.running, [ids, ids]) == want * 2
    assert embed(plain.running, "abc", add_special_tokens=False) == want
    chat = good(plain.running, "/v1/embeddings", messages=[{"role": "user", "content": "abc"}])
    assert chat["data"][0]["embedding"] == want[0]
    assert chat["usage"]["prompt_tokens"] == 3


def test_dimensions_are_cut_and_then_normalized(plain, tmp_path):
    whole = embed(plain.running, "abc", normalize=False)[0]
    for n in (8, 16):
        assert near(embed(plain.running, "abc", dimensions=n)[0], unit(whole[:n]))
    for n in (7, WIDTH + 1):
        assert refused(plain.running, "/v1/embeddings", input="a", dimensions=n)["param"] == "dimensions"
    with Model(tmp_path, "--convert", "embed") as other:
        error = refused(other.running, "/v1/embeddings", input="a", dimensions=8)
        assert error["param"] == "dimensions" and "--override-pooler-config" in error["message"]
        assert len(embed(other.running, "a")[0]) == WIDTH


def test_a_long_text_is_cut_where_that_was_asked_for(plain):
    server = plain.running
    # The text is cut and the token that the tokenizer appends stays.
    cut = good(server, "/v1/embeddings", input="abcdef", truncate_prompt_tokens=3)
    assert cut["usage"]["prompt_tokens"] == 3
    assert near(cut["data"][0]["embedding"], unit(row_of(plain.tensors, END)))
    bare = embed(server, "abcdef", truncate_prompt_tokens=3, add_special_tokens=False)[0]
    assert near(bare, unit(row_of(plain.tensors, VOCAB.index("c"))))
    long = "a" * 600
    error = refused(server, "/v1/embeddings", input=long)
    assert error["param"] == "input" and error["code"] == "context_length_exceeded"
    assert good(server, "/v1/embeddings", input=long, truncate_prompt_tokens=-1)[
        "usage"]["prompt_tokens"] == 512
    assert embed(server, [5] * 512), "a prompt may fill the context"


@pytest.mark.parametrize("body, field", [
    ({}, "input"), ({"input": []}, "input"), ({"input": {}}, "input"), ({"input": ""}, None),
    ({"input": [[]]}, "input"), ({"input": ["a", 3]}, "input"), ({"input": [-1]}, "input"),
    ({"input": [100000]}, "input"), ({"input": ["a"] * 2049}, "input"),
    ({"input": "a", "messages": [{"role": "user", "content": "a"}]}, "input"),
    ({"messages": []}, "messages"), ({"input": "a", "encoding_format": "int8"}, "encoding_format"),
    ({"input": "a", "dimensions": 0}, "dimensions"), ({"input": "a", "dimensions": "8"}, "dimensions"),
    ({"input": "a", "truncate_prompt_tokens": 0}, "truncate_prompt_tokens"),
    ({"input": "a", "truncate_prompt_tokens": -2}, "truncate_prompt_tokens"),
    ({"input": "a", "normalize": "yes"}, "normalize"), ({"input": "a", "priority": 3}, "priority"),
    ({"input": "a", "add_special_tokens": 1}, "add_special_tokens"),
])
def test_refusals_name_the_field(plain, body, field):
    if field is None:  # the appended token is all that there is to embed
        assert embed(plain.running, body["input"])
        return
    assert refused(plain.running, "/v1/embeddings", **body)["param"] == field


def test_a_model_that_is_not_there(plain):
    with pytest.raises(openai.NotFoundError):
        plain.running.client().embeddings.create(model="another", input="a")


def test_the_mean_and_the_first_row(tmp_path):
    model = Model(tmp_path, "--max-num-batched-tokens", "8", mixes=False)
    (tmp_path / "modules.json").write_text(json.dumps([
        {"type": "sentence_transformers.models.Transformer", "path": ""},
        {"type": "sentence_transformers.models.Pooling", "path": "1_Pooling"}]))
    pooling = tmp_path / "1_Pooling"
    pooling.mkdir()
    for mode in ("mean_tokens", "cls_token"):
        (pooling / "config.json").write_text(json.dumps({f"pooling_mode_{mode}": True}))
        with model:
            text = "the text is longer than a chunk"
            rows = [row_of(model.tensors, byte) for byte in text.encode()]
            mean = [sum(column) / len(rows) for column in zip(*rows)]
            want = mean if mode == "mean_tokens" else rows[0]
            for _ in range(2):  # the second one may find no cached prefix
                assert near(embed(model.running, text, add_special_tokens=False)[0], want)


def test_a_text_alone_and_in_company_gives_the_same_bits(tmp_path):
    texts = [f"The text number {i} is about " + "words " * (i * 7 % 40) for i in range(40)]
    with Model(tmp_path, "--runner", "pooling", "--max-num-batched-tokens", "32",
               "--no-enable-prefix-caching") as model:
        alone = [embed(model.running, text)[0] for text in texts[:8]]
        together = embed(model.running, texts)
        assert together[:8] == alone
        assert len({tuple(vector) for vector in together}) == len(texts)


def test_scores_are_the_probability_of_yes(judge):
    """The same prompt, as tokens, to the same model as one that generates."""
    server = judge.running
    scores = good(server, "/v1/score", queries="capital?", documents=DOCUMENTS)
    assert [one["index"] for one in scores["data"]] == [0, 1, 2, 3]
    prompts = [
        "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query "
        "and the Instruct provided. Note that the answer can only be \"yes\" or \"no\".<|im_end|>\n"
        "<|im_start|>user\n<Instruct>: Given a web search query, retrieve relevant passages that "
        f"answer the query\n<Query>: capital?\n<Document>: {document}<|im_end|>\n"
        "<|im_start|>assistant\n<think>\n\n</think>\n\n" for document in DOCUMENTS]
    generating = Server(judge.folder, "--device", "cpu", "--threads", "1", "--max-logprobs", "-1")
    try:
        for prompt, one in zip(prompts, scores["data"], strict=True):
            choice = good(generating, "/v1/completions", prompt=prompt, max_tokens=1, logprobs=300,
                          temperature=0, add_special_tokens=False)["choices"][0]
            top = choice["logprobs"]["top_logprobs"][0]
            margin = top["yes"] - top["no"]
            assert abs(one["score"] - 1 / (1 + math.exp(-margin))) < 1e-4
        for route in ROUTES:
            error = refused(generating, route, input="a", query="a", queries="a", documents=["b"])
            assert "--runner pooling" in error["message"]
    finally:
        generating.close()


def test_documents_come_by_falling_relevance(judge):
    server = judge.running
    scores = [one["score"] for one in good(server, "/score", text_1="capital?",
                                           text_2=DOCUMENTS)["data"]]
    for path in ("/v1/rerank", "/v2/rerank", "/rerank"):
        reply = good(server, path, query="capital?", documents=DOCUMENTS)
        results = reply["results"]
        assert [r["relevance_score"] for r in results] == sorted(scores, reverse=True)
        for result in results:
            assert result["relevance_score"] == scores[result["index"]]
            assert result["document"] == {"text": DOCUMENTS[result["index"]]}
        assert reply["usage"]["total_tokens"] > 0
    short = good(server, "/rerank", query={"text": "capital?"}, top_n=2, return_documents=False,
                 documents=[{"text": text} for text in DOCUMENTS])["results"]
    assert short == [{k: v for k, v in r.items() if k != "document"} for r in results[:2]]
    other = good(server, "/rerank", query="capital?", documents=DOCUMENTS, instruction="Find lies.")
    assert {r["relevance_score"] for r in other["results"]}.isdisjoint(scores)


@pytest.mark.parametrize("names", [("queries", "documents"), ("queries", "items"),
                                   ("text_1", "text_2"), ("data_1", "data_2")])
def test_each_spelling_of_pairs(judge, names):
    one, two = names
    queries = ["a?", "b?"]
    pairs = good(judge.running, "/v1/score", **{one: queries, two: DOCUMENTS[:2]})["data"]
    for i in range(2):
        single = good(judge.running, "/v1/score", **{one: queries[i], two: [DOCUMENTS[i]]})["data"]
        assert single[0]["score"] == pairs[i]["score"]
    error = refused(judge.running, "/v1/score", **{one: queries, two: DOCUMENTS[:3]})
    assert error["param"] == one


def test_a_long_document_is_cut_and_the_question_stays(judge):
    server, query = judge.running, "capital?"
    assert refused(server, "/rerank", query=query, documents=["x" * 2000])["param"] == "documents"
    cut = good(server, "/score", queries=query, documents=["x" * 2000], truncate_prompt_tokens=420)
    assert cut["usage"]["prompt_tokens"] == 420
    fits = 90 - (good(server, "/score", queries=query, documents=["x" * 90])["usage"]["prompt_tokens"]
                 - 420)
    same = good(server, "/score", queries=query, documents=["x" * fits])
    assert same["usage"]["prompt_tokens"] == 420
    assert same["data"][0]["score"] == cut["data"][0]["score"]
    error = refused(server, "/score", queries=query, documents=["x"], truncate_prompt_tokens=50)
    assert "no room" in error["message"]


@pytest.mark.parametrize("body, field", [
    ({"documents": ["a"]}, "query"), ({"query": "a"}, "documents"),
    ({"query": ["a"], "documents": ["a"]}, "query"), ({"query": "a", "documents": []}, "documents"),
    ({"query": "a", "documents": [3]}, "documents"),
    ({"query": "a", "documents": ["a"], "top_n": -1}, "top_n"),
    ({"query": "a", "documents": ["a"] * 2049}, "documents"),
])
def test_refusals_of_rerank_name_the_field(judge, body, field):
    assert refused(judge.running, "/rerank", **body)["param"] == field


def test_embeddings_score_pairs_by_their_cosine(tmp_path):
    with Model(tmp_path, "--runner", "pooling") as model:
        server = model.running
        vectors = embed(server, ["query", *DOCUMENTS])
        want = [sum(a * b for a, b in zip(vectors[0], v)) for v in vectors[1:]]
        got = good(server, "/v1/score", queries="query", documents=DOCUMENTS)["data"]
        assert near([one["score"] for one in got], want)
        ranked = good(server, "/v1/rerank", query="query", documents=DOCUMENTS, top_n=1)["results"]
        assert ranked[0]["index"] == want.index(max(want))
        assert "cannot generate" in refused(server, "/v1/chat/completions", messages=[
            {"role": "user", "content": "a"}])["message"]
        for route in ("/v1/reward", "/v1/classify"):
            assert refused(server, route, input="a")["param"] == "model"


def test_classes_and_rewards(tmp_path):
    names = {"0": "bad", "1": "good", "2": "best"}
    with Model(tmp_path / "three", mixes=False, classes=3, id2label=names,
               arch="LlamaForSequenceClassification") as model:
        row = row_of(model.tensors, END)
        score = model.tensors["score.weight"][1]
        logits = [sum(w * x for w, x in zip(score[i * WIDTH:(i + 1) * WIDTH], row)) for i in range(3)]
        total = sum(math.exp(x) for x in logits)
        want = [math.exp(x) / total for x in logits]
        one = good(model.running, "/v1/classify", input=["a", "b"])["data"][1]
        assert near(one["probs"], want) and one["num_classes"] == 3
        assert one["label"] == list(names.values())[want.index(max(want))]
        reward = good(model.running, "/v1/reward", input="a")
        assert reward["object"] == "object" and near(reward["data"][0]["score"], logits)
        assert refused(model.running, "/v1/score", queries="a", documents=["b"])["param"] == "model"
        assert refused(model.running, "/v1/embeddings", input="a")["param"] == "model"
    with Model(tmp_path / "one", classes=1, arch="LlamaForSequenceClassification",
               id2label={"0": "x"}) as model:
        chat = [{"role": "user", "content": "2+2?"}, {"role": "assistant", "content": "4"}]
        raw = good(model.running, "/v1/reward", messages=chat)["data"][0]["score"]
        assert len(raw) == 1
        probability = good(model.running, "/v1/classify", messages=chat)["data"][0]["probs"][0]
        assert abs(probability - 1 / (1 + math.exp(-raw[0]))) < 1e-5
        assert 0 < good(model.running, "/score", queries="a", documents="b")["data"][0]["score"] < 1


def test_a_client_that_leaves_frees_the_server(plain):
    body = json.dumps({"input": ["words " * 80] * 1000}).encode()
    with socket.create_connection(("127.0.0.1", plain.running.port)) as sock:
        sock.sendall(b"POST /v1/embeddings HTTP/1.1\r\nHost: localhost\r\n"
                     b"Content-Type: application/json\r\n"
                     b"Content-Length: %d\r\n\r\n" % len(body) + body)
        plain.running.eventually(lambda: plain.running.load() > 0, 5)
    assert plain.running.eventually(lambda: plain.running.load() == 0)
    assert embed(plain.running, "still here")


def test_waiting_tokens_are_bounded(tmp_path):
    """Whatever waits counts: one request of many texts as much as many requests. All bodies are
    sent before a reply is read, so most of them arrive while the first is worked on."""
    with Model(tmp_path, "--runner", "pooling", "--max-waiting-tokens", "4000", "--max-num-seqs",
               "1") as model:
        text = json.dumps({"input": ["words " * 80] * 400}).encode()
        crowd = [socket.create_connection(("127.0.0.1", model.running.port), timeout=60)
                 for _ in range(20)]
        for sock in crowd:
            sock.sendall(b"POST /v1/embeddings HTTP/1.1\r\nHost: localhost\r\n"
                         b"Content-Type: application/json\r\n"
                         b"Content-Length: %d\r\n\r\n" % len(text) + text)
        heads = [sock.recv(400) for sock in crowd]
        for sock in crowd:
            sock.close()
        refused = [head for head in heads if head.startswith(b"HTTP/1.1 429")]
        assert refused and all(b"retry-after" in head.lower() for head in refused)
        assert any(head.startswith(b"HTTP/1.1 200") for head in heads)
        assert model.running.eventually(lambda: model.running.load() == 0)
        assert embed(model.running, "one more")