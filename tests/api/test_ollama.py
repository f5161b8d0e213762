"""Ollama's API through its own client."""
import json
import urllib.request

import ollama
import pytest

from api_server import Server
from tiny_models import write_model

CAPITAL = [{"role": "user", "content": "What is the capital of France?"}]
WEATHER = [{"role": "user", "content": "What's the weather like in Boston?"}]
SUM = [{"role": "user", "content": "What is 17 + 25?"}]
TOOL = {"type": "function", "function": {
    "name": "get_current_weather", "description": "Get the current weather",
    "parameters": {"type": "object", "properties": {"location": {"type": "string"}}}}}
GREEDY = {"temperature": 0}


@pytest.fixture
def client(server):
    return ollama.Client(host=server.url)


def test_what_there_is(client, server):
    assert server.get("/") == "Ollama is running"
    assert [model.model for model in client.list().models] == ["demo"]
    assert client.ps().models[0].model == "demo"
    shown = client.show("demo:latest")
    assert shown.capabilities == ["completion", "tools", "thinking"]
    assert shown.modelinfo[shown.modelinfo["general.architecture"] + ".context_length"] > 0
    assert json.loads(server.get("/api/version"))["version"]


def test_a_chat_and_its_stream(client):
    whole = client.chat("demo", CAPITAL, options=GREEDY, keep_alive="5m")
    assert "Paris" in whole.message.content and whole.done and whole.done_reason == "stop"
    assert whole.eval_count > 0 and whole.prompt_eval_count > 0
    assert whole.total_duration >= whole.eval_duration > 0
    parts = list(client.chat("demo", CAPITAL, options=GREEDY, stream=True))
    assert len(parts) > 2
    assert "".join(part.message.content for part in parts) == whole.message.content
    assert [part.done for part in parts] == [False] * (len(parts) - 1) + [True]
    assert parts[-1].eval_count == whole.eval_count


def test_a_prompt(client):
    whole = client.generate("demo", CAPITAL[0]["content"], options=GREEDY)
    assert "Paris" in whole.response
    streamed = client.generate("demo", CAPITAL[0]["content"], options=GREEDY, stream=True)
    assert "".join(part.response for part in streamed) == whole.response
    raw = client.generate("demo", "The capital of", raw=True, options={**GREEDY, "num_predict": 3})
    assert raw.done_reason == "length" and raw.eval_count == 3


def test_a_prompt_of_the_client_in_go(server):
    body = {"model": "demo", "prompt": CAPITAL[0]["content"], "suffix": "", "system": "", "template": "",
            "options": None, "stream": False}
    request = urllib.request.Request(server.url + "/api/generate", json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as response:
        assert json.load(response)["done"]


def test_a_tool_and_its_result(client):
    for stream in (False, True):
        answer = client.chat("demo", WEATHER, tools=[TOOL], options=GREEDY, stream=stream)
        messages = [part.message for part in answer] if stream else [answer.message]
        calls = [call for message in messages for call in message.tool_calls or []]
        assert [call.function.name for call in calls] == ["get_current_weather"]
        assert calls[0].function.arguments == {"location": "Boston"}
    history = [*WEATHER, {"role": "assistant", "content": "", "tool_calls": calls},
               {"role": "tool", "tool_name": "get_current_weather", "content": "22 degrees, sunny"}]
    assert "22" in client.chat("demo", history, tools=[TOOL], options=GREEDY).message.content


def test_thinking(client):
    thought = client.chat("demo", SUM, think=True, options=GREEDY).message
    assert thought.thinking and "42" in thought.content
    assert not client.chat("demo", SUM, think=False, options=GREEDY).message.thinking


def test_the_form_of_an_answer(client):
    schema = {"type": "object", "properties": {"city": {"type": "string", "maxLength": 20}},
              "required": ["city"], "additionalProperties": False}
    reply = client.chat("demo", CAPITAL, format=schema, options={**GREEDY, "num_predict": 60})
    assert set(json.loads(reply.message.content)) == {"city"}


def test_nothing_to_answer_loads_the_model(client):
    assert client.chat("demo", []).done_reason == "load"
    assert client.generate("demo", "").done_reason == "load"


def test_errors(client, server):
    for wrong in (lambda: client.chat("other", CAPITAL), lambda: client.chat("other", []),
                  lambda: client.show("other")):
        with pytest.raises(ollama.ResponseError) as error:
            wrong()
        assert error.value.status_code == 404 and "other" in error.value.error
    with pytest.raises(ollama.ResponseError) as error:
        client.chat("demo", CAPITAL, options={"mirostat": 2})
    assert error.value.status_code == 400 and "mirostat" in error.value.error
    for absent in (lambda: client.pull("x"), lambda: client.delete("x"), lambda: client.copy("x", "y")):
        with pytest.raises(ollama.ResponseError) as error:
            absent()
        assert error.value.status_code == 501


def test_durations_of_a_whole_answer(client):
    reply = client.chat("demo", CAPITAL, options=GREEDY)
    assert 0 < reply.prompt_eval_duration < reply.total_duration
    assert reply.eval_duration < reply.total_duration


def test_a_model_that_generates_makes_no_embeddings(client):
    with pytest.raises(ollama.ResponseError) as error:
        client.embed("demo", "x")
    assert error.value.status_code == 400 and "--runner pooling" in error.value.error


def test_embeddings(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ollama") / "tiny"
    write_model(folder)
    server = Server(folder, "--device", "cpu", "--threads", "1", "--runner", "pooling", "--convert", "embed")
    try:
        check_embeddings(ollama.Client(host=server.url))
    finally:
        server.close()


def check_embeddings(client):
    both = client.embed("tiny:latest", ["yes", "no"])
    assert len(both.embeddings) == 2 and both.prompt_eval_count == 4 and both.total_duration > 0
    assert sum(x * x for x in both.embeddings[0]) == pytest.approx(1, abs=1e-5)
    assert client.embed("tiny", "yes").embeddings[0] == both.embeddings[0] != both.embeddings[1]
    older = client.embeddings("tiny", "yes").embedding
    assert list(older) == pytest.approx(list(both.embeddings[0]), abs=1e-6)
    assert len(client.embed("tiny", "yes" * 2000).embeddings) == 1, "cut to the context"
    for wrong, status, what in ((lambda: client.embed("tiny", "yes" * 2000, truncate=False), 400, "512"),
                                (lambda: client.embed("other", "x"), 404, "other"),
                                (lambda: client.embed("tiny", []), 400, "input")):
        with pytest.raises(ollama.ResponseError) as error:
            wrong()
        assert error.value.status_code == status and what in error.value.error
