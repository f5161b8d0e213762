"""LangChain's ChatOpenAI and OpenAI against the real server."""
import asyncio

import pytest
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_openai import ChatOpenAI, OpenAI

QUESTION = "What is the capital of {}?"
PARIS = "The capital of France is Paris."
WEATHER = {"type": "function", "function": {
    "name": "get_current_weather", "description": "Get the current weather",
    "parameters": {"type": "object", "properties": {"location": {"type": "string"}}}}}


def options(server):
    return {"base_url": server.url + "/v1", "api_key": "none", "model": "demo", "temperature": 0,
            "max_retries": 0, "timeout": 60}


@pytest.fixture(scope="module")
def chat(server):
    return ChatOpenAI(**options(server))


def test_invoke(chat):
    reply = chat.invoke(QUESTION.format("France"))
    assert reply.content == PARIS
    assert reply.response_metadata["finish_reason"] == "stop"
    assert reply.response_metadata["model_name"] == "demo"
    usage = reply.usage_metadata
    assert (usage["input_tokens"], usage["output_tokens"], usage["total_tokens"]) == (14, 8, 22)


def test_messages_of_every_kind(chat):
    reply = chat.invoke([SystemMessage("You are helpful."), HumanMessage("My name is Barnaby."),
                         AIMessage("Hello Barnaby."), HumanMessage("What is my name?")])
    assert "Barnaby" in reply.content


def test_stream_with_usage(chat):
    whole = None
    pieces = 0
    for chunk in chat.stream(QUESTION.format("France"), stream_usage=True):
        whole = chunk if whole is None else whole + chunk
        pieces += bool(chunk.content)
    assert whole.content == PARIS
    assert pieces > 2
    assert whole.response_metadata["finish_reason"] == "stop"
    assert whole.usage_metadata["output_tokens"] == 8
    assert whole.usage_metadata["input_tokens"] == 14


def test_batch(chat):
    cities = {"France": "Paris", "Germany": "Berlin", "Italy": "Rome", "Japan": "Tokyo"}
    replies = chat.batch([QUESTION.format(country) for country in cities])
    for reply, city in zip(replies, cities.values()):
        assert city in reply.content


def test_async(server):
    async def main():
        chat = ChatOpenAI(**options(server))
        text = "".join([chunk.content async for chunk in chat.astream(QUESTION.format("France"))])
        replies = await chat.abatch([QUESTION.format("France")] * 8)
        return text, await chat.ainvoke(QUESTION.format("France")), replies
    text, reply, replies = asyncio.run(main())
    assert {text, reply.content, *(r.content for r in replies)} == {PARIS}


def test_bound_options(chat):
    reply = chat.bind(logprobs=True, top_logprobs=2, stop=[" Par"]).invoke(QUESTION.format("France"))
    assert reply.content == PARIS[:PARIS.index(" Par")]
    logprobs = reply.response_metadata["logprobs"]["content"]
    assert [len(entry["top_logprobs"]) for entry in logprobs] == [2] * len(logprobs)
    short = chat.bind(max_tokens=2).invoke(QUESTION.format("France"))
    assert short.response_metadata["finish_reason"] == "length"


def test_bound_tools_reach_the_template(chat):
    question = "What's the weather like in Boston?"
    plain = chat.invoke(question)
    offered = chat.bind_tools([WEATHER]).invoke(question)
    assert offered.usage_metadata["input_tokens"] > plain.usage_metadata["input_tokens"]


def test_a_tool_and_its_result(chat):
    offered = chat.bind_tools([WEATHER])
    question = HumanMessage("What's the weather like in Boston?")
    reply = offered.invoke([question])
    assert reply.response_metadata["finish_reason"] == "tool_calls" and not reply.invalid_tool_calls
    call, = reply.tool_calls
    assert call["name"] == "get_current_weather" and call["args"] == {"location": "Boston"} and call["id"]
    streamed = None
    for chunk in offered.stream([question]):
        streamed = chunk if streamed is None else streamed + chunk
    assert [(c["name"], c["args"]) for c in streamed.tool_calls] == [(call["name"], call["args"])]
    answer = offered.invoke([question, reply, ToolMessage("22 degrees, sunny", tool_call_id=call["id"])])
    assert "22" in answer.content and not answer.tool_calls


def test_structured_output(chat):
    schema = {"title": "city", "type": "object", "additionalProperties": False,
              "properties": {"name": {"type": "string", "maxLength": 20}}, "required": ["name"]}
    city = chat.with_structured_output(schema, method="json_schema").invoke("Paris")
    assert set(city) == {"name"} and isinstance(city["name"], str)


def test_completions(server):
    raw = OpenAI(**options(server), max_tokens=8)
    text = raw.invoke("The capital of")
    assert "".join(raw.stream("The capital of")) == text
    assert raw.batch(["The capital of"] * 3) == [text] * 3
