"""PaddleNLP's requests over HTTP, and its tutorial's odd use of OpenAI's client."""
import json
import urllib.request

import openai
import pytest
from edge import Edge, demo_model, long_demo

ASK = "What is the capital of France?"
PARIS = "The capital of France is Paris."


def post(url, body, path="/v1/chat/completions"):
    request = urllib.request.Request(url + path, json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    return urllib.request.urlopen(request, timeout=60)


def lines(url, body, path="/v1/chat/completions"):
    """json.loads on each line of the stream, as the tutorial does."""
    with post(url, {**body, "stream": True}, path) as response:
        return [json.loads(line) for line in response]


def running(server):
    return json.loads(server.request("GET", "/load").body)["server_load"]


@pytest.fixture(scope="module")
def legacy():
    server = Edge(long_demo(), "--max-model-len", 65536)
    yield server
    server.close()


def greedy(**more):
    return {"messages": [{"role": "user", "content": ASK}], "req_id": "abc", "max_dec_len": 30,
            "temperature": 0, **more}


def test_tutorial_stream(legacy):
    objects = lines(legacy.url, greedy())
    assert [one["send_idx"] for one in objects] == list(range(len(objects)))
    assert [one["is_end"] for one in objects] == [0] * (len(objects) - 1) + [1]
    assert "".join(one["token"] for one in objects) == PARIS == objects[-1]["tokens_all"]
    assert sum((one["token_ids"] for one in objects), []) == objects[-1]["tokens_all_ids"]
    assert all(one["req_id"] == "abc" and one["error_code"] == 0 and one["error_msg"] == ""
               for one in objects)


def test_tutorial_whole_answer(legacy):
    for body in (greedy(), {"text": ASK, "temperature": 0}):
        with post(legacy.url, {**body, "return_usage": True}) as response:
            answer = json.load(response)
        assert answer["result"] == answer["tokens_all"] == PARIS
        assert answer["usage"]["completion_tokens"] == 8


def test_same_tokens_as_openai(legacy):
    client = openai.OpenAI(base_url=legacy.url + "/v1", api_key="none", max_retries=0)
    theirs = client.chat.completions.create(
        model="default", messages=[{"role": "user", "content": ASK}], seed=5, temperature=0.95,
        top_p=0.7, max_tokens=20, extra_body={"min_tokens": 1})
    with post(legacy.url, {"text": ASK, "max_dec_len": 20, "infer_seed": 5}) as response:
        assert json.load(response)["result"] == theirs.choices[0].message.content


def test_openai_client_with_the_path_in_its_base_url(legacy):
    client = openai.OpenAI(base_url=legacy.url + "/v1/chat/completions", api_key="none",
                           max_retries=0)
    chat = client.chat.completions.create(model="default", temperature=0,
                                          messages=[{"role": "user", "content": ASK}])
    assert chat.choices[0].message.content == PARIS
    text = client.completions.create(model="default", prompt="Hello", max_tokens=3, stream=True)
    assert sum(bool(chunk.choices) for chunk in text) >= 1
    objects = lines(legacy.url, greedy(), path="/v1/chat/completions/chat/completions")
    assert objects[-1]["tokens_all"] == PARIS


def test_errors_have_status_200(legacy):
    with post(legacy.url, greedy(topp=2)) as response:
        answer = json.load(response)
    assert response.status == 200
    assert answer["error_msg"] == "The `topp` must be in [0, 1]"
    assert answer["error_code"] == 200 and answer["req_id"] == "abc"
    objects = lines(legacy.url, greedy(eos_token_ids=[1, 2]))
    assert len(objects) == 1 and "length of `eos_token_ids`" in objects[0]["error_msg"]
    # A prompt that does not fit is refused, and truncated only if the request says so.
    long = greedy(messages=[{"role": "user", "content": "word " * 70000}], max_dec_len=8)
    assert "context length" in lines(legacy.url, long)[0]["error_msg"]


def test_stop_strings_and_end_tokens(legacy):
    whole = lines(legacy.url, greedy())[-1]
    stopped = lines(legacy.url, greedy(stop_sequences=[" France"]))[-1]
    assert stopped["tokens_all"] == "The capital of"
    end = whole["tokens_all_ids"][3]
    cut = lines(legacy.url, greedy(eos_token_ids=[end]))[-1]
    assert cut["tokens_all_ids"] == whole["tokens_all_ids"][:3] and cut["tokens_all_num"] == 4


def test_client_that_leaves_frees_its_place(legacy):
    stream = post(legacy.url, greedy(stream=True, max_dec_len=60000, min_dec_len=60000))
    assert json.loads(stream.readline())["send_idx"] == 0
    stream.close()
    assert legacy.eventually(lambda: running(legacy) == 0)


def test_environment_of_paddlenlp():
    environment = {"SERVICE_HTTP_PORT": "0", "DISABLE_STREAMING": "1", "MAX_DEC_LEN": "5",
                   "BLOCK_RATIO": "0.75"}
    server = Edge(demo_model(), env=environment)
    try:
        objects = lines(server.url, {"text": ASK, "temperature": 0})
        assert len(objects) == 1 and objects[0]["is_end"] == 1
        assert objects[0]["usage"]["completion_tokens"] == 5
        assert objects[0]["token"] == objects[0]["tokens_all"]
        refused = lines(server.url, {"text": ASK, "max_dec_len": 6})
        assert "MAX_DEC_LEN(5)" in refused[0]["error_msg"]
        assert any("without effect here: BLOCK_RATIO" in line for line in server.log)
        for path in ("/v2/health/live", "/v2/health/ready"):
            assert server.request("GET", path).status == 200
    finally:
        server.close()
