"""Tool calls and reasoning in chats, through the official OpenAI client."""
import json

import openai
import pytest

TOOL = {"type": "function", "function": {
    "name": "get_current_weather", "description": "Get the current weather",
    "parameters": {"type": "object", "properties": {"location": {"type": "string"}}}}}
WEATHER = [{"role": "user", "content": "What's the weather like in Boston?"}]
SUM = [{"role": "user", "content": "What is 17 + 25?"}]


def chat(client, messages=WEATHER, **options):
    return client.chat.completions.create(model="demo", messages=messages, temperature=0, **options)


def gathered(stream):
    """The message that a client makes of a stream, and the reason at its end."""
    message, calls, reason = {"content": "", "reasoning": ""}, [], None
    for chunk in stream:
        choice = chunk.choices[0]
        delta = choice.delta
        message["content"] += delta.content or ""
        message["reasoning"] += getattr(delta, "reasoning_content", None) or ""
        for call in delta.tool_calls or []:
            if call.id:
                assert call.index == len(calls) and call.type == "function"
                calls.append([call.id, call.function.name, call.function.arguments])
            else:
                calls[call.index][2] += call.function.arguments
        reason = choice.finish_reason or reason
    return message, calls, reason


def test_a_call_and_the_answer_to_its_result(client):
    reply = chat(client, tools=[TOOL])
    choice = reply.choices[0]
    assert choice.finish_reason == "tool_calls"
    assert choice.message.content is None
    call = choice.message.tool_calls[0]
    assert call.type == "function" and call.function.name == "get_current_weather"
    assert json.loads(call.function.arguments) == {"location": "Boston"}
    assert call.id.startswith("chatcmpl-tool-")
    history = [*WEATHER, choice.message,
               {"role": "tool", "tool_call_id": call.id, "content": "22 degrees, sunny"}]
    answer = chat(client, history, tools=[TOOL])
    assert answer.choices[0].finish_reason == "stop"
    assert "22" in answer.choices[0].message.content


def test_a_streamed_call_is_the_same(client):
    whole = chat(client, tools=[TOOL]).choices[0].message.tool_calls[0].function
    message, calls, reason = gathered(chat(client, tools=[TOOL], stream=True))
    assert message["content"] == "" and reason == "tool_calls"
    assert [call[1:] for call in calls] == [[whole.name, whole.arguments]]


@pytest.mark.parametrize("tokens", [2, 8, 64])
def test_pieces_of_any_size_are_the_same(client, tokens):
    message, calls, reason = gathered(chat(
        client, tools=[TOOL], stream=True, extra_body={"max_streaming_response_tokens": tokens}))
    assert json.loads(calls[0][2]) == {"location": "Boston"} and reason == "tool_calls"


def test_without_tools_a_call_is_text(client):
    for options in ({"tools": [TOOL], "tool_choice": "none"}, {}):
        choice = chat(client, **options).choices[0]
        assert choice.message.tool_calls is None and choice.finish_reason == "stop"


def test_a_call_that_is_cut_off_has_ended_by_its_length(client):
    choice = chat(client, tools=[TOOL], max_tokens=18).choices[0]
    assert choice.finish_reason == "length"
    assert choice.message.tool_calls[0].function.name == "get_current_weather"
    with pytest.raises(json.JSONDecodeError):
        json.loads(choice.message.tool_calls[0].function.arguments)


def test_the_choice_of_tools(client):
    allowed = {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [
        {"type": "function", "function": {"name": "get_current_weather"}}]}}
    other = {"type": "function", "function": {"name": "other"}}
    both = chat(client, tools=[TOOL, other])
    one = chat(client, tools=[TOOL, other], tool_choice=allowed)
    assert one.usage.prompt_tokens < both.usage.prompt_tokens
    assert one.choices[0].message.tool_calls
    for bad in ({"type": "function", "function": {"name": "unknown"}}, "sometimes"):
        with pytest.raises(openai.BadRequestError) as caught:
            chat(client, tools=[TOOL], tool_choice=bad)
        assert caught.value.param == "tool_choice"


def test_arguments_in_the_history_must_be_json(client):
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{"}}
    with pytest.raises(openai.BadRequestError) as caught:
        chat(client, [*WEATHER, {"role": "assistant", "tool_calls": [call]}], tools=[TOOL])
    assert caught.value.param == "messages" and "tool_calls[0]" in str(caught.value)


@pytest.mark.parametrize("switch", [
    {"enable_thinking": True}, {"thinking": True}, {"thinking": {"type": "enabled"}},
    {"reasoning_effort": "low"}, {"chat_template_kwargs": {"enable_thinking": True}},
    {"chat_template_kwargs": {"thinking": True}},
    {"chat_template_kwargs": {"options": {"thinking_mode": "open"}}}])
def test_reasoning_is_beside_the_content(client, switch):
    reply = chat(client, SUM, extra_body=switch)
    message = reply.choices[0].message
    assert message.content == "17 + 25 = 42."
    assert "carry" in message.reasoning_content
    details = reply.usage.completion_tokens_details
    assert 0 < details.reasoning_tokens < reply.usage.completion_tokens
    streamed, _, _ = gathered(chat(client, SUM, stream=True, extra_body=switch))
    assert streamed == {"content": message.content, "reasoning": message.reasoning_content}


def test_thinking_off(client):
    for switch in ({"enable_thinking": False}, {"reasoning_effort": "none"}, {}):
        reply = chat(client, SUM, extra_body=switch)
        assert not hasattr(reply.choices[0].message, "reasoning_content")
        assert reply.usage.completion_tokens_details.reasoning_tokens == 0


@pytest.mark.parametrize("budget", [
    {"reasoning_max_tokens": 5}, {"thinking_token_budget": 5},
    {"thinking": {"type": "enabled", "budget_tokens": 5}}])
@pytest.mark.parametrize("stream", [False, True])
def test_a_budget_of_reasoning_is_kept_to_the_token(client, budget, stream):
    switch = {"enable_thinking": True, **budget}
    free = chat(client, SUM, extra_body={"enable_thinking": True}).choices[0].message
    options = {"stream": True, "stream_options": {"include_usage": True}} if stream else {}
    reply = chat(client, SUM, extra_body=switch, **options)
    if stream:
        chunks = list(reply)
        message, _, reason = gathered(chunks[:-1])
        content, reasoning, usage = message["content"], message["reasoning"], chunks[-1].usage
    else:
        choice = reply.choices[0]
        content, reasoning = choice.message.content, choice.message.reasoning_content
        usage, reason = reply.usage, choice.finish_reason
    assert usage.completion_tokens_details.reasoning_tokens == 5
    assert free.reasoning_content.startswith(reasoning) and reasoning != free.reasoning_content
    # The model answers, if not always rightly: it has not thought to the end.
    assert content.startswith("17 + ") and "think" not in content and reason == "stop"


def test_a_budget_of_no_tokens(client):
    reply = chat(client, SUM, extra_body={"enable_thinking": True, "thinking_token_budget": 0})
    assert reply.usage.completion_tokens_details.reasoning_tokens == 0
    assert reply.choices[0].message.content


def test_reasoning_can_be_left_out_or_left_in(client):
    message = chat(client, SUM, extra_body={"enable_thinking": True,
                                            "include_reasoning": False}).choices[0].message
    assert message.content == "17 + 25 = 42." and not hasattr(message, "reasoning_content")
    message = chat(client, SUM, extra_body={"enable_thinking": True,
                                            "separate_reasoning": False}).choices[0].message
    assert message.content.startswith("<think>") and message.content.endswith("42.")


def test_reasoning_of_a_history_is_accepted(client):
    parts = [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "42"}]
    for turn in ({"content": "42", "reasoning_content": "hm"}, {"content": "42", "reasoning": "hm"},
                 {"content": "42", "thoughts": "hm"}, {"content": parts}):
        assert chat(client, [*SUM, {"role": "assistant", **turn}, *WEATHER], tools=[TOOL]).choices
