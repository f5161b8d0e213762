"""Every shape in which openai-python calls a server: raw, streamed, asynchronous, wrapped; and the
exception that it makes of each refusal."""
import asyncio
import re

import openai
import pytest

MODEL = "demo"
CAPITAL = [{"role": "user", "content": "What is the capital of France?"}]
GREEDY = {"model": MODEL, "messages": CAPITAL, "temperature": 0}
PROMPT = {"model": MODEL, "prompt": "The capital of", "temperature": 0, "max_tokens": 8}
PARIS = "The capital of France is Paris."
IDS = {"return_token_ids": True}


def chat_text(chunks):
    return "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)


# Headers


def test_the_request_id_is_a_header_and_part_of_the_id(client):
    raw = client.chat.completions.with_raw_response.create(**GREEDY)
    reply = raw.parse()
    assert raw.status_code == 200
    assert raw.headers["content-type"] == "application/json"
    assert raw.headers["x-request-id"] == raw.request_id == reply._request_id
    assert reply.id == "chatcmpl-" + raw.request_id
    assert reply.choices[0].message.content == PARIS


def test_a_clients_request_id_is_kept(client):
    named = {"X-Request-Id": "my-id-1"}
    assert client.chat.completions.create(**GREEDY, extra_headers=named)._request_id == "my-id-1"
    assert client.completions.create(**PROMPT, extra_headers=named).id == "cmpl-my-id-1"


def test_request_ids_differ(client):
    ids = {client.completions.create(**PROMPT)._request_id for _ in range(4)}
    assert len(ids) == 4


def test_headers_of_a_stream(client):
    raw = client.chat.completions.with_raw_response.create(**GREEDY, stream=True)
    assert raw.headers["content-type"].startswith("text/event-stream")
    assert "no-cache" in raw.headers["cache-control"]
    chunks = list(raw.parse())
    assert chat_text(chunks) == PARIS
    assert {chunk.id for chunk in chunks} == {"chatcmpl-" + raw.headers["x-request-id"]}


def test_lines_of_a_stream(client):
    with client.chat.completions.with_streaming_response.create(**GREEDY, stream=True) as response:
        lines = [line for line in response.iter_lines() if line]
    assert all(line.startswith("data: ") for line in lines)
    assert lines[-1] == "data: [DONE]"


def test_a_refusal_has_a_request_id_too(client):
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(**{**GREEDY, "temperature": -1})
    assert caught.value.request_id


# Chunks


def test_what_all_chunks_share(client):
    chunks = list(client.chat.completions.create(**GREEDY, stream=True))
    assert {(c.object, c.model, c.created) for c in chunks} == \
        {("chat.completion.chunk", MODEL, chunks[0].created)}
    reasons = [c.choices[0].finish_reason for c in chunks]
    assert reasons == [None] * (len(chunks) - 1) + ["stop"]
    assert [c.choices[0].delta.role for c in chunks] == ["assistant"] + [None] * (len(chunks) - 1)


def test_continuous_usage(client):
    chunks = list(client.chat.completions.create(
        **GREEDY, stream=True, stream_options={"include_usage": True, "continuous_usage_stats": True}))
    counts = [chunk.usage.completion_tokens for chunk in chunks]
    assert counts == sorted(counts) and counts[-1] == 8
    assert {chunk.usage.prompt_tokens for chunk in chunks} == {14}


def test_several_prompts_and_choices_stream(client):
    options = {**PROMPT, "prompt": ["The capital of", "1, 2, 3,"], "n": 2}
    whole = client.completions.create(**options)
    assert [choice.index for choice in whole.choices] == [0, 1, 2, 3]
    texts = ["", "", "", ""]
    usage = None
    for chunk in client.completions.create(**options, stream=True,
                                           stream_options={"include_usage": True}):
        for choice in chunk.choices:
            texts[choice.index] += choice.text
        usage = chunk.usage or usage
    assert texts == [choice.text for choice in whole.choices]
    assert usage.completion_tokens == whole.usage.completion_tokens
    assert usage.prompt_tokens == whole.usage.prompt_tokens


def test_token_ids_stream(client):
    whole = client.completions.create(**PROMPT, extra_body=IDS).choices[0]
    ids = []
    for chunk in client.completions.create(**PROMPT, stream=True, extra_body=IDS):
        ids += chunk.choices[0].completion_token_ids or []
    assert ids == whole.completion_token_ids
    lists = client.completions.create(**{**PROMPT, "prompt": [whole.prompt_token_ids]})
    assert lists.choices[0].text == whole.text


def test_completion_logprobs_stream(client):
    whole = client.completions.create(**PROMPT, logprobs=2).choices[0].logprobs
    tokens, values, offsets = [], [], []
    for chunk in client.completions.create(**PROMPT, logprobs=2, stream=True):
        part = chunk.choices[0].logprobs
        if part:
            tokens += part.tokens
            values += part.token_logprobs
            offsets += part.text_offset
    assert (tokens, values, offsets) == (whole.tokens, whole.token_logprobs, whole.text_offset)


def test_echo_with_logprobs_covers_the_prompt(client):
    """How evaluation harnesses score a text: echo, one log-probability per token, nothing new."""
    scored = client.completions.create(**{**PROMPT, "max_tokens": 0}, echo=True, logprobs=1)
    choice = scored.choices[0]
    assert choice.text == "".join(choice.logprobs.tokens) == PROMPT["prompt"]
    assert choice.logprobs.token_logprobs[0] is None
    assert all(value <= 1e-6 for value in choice.logprobs.token_logprobs[1:])
    assert scored.usage.completion_tokens == 0


def test_text_in_two_scripts_streams_whole_characters(client):
    messages = [{"role": "user", "content": "法国的首都是哪里？"}]
    options = {"model": MODEL, "messages": messages, "temperature": 0}
    whole = client.chat.completions.create(**options).choices[0].message.content
    assert re.search("[\u4e00-\u9fff]", whole)
    chunks = list(client.chat.completions.create(**options, stream=True))
    assert chat_text(chunks) == whole
    assert "\ufffd" not in "".join(c.choices[0].delta.content or "" for c in chunks)


# The .stream() helper and other wrappers


def test_the_stream_helper(client):
    with client.chat.completions.stream(**GREEDY, logprobs=True,
                                        stream_options={"include_usage": True}) as stream:
        events = list(stream)
        final = stream.get_final_completion()
    kinds = [event.type for event in events]
    assert kinds.count("content.done") == kinds.count("logprobs.content.done") == 1
    assert "".join(e.delta for e in events if e.type == "content.delta") == PARIS
    assert final.choices[0].message.content == PARIS
    assert final.choices[0].finish_reason == "stop"
    assert final.usage.completion_tokens == len(final.choices[0].logprobs.content) == 8


def test_parse_gives_what_the_class_asks_for(client):
    import pydantic

    class City(pydantic.BaseModel):
        name: str = pydantic.Field(max_length=20)
        capital: bool

    reply = client.chat.completions.parse(**GREEDY, response_format=City).choices[0]
    assert reply.finish_reason == "stop"
    assert isinstance(reply.message.parsed, City)


def test_models_are_a_page(client):
    page = client.models.list()
    assert page.object == "list"
    assert {model.object for model in page} == {"model"}
    assert client.models.retrieve(MODEL) == page.data[0]


# Asynchronous


def run_async(server, work):
    async def main():
        async with openai.AsyncOpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0,
                                      timeout=60) as client:
            return await work(client)
    return asyncio.run(main())


def test_async_calls_at_once(server):
    async def work(client):
        return await asyncio.gather(*[client.chat.completions.create(**GREEDY) for _ in range(16)])
    assert {r.choices[0].message.content for r in run_async(server, work)} == {PARIS}


def test_async_streams_at_once(server):
    async def one(client):
        stream = await client.chat.completions.create(**GREEDY, stream=True)
        return chat_text([chunk async for chunk in stream])

    async def work(client):
        return await asyncio.gather(*[one(client) for _ in range(16)])
    assert set(run_async(server, work)) == {PARIS}


def test_async_stream_helper(server):
    async def work(client):
        async with client.chat.completions.stream(**GREEDY) as stream:
            return (await stream.get_final_completion()).choices[0].message.content
    assert run_async(server, work) == PARIS


def test_a_cancelled_task_frees_its_request(long_server):
    async def work(client):
        task = asyncio.create_task(client.completions.create(
            model=MODEL, prompt="1, 2, 3,", temperature=1, n=8, extra_body={"ignore_eos": True}))
        while long_server.load() == 0:
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    run_async(long_server, work)
    assert long_server.eventually(lambda: long_server.load() == 0)


# Refusals


@pytest.mark.parametrize("call, kind, status, code, param", [
    (lambda c: c.chat.completions.create(**{**GREEDY, "top_p": 5}),
     openai.BadRequestError, 400, "invalid_value", "top_p"),
    (lambda c: c.chat.completions.create(**GREEDY, top_logprobs=2),
     openai.BadRequestError, 400, "invalid_value", "top_logprobs"),
    (lambda c: c.chat.completions.create(**GREEDY, stream_options={"include_usage": True}),
     openai.BadRequestError, 400, "invalid_value", "stream_options"),
    (lambda c: c.completions.create(**{**PROMPT, "prompt": ""}),
     openai.BadRequestError, 400, "invalid_value", "prompt"),
    (lambda c: c.completions.create(**{**PROMPT, "prompt": [-1]}),
     openai.BadRequestError, 400, "invalid_value", "prompt"),
    (lambda c: c.completions.create(**PROMPT, n=3, best_of=2),
     openai.BadRequestError, 400, "invalid_value", "best_of"),
    (lambda c: c.completions.create(**PROMPT, suffix="x"),
     openai.BadRequestError, 400, "unsupported_value", "suffix"),
    (lambda c: c.completions.create(**{**PROMPT, "prompt": "word " * 3000}),
     openai.BadRequestError, 400, "context_length_exceeded", "prompt"),
    (lambda c: c.chat.completions.create(**{**GREEDY, "model": "gpt-nothing"}),
     openai.NotFoundError, 404, "model_not_found", "model"),
    (lambda c: c.models.retrieve("gpt-nothing"),
     openai.NotFoundError, 404, "model_not_found", "model"),
    (lambda c: c.get("/nothing", cast_to=object),
     openai.NotFoundError, 404, "route_not_found", None),
    (lambda c: c.models.delete(MODEL),
     openai.APIStatusError, 405, "method_not_allowed", None),
    (lambda c: c.completions.create(**{**PROMPT, "prompt": "x" * (17 << 20)}),
     openai.APIStatusError, 413, "content_too_large", None),
])
def test_refusals_become_the_right_exception(client, call, kind, status, code, param):
    with pytest.raises(kind) as caught:
        call(client)
    error = caught.value
    assert type(error) is kind
    assert (error.status_code, error.code, error.param) == (status, code, param)
    assert error.type == "invalid_request_error"


def test_a_refused_stream_is_a_plain_refusal(client):
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(**{**GREEDY, "top_p": 5}, stream=True)
    assert caught.value.response.headers["content-type"] == "application/json"


def test_a_wrong_key_is_an_authentication_error(start_server):
    try:
        server = start_server("--api-key", "right")
    except AssertionError as error:
        if "not there yet" not in str(error):
            raise
        pytest.skip("--api-key is refused by this build")
    with pytest.raises(openai.AuthenticationError) as caught:
        server.client().chat.completions.create(**GREEDY)
    assert caught.value.status_code == 401
    with server.client().with_options(api_key="right") as client:
        assert client.chat.completions.create(**GREEDY).choices[0].message.content == PARIS


def test_a_server_that_is_not_there_is_a_connection_error():
    with openai.OpenAI(base_url="http://127.0.0.1:9/v1", api_key="none", max_retries=0) as client:
        with pytest.raises(openai.APIConnectionError):
            client.models.list()
