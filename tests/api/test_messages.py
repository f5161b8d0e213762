"""POST /v1/messages through Anthropic's client."""
import anthropic
import pytest

TOOL = {"name": "get_current_weather", "description": "Get the current weather",
        "input_schema": {"type": "object", "properties": {"location": {"type": "string"}}}}
WEATHER = [{"role": "user", "content": "What's the weather like in Boston?"}]
CAPITAL = [{"role": "user", "content": "What is the capital of France?"}]
SUM = [{"role": "user", "content": "What is 17 + 25?"}]


@pytest.fixture
def claude(server):
    return anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0, timeout=60)


def greedy(messages, extra_body=None, **options):
    return {"model": "demo", "messages": messages, "max_tokens": 200, **options,
            "extra_body": {"temperature": 0, **(extra_body or {})}}


def create(claude, messages, **options):
    return claude.messages.create(**greedy(messages, **options))


def test_text(claude):
    reply = create(claude, CAPITAL)
    assert reply.type == "message" and reply.role == "assistant" and reply.model == "demo"
    assert [block.type for block in reply.content] == ["text"]
    assert "Paris" in reply.content[0].text
    assert reply.stop_reason == "end_turn" and reply.stop_sequence is None
    assert reply.usage.output_tokens > 0


def test_a_stream_is_the_same(claude):
    for options in ({"messages": CAPITAL}, {"messages": WEATHER, "tools": [TOOL]},
                    {"messages": SUM, "extra_body": {"enable_thinking": True}}):
        whole = create(claude, **options)
        with claude.messages.stream(**greedy(**options)) as stream:
            events = [event.type for event in stream]
            final = stream.get_final_message()
        assert events[0] == "message_start" and events[-1] == "message_stop"
        assert final.stop_reason == whole.stop_reason
        assert final.usage.output_tokens == whole.usage.output_tokens
        assert [block.type for block in final.content] == [block.type for block in whole.content]
        for streamed, block in zip(final.content, whole.content):
            for field in ("text", "thinking", "signature", "name", "input"):
                assert getattr(streamed, field, None) == getattr(block, field, None)


def test_a_tool_and_its_result(claude):
    reply = create(claude, WEATHER, tools=[TOOL])
    assert reply.stop_reason == "tool_use"
    use = reply.content[-1]
    assert use.type == "tool_use" and use.name == TOOL["name"] and use.input == {"location": "Boston"}
    result = {"type": "tool_result", "tool_use_id": use.id,
              "content": [{"type": "text", "text": "22 degrees, sunny"}]}
    history = [*WEATHER, {"role": "assistant", "content": reply.content},
               {"role": "user", "content": [result]}]
    answer = create(claude, history, tools=[TOOL])
    assert answer.stop_reason == "end_turn" and "22" in answer.content[0].text
    with pytest.raises(anthropic.BadRequestError) as caught:
        create(claude, [*history[:2], {"role": "user", "content": [{**result, "tool_use_id": "x"}]}])
    assert "tool_use" in str(caught.value)


def test_results_come_in_the_order_of_their_calls(claude):
    uses = [{"type": "tool_use", "id": name, "name": name, "input": {}} for name in ("a", "b")]
    results = [{"type": "tool_result", "tool_use_id": name, "content": name * 3}
               for name in ("a", "b")]
    counts = [create(claude, [*WEATHER, {"role": "assistant", "content": uses},
                              {"role": "user", "content": order}]).content
              for order in (results, results[::-1])]
    assert counts[0] == counts[1]


def test_thinking(claude):
    reply = create(claude, SUM, extra_body={"thinking": {"type": "adaptive"}})
    assert [block.type for block in reply.content] == ["thinking", "text"]
    assert "carry" in reply.content[0].thinking and reply.content[0].signature
    again = create(claude, [*SUM, {"role": "assistant", "content": reply.content}, *CAPITAL])
    assert "Paris" in again.content[0].text


def test_thinking_may_be_left_out(claude):
    thinking = {"type": "adaptive"}
    whole = create(claude, SUM, extra_body={"thinking": thinking})
    hidden = create(claude, SUM, extra_body={"thinking": {**thinking, "display": "omitted"}})
    assert [block.type for block in hidden.content] == ["thinking", "text"]
    assert hidden.content[0].thinking == "" and hidden.content[1].text == whole.content[1].text
    without = create(claude, SUM, extra_body={"thinking": thinking, "include_reasoning": False})
    assert [block.type for block in without.content] == ["text"]
    assert without.content[0].text == whole.content[1].text
    assert without.usage.output_tokens == whole.usage.output_tokens


def test_the_id_of_a_request(claude):
    reply = claude.messages.with_raw_response.create(
        **greedy(CAPITAL, extra_body={"request_id": "mine"}))
    assert reply.request_id and reply.parse().id == "msg_mine"
    with pytest.raises(anthropic.BadRequestError) as caught:
        create(claude, CAPITAL, extra_body={"return_token_ids": True})
    assert caught.value.request_id and "return_token_ids" in caught.value.body["error"]["message"]


def test_messages_of_one_role_are_one_turn(claude):
    apart = [{"role": "user", "content": "What is the capital"},
             {"role": "user", "content": "of France?"}]
    together = [{"role": "user", "content": [{"type": "text", "text": one["content"]}
                                             for one in apart]}]
    counts = [claude.messages.count_tokens(model="demo", messages=messages).input_tokens
              for messages in (apart, together)]
    assert counts[0] == counts[1]
    strict = ("{% for m in messages %}{% if loop.index0 % 2 != (m.role == 'assistant') %}"
              "{{ raise_exception('roles must alternate') }}{% endif %}{{ m.content }}{% endfor %}")
    create(claude, apart, max_tokens=2, extra_body={"chat_template": strict})


def test_stops(claude):
    reply = create(claude, CAPITAL, stop_sequences=["Paris"])
    assert reply.stop_reason == "stop_sequence" and reply.stop_sequence == "Paris"
    assert create(claude, CAPITAL, max_tokens=2).stop_reason == "max_tokens"


@pytest.mark.parametrize("options", [
    {"messages": CAPITAL}, {"messages": WEATHER, "tools": [TOOL]},
    {"messages": CAPITAL, "system": "Be short."},
    {"messages": [{"role": "user", "content": [{"type": "text", "text": "Hi", "cache_control": {
        "type": "ephemeral"}}]}], "system": [{"type": "text", "text": "a"},
                                              {"type": "text", "text": "b"}]}])
def test_counted_tokens_are_those_of_the_answer(claude, options):
    counted = claude.messages.count_tokens(model="demo", **options)
    assert counted.input_tokens == create(claude, **options).usage.input_tokens


def test_errors_have_anthropics_shape(claude, server):
    with pytest.raises(anthropic.BadRequestError) as caught:
        create(claude, CAPITAL, extra_body={"temperature": -1})
    assert caught.value.body["type"] == "error"
    assert caught.value.body["error"]["type"] == "invalid_request_error"
    assert "temperature" in caught.value.body["error"]["message"]
    with pytest.raises(anthropic.NotFoundError) as caught:
        create(claude, CAPITAL, model="gpt-4")
    assert caught.value.body["error"]["type"] == "not_found_error"
    for bad in ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]},
                {"messages": [{"role": "robot", "content": "x"}]},
                {"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]}):
        with pytest.raises(anthropic.BadRequestError):
            create(claude, **{"messages": CAPITAL, **bad})
