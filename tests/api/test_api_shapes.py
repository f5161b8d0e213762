"""Every kind of answer against OpenAI's published types, and against a table of what clients rely on
beyond types: keys that must be there, what may be null, and the order of events in a stream."""
import http.client
import json
import time

import pytest
from openai.types import Completion, Model
from openai.types.chat import ChatCompletion, ChatCompletionChunk

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
MESSAGES = [{"role": "user", "content": "What is the capital of France?"}]
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
REASONS = {"stop", "length", "tool_calls", "content_filter", "function_call"}

# What we and those we are compatible with add to the published objects.
EXTENSIONS = {"stop_reason", "prompt_logprobs", "prompt_token_ids", "completion_token_ids", "token_ids",
              "prompt_tokens", "completion_tokens", "reasoning_content", "multimodal_content",
              "audio_content", "arrival_time", "draft_logprobs", "speculate_metrics", "usage",
              "tool_calls", "system_fingerprint", "service_tier"}


def integer(value):
    return isinstance(value, int) and not isinstance(value, bool)


def number(value):
    return integer(value) or isinstance(value, float)


def string(value):
    return isinstance(value, str)


def boolean(value):
    return isinstance(value, bool)


def null(value):
    return value is None


def any_of(*checks):
    return lambda value: any(check(value) for check in checks)


def equal(expected):
    return lambda value: value == expected


def list_of(check, least=0):
    return lambda value: (isinstance(value, list) and len(value) >= least
                          and all(check(item) for item in value))


def shape(required, extensions=frozenset()):
    """An object with exactly these keys, besides extensions."""
    def check(value):
        assert isinstance(value, dict), value
        assert set(required) <= set(value), (sorted(required), value)
        assert set(value) <= set(required) | set(extensions), (sorted(required), value)
        for key, check_value in required.items():
            assert check_value(value[key]), (key, value)
        return True
    return check


TOP = shape({"token": string, "logprob": number, "bytes": any_of(null, list_of(integer))})
LOGPROB = shape({"token": string, "logprob": number, "bytes": any_of(null, list_of(integer)),
                 "top_logprobs": list_of(TOP)})
CHAT_LOGPROBS = shape({"content": list_of(LOGPROB), "refusal": null})
TEXT_LOGPROBS = shape({"tokens": list_of(string), "token_logprobs": list_of(any_of(null, number)),
                       "text_offset": list_of(integer),
                       "top_logprobs": any_of(null, list_of(any_of(null, lambda v: all(
                           string(k) and number(x) for k, x in v.items()))))})
USAGE = shape({"prompt_tokens": integer, "completion_tokens": integer, "total_tokens": integer,
               "prompt_tokens_details": lambda v: integer(v["cached_tokens"]),
               "completion_tokens_details": lambda v: integer(v["reasoning_tokens"])})
HEAD = {"id": string, "created": integer, "model": equal("demo")}
REASON = lambda value: value in REASONS

MESSAGE = shape({"role": equal("assistant"), "content": string, "refusal": null}, EXTENSIONS)
WHOLE_CHAT = shape({**HEAD, "object": equal("chat.completion"), "usage": USAGE, "choices": list_of(
    shape({"index": integer, "message": MESSAGE, "finish_reason": REASON,
           "logprobs": any_of(null, CHAT_LOGPROBS)}, EXTENSIONS), least=1)}, EXTENSIONS)
WHOLE_TEXT = shape({**HEAD, "object": equal("text_completion"), "usage": USAGE, "choices": list_of(
    shape({"index": integer, "text": string, "finish_reason": REASON,
           "logprobs": any_of(null, TEXT_LOGPROBS)}, EXTENSIONS), least=1)}, EXTENSIONS)
CHAT_CHUNK = shape({**HEAD, "object": equal("chat.completion.chunk"), "choices": list_of(
    shape({"index": integer, "delta": lambda v: isinstance(v, dict),
           "finish_reason": any_of(null, REASON),
           "logprobs": any_of(null, CHAT_LOGPROBS)}, EXTENSIONS))}, EXTENSIONS)
TEXT_CHUNK = shape({**HEAD, "object": equal("text_completion"), "choices": list_of(
    shape({"index": integer, "text": string, "finish_reason": any_of(null, REASON),
           "logprobs": any_of(null, TEXT_LOGPROBS)}, EXTENSIONS))}, EXTENSIONS)
ERROR = shape({"error": shape({"message": string, "type": string, "param": any_of(null, string),
                               "code": any_of(null, string)})})

CHAT_CALLS = {
    "plain": {},
    "length": {"max_tokens": 3},
    "one token": {"max_completion_tokens": 1},
    "stopped": {"stop": "Par"},
    "several": {"n": 3, "temperature": 1, "seed": 1},
    "logprobs": {"logprobs": True},
    "top_logprobs": {"logprobs": True, "top_logprobs": 4},
    "token ids": {"return_token_ids": True},
    "everything": {"n": 2, "logprobs": True, "top_logprobs": 2, "return_token_ids": True,
                   "prompt_logprobs": 1},
    "tools": {"tools": [TOOL]},
    "grouped": {"max_streaming_response_tokens": 4},
    "kept stop": {"stop": ["Par"], "include_stop_str_in_output": True},
}
TEXT_CALLS = {
    "plain": {},
    "ids": {"prompt": [10, 11, 12]},
    "two": {"prompt": ["One", "Two"], "n": 2, "temperature": 1, "seed": 3},
    "lists of ids": {"prompt": [[10, 11], [12]]},
    "logprobs": {"logprobs": 0},
    "top logprobs": {"logprobs": 3},
    "echo": {"echo": True},
    "echo with logprobs": {"echo": True, "logprobs": 2},
    "only the prompt": {"echo": True, "logprobs": 1, "max_tokens": 0},
    "token ids": {"return_token_ids": True, "prompt_logprobs": 2},
    "stopped": {"stop": ["a", "e"]},
}
OPTIONS = [None, {"include_usage": True}, {"include_usage": False}, {"include_obfuscation": False},
           {"continuous_usage_stats": True},
           {"include_usage": True, "continuous_usage_stats": True}]


def body_of(path, fields):
    base = ({"messages": MESSAGES, "max_tokens": 12} if path == CHAT
            else {"prompt": "The capital of", "max_tokens": 6})
    return {**base, "model": "demo", "temperature": 0, **fields}


@pytest.fixture(scope="module")
def post(server):
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)

    def call(path, body):
        connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        response = connection.getresponse()
        return response.status, response.getheader("content-type"), response.read().decode()

    yield call
    connection.close()


def events_of(text):
    """The data of each event; the bytes between are nothing but blank lines."""
    assert text.endswith("\n\n")
    lines = text[:-2].split("\n\n")
    assert all(line.startswith("data: ") for line in lines), text
    return [line[len("data: "):] for line in lines]


def stream(post, path, fields, options):
    body = {**body_of(path, fields), "stream": True}
    if options is not None:
        body["stream_options"] = options
    status, kind, text = post(path, body)
    assert status == 200, text
    assert kind == "text/event-stream; charset=utf-8"
    events = events_of(text)
    assert events[-1] == "[DONE]"
    assert "[DONE]" not in events[:-1]
    return [json.loads(event) for event in events[:-1]]


def check_lengths(choice):
    logprobs = choice["logprobs"]
    if logprobs and "tokens" in logprobs:
        lists = [logprobs["tokens"], logprobs["token_logprobs"], logprobs["text_offset"]]
        if logprobs["top_logprobs"] is not None:
            lists.append(logprobs["top_logprobs"])
        assert len({len(one) for one in lists}) == 1, logprobs
        assert logprobs["text_offset"] == sorted(logprobs["text_offset"])


@pytest.mark.parametrize("name", CHAT_CALLS)
def test_chat(post, name):
    status, kind, text = post(CHAT, body_of(CHAT, CHAT_CALLS[name]))
    assert status == 200 and kind == "application/json", text
    answer = json.loads(text)
    ChatCompletion.model_validate(answer, strict=True)
    WHOLE_CHAT(answer)
    check_answer(answer, CHAT_CALLS[name].get("n", 1))
    for choice in answer["choices"]:
        assert (choice["logprobs"] is not None) == bool(CHAT_CALLS[name].get("logprobs"))


@pytest.mark.parametrize("name", TEXT_CALLS)
def test_completion(post, name):
    fields = TEXT_CALLS[name]
    status, kind, text = post(TEXT, body_of(TEXT, fields))
    assert status == 200 and kind == "application/json", text
    answer = json.loads(text)
    # The published type has no null in token_logprobs, where the first echoed token has one.
    if not (fields.get("echo") and "logprobs" in fields):
        Completion.model_validate(answer, strict=True)
    WHOLE_TEXT(answer)
    prompts = fields.get("prompt", "x")
    several = isinstance(prompts, list) and not isinstance(prompts[0], int)
    check_answer(answer, (len(prompts) if several else 1) * fields.get("n", 1))
    for choice in answer["choices"]:
        assert (choice["logprobs"] is not None) == ("logprobs" in fields)
        check_lengths(choice)


def check_answer(answer, choices):
    assert [choice["index"] for choice in answer["choices"]] == list(range(choices))
    assert abs(answer["created"] - time.time()) < 600
    usage = answer["usage"]
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]


@pytest.mark.parametrize("options", OPTIONS, ids=json.dumps)
@pytest.mark.parametrize("name", CHAT_CALLS)
def test_chat_stream(post, name, options):
    fields = CHAT_CALLS[name]
    chunks = stream(post, CHAT, fields, options)
    for chunk in chunks:
        ChatCompletionChunk.model_validate(chunk, strict=True)
        CHAT_CHUNK(chunk)
    check_stream(chunks, options, fields.get("n", 1))
    deltas = {}
    for chunk in chunks:
        for choice in chunk["choices"]:
            deltas.setdefault(choice["index"], []).append(choice["delta"])
    whole = json.loads(post(CHAT, body_of(CHAT, fields))[2])
    for choice in whole["choices"]:
        first, *rest = deltas[choice["index"]]
        assert first["role"] == "assistant" and first["content"] == ""
        assert not any("role" in delta for delta in rest)
        assert rest[-1] == {}
        assert "".join(d.get("content") or "" for d in rest) == choice["message"]["content"]
        if "logprobs" in fields:
            told = [entry for chunk in chunks for one in chunk["choices"]
                    if one["index"] == choice["index"] and one["logprobs"]
                    for entry in one["logprobs"]["content"]]
            assert [entry["token"] for entry in told] == \
                [entry["token"] for entry in choice["logprobs"]["content"]]


@pytest.mark.parametrize("options", OPTIONS, ids=json.dumps)
@pytest.mark.parametrize("name", TEXT_CALLS)
def test_completion_stream(post, name, options):
    fields = TEXT_CALLS[name]
    chunks = stream(post, TEXT, fields, options)
    for chunk in chunks:
        TEXT_CHUNK(chunk)
        for choice in chunk["choices"]:
            check_lengths(choice)
    whole = json.loads(post(TEXT, body_of(TEXT, fields))[2])
    check_stream(chunks, options, len(whole["choices"]))
    for choice in whole["choices"]:
        mine = [one for chunk in chunks for one in chunk["choices"]
                if one["index"] == choice["index"]]
        assert "".join(one["text"] for one in mine) == choice["text"]
        assert mine[-1]["finish_reason"] == choice["finish_reason"]
        if choice["logprobs"]:
            for key in ("tokens", "text_offset"):
                told = [entry for one in mine if one["logprobs"] for entry in one["logprobs"][key]]
                assert told == choice["logprobs"][key]


def check_stream(chunks, options, choices):
    for key in ("id", "created", "model", "object"):
        assert len({chunk[key] for chunk in chunks}) == 1
    finished = {}
    for chunk in chunks:
        for choice in chunk["choices"]:
            assert choice["index"] not in finished, "a piece after the end of its choice"
            if choice["finish_reason"] is not None:
                finished[choice["index"]] = choice["finish_reason"]
    assert sorted(finished) == list(range(choices))
    wanted = options is not None and options.get("include_usage", False)
    if wanted:
        last = chunks.pop()
        assert last["choices"] == []
        assert USAGE(last["usage"])
    assert all(len(chunk["choices"]) == 1 for chunk in chunks)
    for chunk in chunks:
        if wanted and options.get("continuous_usage_stats"):
            assert USAGE(chunk["usage"])
        elif wanted:
            assert chunk["usage"] is None
        else:
            assert "usage" not in chunk


def test_models(server):
    listed = json.loads(server.get("/v1/models"))
    assert listed["object"] == "list" and len(listed["data"]) == 1
    model = listed["data"][0]
    Model.model_validate(model, strict=True)
    permission = shape({"id": string, "object": equal("model_permission"), "created": integer,
                        "allow_create_engine": boolean, "allow_sampling": boolean,
                        "allow_logprobs": boolean, "allow_search_indices": boolean,
                        "allow_view": boolean, "allow_fine_tuning": boolean,
                        "organization": string, "group": null, "is_blocking": boolean})
    shape({"id": equal("demo"), "object": equal("model"), "created": integer, "owned_by": string,
           "root": string, "parent": null, "max_model_len": integer,
           "permission": list_of(permission, least=1)})(model)
    assert json.loads(server.get("/v1/models/demo")) == model


def test_tokenizing(post):
    whole = shape({"count": integer, "max_model_len": integer, "tokens": list_of(integer),
                   "token_strs": any_of(null, list_of(string))})
    for fields in ({"prompt": "The capital"}, {"messages": MESSAGES},
                   {"prompt": "The capital", "return_token_strs": True}):
        answer = json.loads(post("/tokenize", {"model": "demo", **fields})[2])
        whole(answer)
        assert answer["count"] == len(answer["tokens"])
        assert (answer["token_strs"] is not None) == ("return_token_strs" in fields)
        assert answer == json.loads(post("/v1/tokenize", {"model": "demo", **fields})[2])
    ids = json.loads(post("/tokenize", {"prompt": "The capital of France"})[2])["tokens"]
    assert json.loads(post("/detokenize", {"tokens": ids})[2]) == {"prompt": "The capital of France"}
    chat = json.loads(post(CHAT, body_of(CHAT, {"return_token_ids": True}))[2])["choices"][0]
    counted = json.loads(post("/tokenize", {"messages": MESSAGES})[2])
    assert counted["tokens"] == chat["message"]["prompt_token_ids"]


def test_a_reply_goes_on_where_it_was_cut(post):
    fields = {"return_token_ids": True, "max_tokens": 8}
    whole = json.loads(post(TEXT, body_of(TEXT, fields))[2])["choices"][0]
    begun = whole["completion_token_ids"][:3]
    rest = json.loads(post(TEXT, body_of(TEXT, {**fields, "completion_token_ids": begun,
                                                "max_tokens": 5}))[2])["choices"][0]
    assert rest["prompt_token_ids"] == whole["prompt_token_ids"] + begun
    assert begun + rest["completion_token_ids"] == whole["completion_token_ids"]


def test_truncation_keeps_the_end(post):
    body = body_of(TEXT, {"prompt": list(range(10, 40)), "truncate_prompt_tokens": 4,
                          "return_token_ids": True, "echo": True})
    choice = json.loads(post(TEXT, body)[2])["choices"][0]
    assert choice["prompt_token_ids"] == [36, 37, 38, 39]
    long = {"prompt": "word " * 5000, "truncate_prompt_tokens": -1, "max_tokens": 10}
    assert json.loads(post(TEXT, body_of(TEXT, long))[2])["usage"]["prompt_tokens"] == 2048 - 10


def test_load_and_config(server):
    load = json.loads(server.get("/load"))
    route = shape({"path": string, "methods": list_of(string, least=1), "tags": list_of(string)})
    assert list_of(route, least=4)(load["routes"])
    assert CHAT in [one["path"] for one in load["routes"]]
    assert all(number(load[key]) for key in ("server_load", "running", "waiting"))
    assert isinstance(json.loads(server.get("/config-info")), dict)
    assert string(json.loads(server.get("/version"))["version"])


@pytest.mark.parametrize("path, fields", [
    (CHAT, {"n": 0}), (TEXT, {"n": 0}), (CHAT, {"model": "nope"}), (TEXT, {"prompt": []}),
    (CHAT, {"stream": True, "n": 0}), ("/tokenize", {}), ("/v1/nope", {})])
def test_errors_before_a_stream_opens(post, path, fields):
    status, kind, text = post(path, body_of(path, fields) if fields else {})
    assert status in (400, 404) and kind == "application/json"
    ERROR(json.loads(text))


def test_an_error_in_a_stream_comes_before_done(own_server):
    connection = http.client.HTTPConnection("127.0.0.1", own_server.port, timeout=60)
    body = {"prompt": "1, 2, 3,", "max_tokens": 60000, "ignore_eos": True, "stream": True, "n": 8}
    connection.request("POST", TEXT, json.dumps(body))
    response = connection.getresponse()
    first = response.readline()
    assert first.startswith(b"data: ")
    own_server.process.terminate()
    assert own_server.logged("stopping:")  # two of a kind at once would be one
    own_server.process.terminate()
    events = events_of((first + response.read()).decode())
    assert events[-1] == "[DONE]"
    ERROR(json.loads(events[-2]))
    assert all("choices" in json.loads(event) for event in events[:-2])
