"""POST /v1/responses through the official OpenAI client, typed strictly."""
import json

import openai
import pytest
from openai.types.responses import Response

TOOL = {"type": "function", "name": "get_current_weather", "strict": False,
        "description": "Get the current weather",
        "parameters": {"type": "object", "properties": {"location": {"type": "string"}}}}
WEATHER = "What's the weather like in Boston?"


def create(client, **options):
    return client.responses.create(**{"model": "demo", "temperature": 0, **options})


def test_text(client):
    reply = create(client, input="What is the capital of France?", instructions="Be short.")
    Response.model_validate(reply.to_dict(), strict=False)
    assert reply.status == "completed" and reply.store is False
    assert "Paris" in reply.output_text
    assert reply.usage.total_tokens == reply.usage.input_tokens + reply.usage.output_tokens
    assert reply.incomplete_details is None and reply.error is None


@pytest.mark.parametrize("options", [
    {"input": "What is the capital of France?"}, {"input": WEATHER, "tools": [TOOL]},
    {"input": "What is 17 + 25?", "reasoning": {"effort": "low"}},
    {"input": "What is the capital of France?", "max_output_tokens": 2}])
def test_a_stream_is_the_same(client, options):
    whole = create(client, **options)
    events = list(create(client, stream=True, **options))
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert events[0].type == "response.created"
    assert events[-1].type == "response." + whole.status
    final = events[-1].response
    assert final.id == events[0].response.id
    strip = {"id", "call_id"}
    plain = [[{k: v for k, v in item.to_dict().items() if k not in strip} for item in reply.output]
             for reply in (final, whole)]
    assert plain[0] == plain[1]
    added = [e.item.id for e in events if e.type == "response.output_item.added"]
    done = [e.item.id for e in events if e.type == "response.output_item.done"]
    assert added == done == [item.id for item in final.output]
    text = "".join(e.delta for e in events if e.type == "response.output_text.delta")
    assert text == final.output_text == whole.output_text
    for event in events:
        if event.type == "response.function_call_arguments.done":
            assert event.name == "get_current_weather"
            deltas = "".join(e.delta for e in events
                             if e.type == "response.function_call_arguments.delta")
            assert event.arguments == deltas


def test_a_tool_and_its_result(client):
    reply = create(client, input=WEATHER, tools=[TOOL])
    call = reply.output[-1]
    assert call.type == "function_call" and json.loads(call.arguments) == {"location": "Boston"}
    history = [{"role": "user", "content": WEATHER}, *reply.output,
               {"type": "function_call_output", "call_id": call.call_id,
                "output": "22 degrees, sunny"}]
    answer = create(client, input=history, tools=[TOOL])
    assert "22" in answer.output_text


def test_reasoning(client):
    reply = create(client, input="What is 17 + 25?", reasoning={"effort": "low"},
                   include=["reasoning.encrypted_content"])
    assert [item.type for item in reply.output] == ["reasoning", "message"]
    assert "carry" in reply.output[0].content[0].text
    assert reply.usage.output_tokens_details.reasoning_tokens > 0
    history = [{"role": "user", "content": "What is 17 + 25?"}, *reply.output,
               {"role": "user", "content": "What is the capital of France?"}]
    assert "Paris" in create(client, input=history).output_text


def test_what_refers_to_kept_responses_is_refused(client):
    for options in ({"previous_response_id": "resp_1"}, {"background": True},
                    {"conversation": "conv_1"}, {"truncation": "auto"},
                    {"tools": [{"type": "web_search"}]}):
        with pytest.raises(openai.BadRequestError) as caught:
            create(client, input="Hi", **options)
        assert caught.value.param == next(iter(options))
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve("resp_1")


def test_an_incomplete_answer_says_why(client):
    reply = create(client, input="What is the capital of France?", max_output_tokens=2)
    assert reply.status == "incomplete"
    assert reply.incomplete_details.reason == "max_output_tokens"
