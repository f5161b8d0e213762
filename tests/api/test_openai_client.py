"""Skiff's server as the official OpenAI client sees it."""
import json
import math
import threading

import openai
import pytest

MODEL = "demo"
CAPITAL = [{"role": "user", "content": "What is the capital of France?"}]
GREEDY = {"model": MODEL, "messages": CAPITAL, "temperature": 0}
# Runs until it is stopped: for tests that hang up.
ENDLESS = {"model": MODEL, "prompt": "1, 2, 3,", "max_tokens": 60000, "temperature": 1,
           "extra_body": {"ignore_eos": True}}


def completion(client, **options):
    return client.completions.create(**{"model": MODEL, "prompt": "The capital of", "temperature": 0,
                                        "max_tokens": 8, **options})


def text_of(stream):
    return "".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices)


def test_chat(client):
    reply = client.chat.completions.create(**GREEDY)
    assert reply.object == "chat.completion"
    assert reply.model == MODEL
    assert reply.id.startswith("chatcmpl-")
    assert reply._request_id
    assert "Paris" in reply.choices[0].message.content
    assert reply.choices[0].message.role == "assistant"
    assert reply.choices[0].finish_reason == "stop"
    assert reply.usage.total_tokens == reply.usage.prompt_tokens + reply.usage.completion_tokens
    assert reply.usage.prompt_tokens > 0 and reply.usage.completion_tokens > 0


def test_chat_streams_the_same_text(client):
    whole = client.chat.completions.create(**GREEDY)
    chunks = list(client.chat.completions.create(**GREEDY, stream=True,
                                                 stream_options={"include_usage": True}))
    assert text_of(chunks) == whole.choices[0].message.content
    assert chunks[0].choices[0].delta.role == "assistant"
    assert len({chunk.id for chunk in chunks}) == 1
    assert chunks[-1].choices == []
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens
    assert chunks[-2].choices[0].finish_reason == "stop"
    assert all(chunk.usage is None for chunk in chunks[:-1])


@pytest.mark.parametrize("options", [
    {"include_usage": False}, {"continuous_usage_stats": True}, {"include_obfuscation": False}])
def test_without_include_usage_every_chunk_has_its_choice(client, options):
    """What most programs do with a stream: `chunk.choices[0]`, without asking whether there is one."""
    chunks = list(client.chat.completions.create(**GREEDY, stream=True, stream_options=options))
    assert "Paris" in "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    assert all(chunk.usage is None for chunk in chunks)


def test_half_a_surrogate_pair(client):
    """json.dumps escapes it, and the client sends it so."""
    cut = "\U0001F6A2 ahoy".encode("utf-16-le")[2:].decode("utf-16-le", "surrogatepass")
    body = json.dumps({**GREEDY, "messages": [{"role": "user", "content": cut}], "max_tokens": 2})
    assert "\\udea2" in body
    reply = client.post("/chat/completions", cast_to=object, content=body.encode(),
                        options={"headers": {"Content-Type": "application/json"}})
    assert reply["choices"][0]["finish_reason"] in ("stop", "length")


def test_token_ids_in_vllms_shape(client):
    body = {"return_token_ids": True}
    chat = client.chat.completions.create(**GREEDY, extra_body=body)
    assert len(chat.prompt_token_ids) == chat.usage.prompt_tokens
    assert len(chat.choices[0].token_ids) == chat.usage.completion_tokens
    chunks = list(client.chat.completions.create(**GREEDY, extra_body=body, stream=True))
    assert chunks[0].prompt_token_ids == chat.prompt_token_ids
    streamed = [i for c in chunks for i in getattr(c.choices[0], "token_ids", None) or []]
    assert streamed == chat.choices[0].token_ids
    whole = completion(client, extra_body=body).choices[0]
    assert whole.token_ids and whole.prompt_token_ids


def test_what_an_operator_did_not_allow_is_refused(own_server):
    client = own_server.client()
    for field, value, flag in (("chat_template", "{{ 1 }}", "--trust-request-chat-template"),
                               ("priority", -5, "--scheduling-policy priority")):
        with pytest.raises(openai.BadRequestError) as caught:
            client.chat.completions.create(**GREEDY, extra_body={field: value})
        assert caught.value.param == field and caught.value.code == "unsupported_value"
        assert flag in caught.value.message
    assert client.chat.completions.create(**GREEDY, extra_body={"priority": 0})


def test_an_error_in_a_stream_is_an_exception(own_server):
    with pytest.raises(openai.APIError, match="timeout"):
        for _ in own_server.client().completions.create(
                model=MODEL, prompt="1, 2,", stream=True, max_tokens=60000,
                extra_body={"ignore_eos": True, "timeout": 0.2}):
            pass


def test_a_conversation_goes_on(client):
    messages = [{"role": "user", "content": "My name is Barnaby."},
                {"role": "assistant", "content": "Hello Barnaby."},
                {"role": "user", "content": "What is my name?"}]
    reply = client.chat.completions.create(model=MODEL, messages=messages, temperature=0)
    assert "Barnaby" in reply.choices[0].message.content


def test_content_parts(client):
    parts = [{"type": "text", "text": CAPITAL[0]["content"]}]
    reply = client.chat.completions.create(model=MODEL, temperature=0,
                                           messages=[{"role": "user", "content": parts}])
    assert "Paris" in reply.choices[0].message.content


def test_tools_are_offered_and_called_as_text(client):
    tool = {"type": "function", "function": {
        "name": "get_current_weather", "description": "Get the current weather",
        "parameters": {"type": "object", "properties": {"location": {"type": "string"}}}}}
    messages = [{"role": "user", "content": "What's the weather like in Boston?"}]
    plain = client.chat.completions.create(model=MODEL, messages=messages, temperature=0)
    offered = client.chat.completions.create(model=MODEL, messages=messages, temperature=0,
                                             tools=[tool])
    assert offered.usage.prompt_tokens > plain.usage.prompt_tokens
    assert offered.choices[0].message.tool_calls[0].function.name == "get_current_weather"


def test_template_arguments(client):
    reply = client.chat.completions.create(
        model=MODEL, temperature=0, messages=[{"role": "user", "content": "What is 17 + 25?"}],
        extra_body={"chat_template_kwargs": {"enable_thinking": True}})
    assert "42" in reply.choices[0].message.content


def test_a_template_of_the_request(client):
    template = "{% for m in messages %}{{ m.content }}{% endfor %}"
    reply = client.chat.completions.create(
        **{**GREEDY, "max_tokens": 4}, extra_body={"chat_template": template, "return_token_ids": True})
    raw = completion(client, prompt=CAPITAL[0]["content"], max_tokens=4,
                     extra_body={"return_token_ids": True, "add_special_tokens": False})
    assert reply.choices[0].message.prompt_token_ids == raw.choices[0].prompt_token_ids
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(**GREEDY, extra_body={"chat_template": "{% for %}"})
    assert caught.value.param == "chat_template"


def test_completions_stream_the_same_text(client):
    whole = completion(client)
    chunks = list(completion(client, stream=True))
    assert whole.object == "text_completion"
    assert whole.id.startswith("cmpl-")
    assert "".join(chunk.choices[0].text for chunk in chunks) == whole.choices[0].text
    assert chunks[-1].choices[0].finish_reason == whole.choices[0].finish_reason


def test_length_ends_a_reply(client):
    reply = completion(client, max_tokens=3, extra_body={"ignore_eos": True})
    assert reply.choices[0].finish_reason == "length"
    assert reply.usage.completion_tokens == 3


def test_prompts_in_every_form(client):
    ids = completion(client, extra_body={"return_token_ids": True}).choices[0].prompt_token_ids
    text = completion(client).choices[0].text
    assert completion(client, prompt=ids).choices[0].text == text
    both = completion(client, prompt=["The capital of", "12 plus 30"])
    assert [choice.index for choice in both.choices] == [0, 1]
    assert both.choices[0].text == text
    assert [c.text for c in completion(client, prompt=[ids, ids]).choices] == [text, text]


def test_echo(client):
    assert completion(client, echo=True).choices[0].text == \
        "The capital of" + completion(client).choices[0].text


def test_several_choices(client):
    reply = client.chat.completions.create(**{**GREEDY, "temperature": 1.0, "n": 3, "seed": 5})
    assert [choice.index for choice in reply.choices] == [0, 1, 2]
    greedy = client.chat.completions.create(**GREEDY, n=2)
    assert greedy.choices[0].message.content == greedy.choices[1].message.content
    streamed = {0: "", 1: ""}
    for chunk in client.chat.completions.create(**GREEDY, n=2, stream=True):
        streamed[chunk.choices[0].index] += chunk.choices[0].delta.content or ""
    assert streamed[0] == streamed[1] == greedy.choices[0].message.content


@pytest.mark.parametrize("stop", ["Par", ["xyzzy", "Par"]])
@pytest.mark.parametrize("stream", [False, True])
def test_stop_strings(client, stop, stream):
    full = client.chat.completions.create(**GREEDY).choices[0].message.content
    reply = client.chat.completions.create(**GREEDY, stop=stop, stream=stream)
    text = text_of(reply) if stream else reply.choices[0].message.content
    assert text == full[:full.index("Par")]
    if not stream:
        assert reply.choices[0].finish_reason == "stop"
        assert reply.choices[0].stop_reason == "Par"


def test_stop_string_kept(client):
    reply = client.chat.completions.create(**GREEDY, stop="Par",
                                           extra_body={"include_stop_str_in_output": True})
    assert reply.choices[0].message.content.endswith("Par")


def test_stop_token_ids(client):
    ids = completion(client, extra_body={"return_token_ids": True}).choices[0].completion_token_ids
    reply = completion(client, extra_body={"stop_token_ids": [ids[2]], "return_token_ids": True})
    first = ids.index(ids[2])
    assert reply.choices[0].completion_token_ids == ids[:first + 1]
    assert reply.choices[0].stop_reason == ids[2]


def test_seeds_repeat(client):
    def draw(seed):
        return completion(client, temperature=1.5, seed=seed, max_tokens=24,
                          extra_body={"ignore_eos": True}).choices[0].text
    assert draw(1) == draw(1)
    assert len({draw(seed) for seed in range(6)}) > 1
    assert len({draw(None) for _ in range(6)}) > 1


def test_chat_logprobs(client):
    options = {**GREEDY, "logprobs": True, "top_logprobs": 3}
    whole = client.chat.completions.create(**options).choices[0].logprobs.content
    for entry in whole:
        assert entry.logprob <= 1e-6
        assert len(entry.top_logprobs) == 3
        assert entry.token == entry.top_logprobs[0].token  # greedy takes the best
        values = [top.logprob for top in entry.top_logprobs]
        assert values == sorted(values, reverse=True)
        assert sum(math.exp(value) for value in values) <= 1 + 1e-4
    streamed = []
    for chunk in client.chat.completions.create(**options, stream=True):
        if chunk.choices and chunk.choices[0].logprobs:
            streamed += chunk.choices[0].logprobs.content
    assert [entry.token for entry in streamed] == [entry.token for entry in whole]
    text = b"".join(bytes(entry.bytes) for entry in whole).decode()
    assert "Paris" in text


def test_completion_logprobs(client):
    choice = completion(client, logprobs=2).choices[0]
    logprobs = choice.logprobs
    assert len(logprobs.tokens) == len(logprobs.token_logprobs) == len(logprobs.text_offset)
    assert logprobs.text_offset[0] == 0
    for token, value, top in zip(logprobs.tokens, logprobs.token_logprobs, logprobs.top_logprobs):
        assert top[token] == value


def test_prompt_logprobs(client):
    reply = completion(client, extra_body={"prompt_logprobs": 1, "return_token_ids": True})
    choice = reply.choices[0]
    ids, positions = choice.prompt_token_ids, choice.prompt_logprobs
    assert len(positions) == len(ids) == reply.usage.prompt_tokens
    assert positions[0] is None
    for token, position in zip(ids[1:], positions[1:]):
        assert position[str(token)]["logprob"] <= 1e-6
        assert position[str(token)]["rank"] >= 1


def test_bias_and_bad_words(client):
    ids = completion(client, extra_body={"return_token_ids": True}).choices[0].completion_token_ids
    biased = completion(client, max_tokens=1, logit_bias={str(ids[0]): -100},
                        extra_body={"return_token_ids": True})
    assert biased.choices[0].completion_token_ids[0] != ids[0]
    full = client.chat.completions.create(**GREEDY).choices[0].message.content
    banned = client.chat.completions.create(**GREEDY, extra_body={"bad_words": ["Paris"]})
    assert "Paris" in full and "Paris" not in banned.choices[0].message.content


def test_min_tokens(client):
    short = client.chat.completions.create(**GREEDY)
    least = short.usage.completion_tokens + 5
    long = client.chat.completions.create(**GREEDY, extra_body={"min_tokens": least})
    assert long.usage.completion_tokens >= least


def test_prefix_cache_is_told(client):
    messages = [{"role": "user", "content": "count to ten. " * 40}]
    options = {"model": MODEL, "messages": messages, "temperature": 0, "max_tokens": 2}
    client.chat.completions.create(**options)
    again = client.chat.completions.create(**options)
    cached = again.usage.prompt_tokens_details.cached_tokens
    assert 0 < cached < again.usage.prompt_tokens


def test_models(client):
    assert MODEL in [model.id for model in client.models.list()]
    assert client.models.retrieve(MODEL).max_model_len > 0


@pytest.mark.parametrize("body, param", [
    ({"temperature": -1}, "temperature"),
    ({"top_p": 2}, "top_p"),
    ({"n": 0}, "n"),
    ({"max_tokens": 0}, "max_tokens"),
    ({"messages": []}, "messages"),
    ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages"),
    ({"response_format": {"type": "nothing"}}, "response_format"),
    ({"logit_bias": {"1": 1000}}, "logit_bias"),
    ({"stop": 5}, "stop"),
])
def test_bad_values_are_named(client, body, param):
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(**GREEDY, extra_body=body)
    assert caught.value.param == param
    assert caught.value.type == "invalid_request_error"


def test_unknown_model(client):
    with pytest.raises(openai.NotFoundError) as caught:
        client.chat.completions.create(model="gpt-nothing", messages=CAPITAL)
    assert caught.value.code == "model_not_found"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("gpt-nothing")


def test_a_prompt_that_is_too_long(client):
    with pytest.raises(openai.BadRequestError) as caught:
        completion(client, prompt="word " * 100000)
    assert caught.value.code == "context_length_exceeded"
    assert "maximum context length is" in str(caught.value)


def test_concurrent_clients_get_their_own_replies(server):
    # Batching may change the last bits of a logit, so each reply is judged by what it says.
    countries = {"France": "Paris", "Germany": "Berlin", "Italy": "Rome", "Japan": "Tokyo"}
    wrong = []

    def ask(country, city, stream):
        with server.client() as client:
            messages = [{"role": "user", "content": f"What is the capital of {country}?"}]
            reply = client.chat.completions.create(model=MODEL, messages=messages, temperature=0,
                                                   stream=stream)
            text = text_of(reply) if stream else reply.choices[0].message.content
            if city not in text:
                wrong.append((country, text))

    threads = [threading.Thread(target=ask, args=(country, city, stream))
               for country, city in countries.items() for stream in (False, True)
               for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_hanging_up_frees_the_request(long_server):
    server = long_server
    running = lambda: server.metric("fastdeploy:num_requests_running")
    with server.client() as client:
        stream = client.completions.create(**ENDLESS, stream=True)
        next(iter(stream))
        assert server.eventually(lambda: running() >= 1)
        stream.close()
    assert server.eventually(lambda: running() == 0)
    with pytest.raises(openai.APITimeoutError):
        with server.client().with_options(timeout=1) as impatient:
            impatient.completions.create(**{**ENDLESS, "n": 16})
    assert server.eventually(lambda: running() == 0)
    assert server.eventually(lambda: server.metric("fastdeploy:available_gpu_block_num")
                             == server.metric("fastdeploy:max_gpu_block_num"))


def test_metrics_count(server, client):
    names = ["fastdeploy:requests_number", "fastdeploy:generation_tokens_total",
             "fastdeploy:time_to_first_token_seconds_count", "vllm:prompt_tokens_total"]
    before = [server.metric(name) for name in names]
    reply = completion(client)
    grown = [server.metric(name) - old for name, old in zip(names, before)]
    assert grown == [1, reply.usage.completion_tokens, 1, reply.usage.prompt_tokens]


def test_probes(server):
    assert server.get("/health") == ""
    assert json.loads(server.get("/version"))["version"]
    assert "server_load" in json.loads(server.get("/load"))


def test_sigterm_lets_a_stream_finish(own_server):
    with own_server.client() as client:
        stream = iter(client.completions.create(**{**ENDLESS, "max_tokens": 200}, stream=True))
        next(stream)
        codes = []
        stopper = threading.Thread(target=lambda: codes.append(own_server.terminate()))
        stopper.start()
        rest = list(stream)
        assert rest[-1].choices[0].finish_reason == "length"
    stopper.join()
    assert codes == [0]


def test_a_second_sigterm_cuts_off(own_server):
    with own_server.client() as client:
        stream = iter(client.completions.create(**ENDLESS, n=16, stream=True))
        next(stream)
        own_server.process.terminate()
        assert own_server.logged("stopping:")  # two of a kind at once would be one
        own_server.process.terminate()
        with pytest.raises((openai.APIError, openai.APIConnectionError)):
            list(stream)
    assert own_server.process.wait(20) == 3  # replies were cut off
