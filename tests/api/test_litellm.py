"""litellm against the real server, under both of its names for such a server."""
import asyncio
import json
import os

import pytest

# Else importing it waits for a list of prices from the network.
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
import litellm  # noqa: E402

PARIS = "The capital of France is Paris."
PROVIDERS = ("openai/", "hosted_vllm/")
WEATHER = {"type": "function", "function": {
    "name": "get_current_weather", "description": "Get the current weather",
    "parameters": {"type": "object", "properties": {"location": {"type": "string"}}}}}
pytestmark = pytest.mark.filterwarnings("ignore")  # pydantic's, about litellm's own classes


@pytest.fixture(params=PROVIDERS)
def provider(request):
    litellm.suppress_debug_info = True
    litellm.telemetry = False
    return request.param


def options(server, provider, **more):
    return {"model": provider + "demo", "api_base": server.url + "/v1", "api_key": "none",
            "temperature": 0, "num_retries": 0, "timeout": 60,
            "messages": [{"role": "user", "content": "What is the capital of France?"}], **more}


def test_completion(server, provider):
    reply = litellm.completion(**options(server, provider))
    assert reply.choices[0].message.content == PARIS
    assert reply.choices[0].finish_reason == "stop"
    assert (reply.usage.prompt_tokens, reply.usage.completion_tokens) == (14, 8)


def test_stream(server, provider):
    chunks = list(litellm.completion(**options(server, provider), stream=True,
                                     stream_options={"include_usage": True}))
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert text == PARIS
    assert [c.choices[0].finish_reason for c in chunks if c.choices][-2:].count("stop") == 1
    assert chunks[-1].usage.completion_tokens == 8
    rebuilt = litellm.stream_chunk_builder(chunks)
    assert rebuilt.choices[0].message.content == PARIS


def test_async(server, provider):
    async def stream():
        chunks = await litellm.acompletion(**options(server, provider), stream=True)
        return "".join([chunk.choices[0].delta.content or "" async for chunk in chunks])

    async def main():
        reply = await litellm.acompletion(**options(server, provider))
        return reply.choices[0].message.content, await stream()
    assert asyncio.run(main()) == (PARIS, PARIS)


def test_text_completion(server, provider):
    model = provider.replace("openai/", "text-completion-openai/") + "demo"
    reply = litellm.text_completion(model=model, prompt="The capital of", max_tokens=8,
                                    temperature=0, api_base=server.url + "/v1", api_key="none")
    assert reply.choices[0].text
    assert reply.usage.completion_tokens == 8


def test_options_arrive(server, provider):
    reply = litellm.completion(**options(server, provider, max_tokens=2, n=2, seed=1,
                                         logprobs=True, top_logprobs=2))
    assert len(reply.choices) == 2
    assert reply.choices[0].finish_reason == "length"
    assert len(reply.choices[0].logprobs.content[0].top_logprobs) == 2


def test_a_tool_and_its_result(server, provider):
    # litellm looks for tools of MCP servers first, for which it needs one more package.
    asked = {"tools": [WEATHER], "_skip_mcp_handler": True,
             "messages": [{"role": "user", "content": "What's the weather like in Boston?"}]}
    choice = litellm.completion(**options(server, provider, **asked)).choices[0]
    assert choice.finish_reason == "tool_calls"
    call, = choice.message.tool_calls
    assert (call.function.name, json.loads(call.function.arguments)) == ("get_current_weather", {"location": "Boston"})
    chunks = list(litellm.completion(**options(server, provider, **asked), stream=True))
    streamed, = litellm.stream_chunk_builder(chunks).choices[0].message.tool_calls
    assert (streamed.function.name, streamed.function.arguments) == (call.function.name, call.function.arguments)
    asked["messages"] += [choice.message.model_dump(exclude_none=True),
                          {"role": "tool", "tool_call_id": call.id, "content": "22 degrees, sunny"}]
    answer = litellm.completion(**options(server, provider, **asked)).choices[0]
    assert answer.finish_reason == "stop" and "22" in answer.message.content


@pytest.mark.parametrize("bad, kind", [
    ({"temperature": -1}, "BadRequestError"),
    ({"response_format": {"type": "nothing"}}, "BadRequestError"),
    ({"messages": [{"role": "user", "content": "word " * 3000}]}, "ContextWindowExceededError"),
    ({"model": "nothing"}, "NotFoundError"),
])
def test_refusals_become_the_right_exception(server, provider, bad, kind):
    bad = {**bad, "model": provider + bad["model"]} if "model" in bad else bad
    with pytest.raises(getattr(litellm.exceptions, kind)) as caught:
        litellm.completion(**options(server, provider, **bad))
    assert type(caught.value).__name__ == kind
