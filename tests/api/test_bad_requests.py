"""Some hundreds of bad requests over one kept-alive connection: each gets the status, the code and
the field's name that it should, and the server is none the worse for it.

Numbers in names are those of the list of known vulnerabilities that the tests come from.
"""
import http.client
import json
import pathlib

import pytest

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
TOKENIZE, DETOKENIZE = "/tokenize", "/detokenize"
MESSAGES = [{"role": "user", "content": "hi"}]
VOCABULARY, CONTEXT = 4096, 2048  # the demo model's
MAX_RSS_GROWTH = 64 << 20  # bytes; the allocator keeps what the largest body needed

INVALID, UNSUPPORTED, MISSING = "invalid_value", "unsupported_value", "missing_required_parameter"
JSON, TOO_LONG = "invalid_json", "context_length_exceeded"

CASES = []


def case(path, body, param, code=INVALID, status=400):
    """`body` is bytes, or JSON to be encoded."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    CASES.append((path, data, status, code, param))


def chat(param, value, code=INVALID, **more):
    case(CHAT, {"messages": MESSAGES, param: value, **more}, param, code)


def text(param, value, code=INVALID, **more):
    case(TEXT, {"prompt": "x", param: value, **more}, param, code)


def raw(field, literal, code=INVALID, param=None):
    """A literal that Python would not write, such as 1e309."""
    case(TEXT, b'{"prompt":"x","%s":%s}' % (field.encode(), literal),
         field if param is None and code == INVALID else param, code)


# 31: every integer option gets the same odd values.
INTEGERS = {"n": (1, 128), "best_of": (1, 128), "top_k": (-1, 2**31 - 1),
            "seed": (-2**63, 2**63 - 1), "max_tokens": (0, 2**31 - 1),
            "max_completion_tokens": (1, 2**31 - 1), "min_tokens": (0, 2**31 - 1),
            "priority": (1 - 2**31, 2**31 - 1), "logprobs": (-1, 2**30),
            "prompt_logprobs": (-1, 2**30), "max_streaming_response_tokens": (1, 2**31 - 1),
            "truncate_prompt_tokens": (-1, 2**31 - 1)}
for name, (low, high) in INTEGERS.items():
    odd = ("5", True, [], {}, 1.5, low - 1, high + 1, 2**63, 2**64, -2**63 - 1)
    for value in {json.dumps(value): value for value in odd}.values():
        text(name, value)
    raw(name, b"1e30")
    raw(name, b"1e309", JSON)
    raw(name, b"NaN", JSON)

NUMBERS = {"temperature": (-0.001, 1e7), "top_p": (-0.001, 1.001), "min_p": (-0.001, 1.001),
           "repetition_penalty": (0, 1e7), "presence_penalty": (-2.001, 2.001),
           "frequency_penalty": (-2.001, 2.001)}
for name, outside in NUMBERS.items():
    for value in ("1", True, [], {}, 1e300, -1e300, *outside):
        chat(name, value)
    raw(name, b"-1e309", JSON)
    raw(name, b"Infinity", JSON)

SWITCHES = ["stream", "logprobs", "ignore_eos", "skip_special_tokens", "return_token_ids",
            "include_stop_str_in_output", "add_generation_prompt", "continue_final_message",
            "disable_chat_template", "add_special_tokens", "parse_special_tokens", "detokenize",
            "store", "parallel_tool_calls"]
for name in SWITCHES:
    for value in (1, "true", []):
        chat(name, value)

for name in ("guided_regex", "guided_choice", "guided_grammar", "structural_tag",
             "structured_outputs", "guided_decoding_backend"):
    chat(name, True)
chat("guided_json", {"type": 5}, UNSUPPORTED)
chat("guided_json", {"not": {"type": "null"}}, UNSUPPORTED)
NOT_YET = ["response_max_tokens", "mm_hashes",
           "functions", "function_call", "audio", "temp_scaled_logprobs",
           "top_p_normalized_logprobs",
           "allowed_token_ids", "logits_processors"]
for name in NOT_YET:
    chat(name, True, UNSUPPORTED)
for name in ("prompt_embeds", "suffix"):  # 32, 44
    text(name, "AAAA", UNSUPPORTED)
chat("use_beam_search", True, UNSUPPORTED)
chat("echo", True, UNSUPPORTED)
chat("detokenize", False, UNSUPPORTED)
chat("return_tokens_as_token_ids", 1)
chat("include_draft_logprobs", True)  # nothing drafts
for name in ("logprob_token_ids", "repetition_detection"):
    chat(name, [1], UNSUPPORTED)
chat("truncation_side", "middle")
chat("response_format", {"type": "json_object", "grammar": "a"}, UNSUPPORTED)
chat("response_format", {"type": "json_schema"})
for kind in ("grammar", ""):
    chat("response_format", {"type": kind}, UNSUPPORTED)
chat("response_format", {"type": "structural_tag"})
chat("response_format", {"type": "structural_tag", "format": {"type": "dispatch"}}, UNSUPPORTED)
for value in ({}, {"type": 5}, "text", ["text"]):
    chat("response_format", value)
chat("modalities", ["text", "audio"], UNSUPPORTED)
chat("modalities", "text")
chat("reasoning_effort", "extreme")
chat("reasoning_effort", 5)
for name in ("user", "service_tier", "safety_identifier", "prompt_cache_key", "verbosity"):
    chat(name, 5)
chat("metadata", "x")
chat("metadata", {"raw_request": False})
chat("prediction", "x")
for value in (5, "", "x" * 1025, ["x"]):
    chat("cache_salt", value)
chat("cache_prompt", 1)
chat("request_id", 5)
chat("request_id", "x" * 257)

# Messages.
for value in ("hi", 5, {}, [], [5.5], [None], ["hi"], [[]], [1, "a"], [{}], [{"content": "x"}],
              [{"role": "user"}], [{"role": "", "content": "x"}], [{"role": 5, "content": "x"}],
              [{"role": "user", "content": 5}], [{"role": "user", "content": {}}],
              [{"role": "user", "content": ["x"]}], [{"role": "user", "content": [{}]}],
              [{"role": "user", "content": [{"type": "text"}]}],
              [{"role": "user", "content": [{"type": "text", "text": 5}]}],
              [VOCABULARY], [-1], [2**31]):
    case(CHAT, {"messages": value}, "messages")
for kind in ("image_url", "video_url", "input_audio", "file"):  # 49
    case(CHAT, {"messages": [{"role": "user", "content": [{"type": kind}]}]}, "messages",
         UNSUPPORTED)
case(CHAT, {}, "messages", MISSING)
case(CHAT, {"messages": None}, "messages", MISSING)
case(CHAT, {"prompt": "x"}, "messages", MISSING)
case(CHAT, {"messages": [{"role": "user", "content": "word " * 20000}]}, "messages", TOO_LONG)
case(CHAT, {"messages": [7] * CONTEXT}, "messages", TOO_LONG)
for role in ("usr", "User", "narrator", "<|im_start|>"):
    case(CHAT, {"messages": [{"role": role, "content": "x"}]}, "messages")
    case(TOKENIZE, {"messages": [{"role": role, "content": "x"}]}, "messages")
for value in ("x", {}, [5.5], [-1], [[1], [2]], [1, "a"]):
    chat("prompt_token_ids", value)
for value in ("x", {}, [5.5], [-1], [VOCABULARY], 5):
    chat("completion_token_ids", value)

# 12: variables of templates; 34: tools.
for name in ("messages", "tools", "tokenize", "add_generation_prompt", "continue_final_message",
             "chat_template", "bos_token", "eos_token", "return_dict"):
    chat("chat_template_kwargs", {name: True})
for value in ("x", [], 5, {f"k{i}": i for i in range(300)}):
    chat("chat_template_kwargs", value)
for value in ("{% for %}", "{{", "{% endif %}", "{{ 1 | nosuchfilter }}"):
    chat("chat_template", value)
for value in ("{% for i in range(1000000000) %}x{% endfor %}", "{{ 'x' * 1000000000 }}",
              "{{ ''.__class__.__mro__ }}", "{{ cycler.__init__.__globals__ }}",
              "{% include '/etc/passwd' %}", "{{ 10 ** 100000000 }}",
              "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
              "{{ " + "(" * 100000 + ")" * 100000 + " }}"):  # 10, 11
    chat("chat_template", value)
chat("chat_template", 5)
case(CHAT, {"messages": MESSAGES, "chat_template": "{{ raise_exception('no') }}"},
     "chat_template")
for value in ("x", {}, 5, [5], [{}], [{"type": "function"}], [{"function": {}}],
              [{"function": {"name": 5}}]):
    chat("tools", value)
chat("tool_choice", 5)
chat("tool_choice", "required")
FUNCTION = {"type": "function", "function": {"name": "f"}}
for value in ({"type": "function", "function": {"name": "f", "strict": "yes"}},
              {"type": "function", "function": {"name": "f", "strict": 1}}):
    chat("tools", [value])
case(CHAT, {"messages": MESSAGES, "tool_choice": "required", "tools": [
    {"type": "function", "function": {"name": "a b"}}]}, "tools")
case(CHAT, {"messages": MESSAGES, "tool_choice": "required", "tools": [
    {"type": "function", "function": {"name": "f", "parameters": {"uniqueItems": True}}}]}, "tools",
     UNSUPPORTED)
for value in ({"type": "function", "function": {"name": "g"}}, {"type": "function"}, "x",
              {"type": "allowed_tools", "tools": []}, {"type": "allowed_tools", "mode": "auto"}):
    chat("tool_choice", value, tools=[FUNCTION])
for value in ("x", {}, ["x"], 5):
    chat("documents", value)
chat("continue_final_message", True)
BEGUN = [*MESSAGES, {"role": "assistant", "content": "he"}]
case(CHAT, {"messages": BEGUN, "continue_final_message": True, "add_generation_prompt": True},
     "continue_final_message")

# 29, 36: prompts, their number and their tokens.
for value in (5, {}, True, [], [None], [True], [[]], [[], []], ["x", 5], ["x", []], [1, "x"],
              [[1], "x", [2.5]], [[[1]]], [1.5], [-1], [VOCABULARY], [[VOCABULARY]], [2**31],
              [2**63], ["x"] * 2049, [["x"]]):
    case(TEXT, {"prompt": value}, "prompt")
text("prompt", "")  # this tokenizer puts no BOS before it
text("prompt", ["x"] * 1025, n=2)
case(TEXT, {}, "prompt", MISSING)
case(TEXT, {"prompt": None}, "prompt", MISSING)
case(TEXT, {"prompt": [5] * CONTEXT}, "prompt", TOO_LONG)
case(TEXT, {"prompt": "word " * 20000}, "prompt", TOO_LONG)
case(TEXT, {"prompt": "x" * (8 << 20)}, "prompt", TOO_LONG)
case(TEXT, {"prompt": "word " * 20000, "truncate_prompt_tokens": 5000}, "prompt", TOO_LONG)
case(TEXT, {"prompt": "x", "min_tokens": CONTEXT}, "prompt", TOO_LONG)
case(TEXT, {"prompt": "x" * (2 << 20), "truncate_prompt_tokens": 5}, "prompt", TOO_LONG)
text("truncate_prompt_tokens", 0)
text("prompt_token_ids", [[1], []])
text("prompt_token_ids", [[1], "x"])
text("max_tokens", 0)
text("min_tokens", 5, max_tokens=4)

# Stops and words.
for value in (5, True, {}, [5], ["x", None], ["x"] * 65, "x" * 1025, ["x" * 1025], [["x"]]):
    chat("stop", value)
for value in ("x", 5, {}, ["x"], [-1], [VOCABULARY], [1.5], [2**31], [1] * 1025):
    chat("stop_token_ids", value)
for value in (5, {}, [""], [5], "", ["x"] * 1025, ["word " * 100]):
    chat("bad_words", value)
for value in (5, "x", {}, [[]], ["x"], [[1, "x"]], [-1], [VOCABULARY], [[1] * 65]):
    chat("bad_words_token_ids", value)
for value in ("x", 5, [], [[1, 2]], {"": 1}, {"x": 1}, {"-1": 1}, {"+1": 1}, {" 1": 1}, {"1 ": 1},
              {"01": 1}, {"1.0": 1}, {"0x1": 1}, {"1\0": 1}, {str(VOCABULARY): 1}, {str(2**31): 1},
              {str(2**64): 1}, {"1": "1"}, {"1": None}, {"1": True}, {"1": 101}, {"1": -101},
              {str(i): 1 for i in range(VOCABULARY + 1)}):
    chat("logit_bias", value)
for value in ("x", [], {"logit_bias": 5}, {"logit_bias": {"x": 1}}):
    chat("logits_processors_args", value)
for value in ({"thinking_budget": 5}, {"think_stop_sentence": "x"}, {"other": 1}):
    chat("logits_processors_args", value, UNSUPPORTED)

# 28: choices; log-probabilities; streams.
chat("best_of", 2, n=3)
chat("best_of", 3, n=2, stream=True)
chat("top_logprobs", 5)
chat("top_logprobs", 21, logprobs=True)
chat("top_logprobs", -2, logprobs=True)
chat("top_logprobs", True, logprobs=True)
chat("top_logprobs", -1, logprobs=True)
chat("logprobs", 3)
chat("prompt_logprobs", 21)
text("logprobs", 21)
text("echo", 1)
chat("stream_options", {})
chat("stream_options", {"include_usage": True}, stream=False)
chat("stream_options", 5, stream=True)
for name in ("include_usage", "continuous_usage_stats", "include_obfuscation"):
    chat("stream_options", {name: 1}, stream=True)

# Models.
for path, body in ((CHAT, {"messages": MESSAGES}), (TEXT, {"prompt": "x"}),
                   (TOKENIZE, {"prompt": "x"}), (DETOKENIZE, {"tokens": [5]})):
    case(path, {**body, "model": "nope"}, "model", "model_not_found", 404)
    case(path, {**body, "model": "demo\0"}, "model", "model_not_found", 404)
    case(path, {**body, "model": "x" * 10000}, "model", "model_not_found", 404)
    case(path, {**body, "model": 5}, "model")

# Tokenizing.
for value in (5, [], ["x"], {}):
    case(TOKENIZE, {"prompt": value}, "prompt")
case(TOKENIZE, {"prompt": "x" * (2 << 20)}, "prompt", TOO_LONG)
case(TOKENIZE, {}, "prompt", MISSING)
case(TOKENIZE, {"prompt": "x", "messages": MESSAGES}, "prompt")
case(TOKENIZE, {"prompt": "x", "add_special_tokens": 1}, "add_special_tokens")
case(TOKENIZE, {"prompt": "x", "return_token_strs": "no"}, "return_token_strs")
case(TOKENIZE, {"messages": []}, "messages")
case(TOKENIZE, {"messages": MESSAGES, "chat_template": "{{"}, "chat_template")
case(TOKENIZE, {"messages": MESSAGES, "continue_final_message": True}, "continue_final_message")
case(TOKENIZE, {"messages": MESSAGES, "chat_template_kwargs": {"tokenize": True}},
     "chat_template_kwargs")
case(DETOKENIZE, {}, "tokens", MISSING)
for value in ("x", 5, {}, ["x"], [-1], [VOCABULARY], [1.5], [[1]], [None], [400] * 1_100_000):
    case(DETOKENIZE, {"tokens": value}, "tokens")

# Products: each factor is fine by itself.
text("logprobs", 20, prompt=["x"] * 128, n=16, max_tokens=1000)
chat("top_logprobs", 20, logprobs=True, n=128)
text("prompt_logprobs", 20, prompt=[[400] * 1000] * 16, n=128, max_tokens=1)
text("prompt_logprobs", 20, prompt=[400] * 1900, stream=True, max_tokens=1)

# 40 and the rest of JSON.
for path in (CHAT, TEXT, TOKENIZE, DETOKENIZE):
    for body in (b"", b"{", b"}", b"nope", b"'x'", b'{"a":1,}', b'{"a" 1}', b'{a:1}', b"{} x",
                 b'{"a":1}{"b":2}', b"\xff", b'{"a":"\xff"}', b'{"a":"\xed\xa0\x80"}',
                 b'{"a":"\xc0\x80"}', b'{"a":"\\x"}', b'{"a":"\\ud80"}',
                 b'{"a":"\n"}', b'{"a":"\0"}', b'{"a":01}', b'{"a":+1}', b'{"a":.5}', b'{"a":1.}',
                 b'{"a":1e}', b'{"a":0x1}', b'{"a":1e309}', b'{"a":NaN}', b'{"a":1,"a":1}',
                 b"prompt=hi&n=1", b"\x1f\x8b\x08\0\0\0\0\0", b'{"a":' + b"9" * 5000 + b"}",
                 b"\xfe\xff\0{\0}", b"/* x */{}"):
        case(path, body, None, JSON)
    for body in (b"[]", b"null", b"5", b'"x"', b"true", b"[[]]", b"-0"):
        case(path, body, None, INVALID)
case(CHAT, b'{"messages":' + b"[" * 1_000_000, None, JSON)
case(CHAT, b'{"messages":' + b"[" * 100_000 + b"]" * 100_000 + b"}", None, JSON)
case(CHAT, b'{"a":' * 1_000_000, None, JSON)
case(CHAT, b"{" + b",".join(b'"k%d":1' % i for i in range(1025)) + b"}", None, JSON)
case(TEXT, b'{"prompt":"' + b"\\u0041" * 300_000 + b"\xff", None, JSON)

# Routes.
case("/v1/nope", b"{}", None, "route_not_found", 404)
case("//v1/chat/completions", b"{}", None, "route_not_found", 404)
case("/v1/chat/completions/", b"{}", None, "route_not_found", 404)
case("/v1/models", b"{}", None, "method_not_allowed", 405)


def rss(process):
    status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) * 1024


@pytest.fixture(scope="module")
def connection(server):
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    yield connection
    connection.close()


def post(connection, path, data):
    connection.request("POST", path, data, {"Content-Type": "application/json"})
    response = connection.getresponse()
    return response.status, response.read()


def problem(connection, path, data, status, code, param):
    """What is wrong with the answer; None if nothing is."""
    got, body = post(connection, path, data)
    told = f"POST {path} {data[:120]!r}: {got} {body[:300]!r}"
    if got != status:
        return f"expected {status}: {told}"
    document = json.loads(body)
    error = document.get("error", {})
    if list(document) != ["error"] or set(error) != {"message", "type", "param", "code"}:
        return f"not the four keys: {told}"
    if not isinstance(error["message"], str) or not 0 < len(error["message"]) <= 600:
        return f"a message of a strange length: {told}"
    if error["type"] != "invalid_request_error":
        return f"wrong type: {told}"
    if (error["code"], error["param"]) != (code, param):
        return f"expected {code}, {param}: {told}"
    return None


def test_there_are_hundreds():
    assert len(CASES) >= 300
    assert len({(path, data) for path, data, *_ in CASES}) == len(CASES)


def test_each_is_refused_by_name_and_does_no_harm(server, connection):
    good = json.dumps({"prompt": "x", "max_tokens": 2}).encode()
    assert post(connection, TEXT, good)[0] == 200
    problems = []
    for round_number in range(2):
        problems += filter(None, (problem(connection, *bad) for bad in CASES))
        assert not problems, "\n".join(problems)
        if round_number == 0:
            before = rss(server.process)
    assert rss(server.process) - before < MAX_RSS_GROWTH
    assert post(connection, TEXT, good)[0] == 200
    assert server.metric("fastdeploy:num_requests_running") == 0


def test_bodies_that_are_odd_but_good(connection):
    for data in (b'\xef\xbb\xbf{"prompt":"x","max_tokens":1}', b' \r\n\t{"prompt":"x","max_tokens":1.0} ',
                 b'{"prompt":"a\\u0000b","max_tokens":1}',
                 b'{"prompt":"\\ud83d\\ude80","max_tokens":1}',
                 b'{"prompt":[[5],"x"],"max_tokens":1,"stop":"","logit_bias":{}}',
                 b'{"prompt":"x","max_tokens":1,"temperature":1e-320,"top_k":2147483647}',
                 b'{"prompt":"x","max_tokens":1,"stop":["a","","' + b"b" * 1024 + b'"]}',
                 b'{"prompt":"x","max_tokens":2147483647,"stop":["a"],"seed":-9223372036854775808}',
                 b'{"prompt":"x","max_tokens":1,"guided_json":null,"n":null,"nobody_knows":{}}'):
        status, body = post(connection, TEXT, data)
        assert status == 200, (data, body)


def test_every_token_can_be_biased(connection):
    bias = {str(i): -100 for i in range(VOCABULARY)}
    bias["77"] = 100
    body = {"prompt": "x", "max_tokens": 1, "temperature": 0, "logit_bias": bias,
            "return_token_ids": True}
    status, answer = post(connection, TEXT, json.dumps(body).encode())
    assert status == 200, answer
    assert json.loads(answer)["choices"][0]["completion_token_ids"] == [77]


def test_the_content_type_is_json(server):
    for kind, status in (("application/json; charset=utf-8", 200), ("text/plain", 415),
                         ("application/x-www-form-urlencoded", 415)):
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
        connection.request("POST", TEXT, b'{"prompt":"x","max_tokens":1}', {"Content-Type": kind})
        response = connection.getresponse()
        assert response.status == status, response.read()
        response.read()
        connection.close()


def test_item_33_users_cannot_spell_special_tokens(connection):
    def tokens(**body):
        status, answer = post(connection, TOKENIZE, json.dumps(body).encode())
        assert status == 200, answer
        return json.loads(answer)["tokens"]

    end = tokens(prompt="<|end_of_sentence|>", add_special_tokens=False)
    assert len(end) == 1  # a raw prompt is the client's own
    said = [{"role": "user", "content": "a<|end_of_sentence|>b"}]
    plain = [{"role": "user", "content": "ab"}]
    count = lambda ids: ids.count(end[0])
    assert count(tokens(messages=said)) == count(tokens(messages=plain))
    assert count(tokens(messages=said, parse_special_tokens=True)) == count(tokens(messages=plain)) + 1
