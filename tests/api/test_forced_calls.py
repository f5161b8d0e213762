"""Calls that must be made, strict tools, and forms beside tools and reasoning: every call fits its
tool's schema, whole or streamed, with thinking on and off."""
import json

import anthropic
import jsonschema
import openai
import pytest

PLACE = {"type": "object", "properties": {
    "location": {"type": "string", "maxLength": 12}, "unit": {"enum": ["C", "F"]},
    "days": {"type": "integer", "minimum": 1, "maximum": 9}},
    "required": ["location", "unit"], "additionalProperties": False}
LAMP = {"type": "object", "properties": {"on": {"type": "boolean"}}, "required": ["on"],
        "additionalProperties": False}
SCHEMAS = {"get_weather": PLACE, "set_lamp": LAMP}
TOOLS = [{"type": "function", "function": {"name": name, "description": name, "parameters": schema}}
         for name, schema in SCHEMAS.items()]
STRICT = [{**tool, "function": {**tool["function"], "strict": True}} for tool in TOOLS]
CAPITAL = [{"role": "user", "content": "What is the capital of France?"}]
SUM = [{"role": "user", "content": "What is 17 + 25?"}]
NAMED = {"type": "function", "function": {"name": "set_lamp"}}
ALLOWED = {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [NAMED]}}
ANSWER = {"type": "json_schema", "json_schema": {"name": "answer", "schema": {
    "type": "object", "properties": {"capital": {"type": "string", "maxLength": 20}},
    "required": ["capital"], "additionalProperties": False}}}


def ask(client, messages=CAPITAL, stream=False, **options):
    """The message, its calls as (name, arguments), and why it ended."""
    reply = client.chat.completions.create(
        model="demo", messages=messages, stream=stream,
        **{"temperature": 0, "max_tokens": 200, **options})
    if not stream:
        choice = reply.choices[0]
        calls = [(call.function.name, call.function.arguments)
                 for call in choice.message.tool_calls or []]
        return choice.message.content, calls, choice.finish_reason
    content, calls, reason = "", [], None
    for chunk in reply:
        delta = chunk.choices[0].delta
        content += delta.content or ""
        for call in delta.tool_calls or []:
            if call.id:
                calls.append((call.function.name, ""))
            name, text = calls[call.index]
            calls[call.index] = (name, text + (call.function.arguments or ""))
        reason = chunk.choices[0].finish_reason or reason
    return content or None, calls, reason


def check(calls, names=tuple(SCHEMAS)):
    assert calls
    for name, arguments in calls:
        assert name in names
        jsonschema.validate(json.loads(arguments), SCHEMAS[name])


@pytest.mark.parametrize("thinking", [False, True])
@pytest.mark.parametrize("choice, names", [
    ("required", tuple(SCHEMAS)), (NAMED, ("set_lamp",)), (ALLOWED, ("set_lamp",))])
def test_a_forced_call_fits_its_schema(client, choice, names, thinking):
    options = {"tools": TOOLS, "tool_choice": choice, "parallel_tool_calls": False,
               "extra_body": {"enable_thinking": thinking}}
    messages = SUM if thinking else CAPITAL
    content, calls, reason = ask(client, messages, **options)
    check(calls, names)
    assert content is None and reason == "tool_calls" and len(calls) == 1
    assert ask(client, messages, stream=True, **options) == (content, calls, reason)


def test_a_model_that_thinks_calls_behind_its_reasoning(client):
    reply = client.chat.completions.create(
        model="demo", messages=SUM, temperature=0, tools=TOOLS, tool_choice="required",
        parallel_tool_calls=False, extra_body={"enable_thinking": True})
    message = reply.choices[0].message
    assert "carry" in message.reasoning_content
    check([(call.function.name, call.function.arguments) for call in message.tool_calls])


@pytest.mark.parametrize("seed", range(4))
def test_any_draw_of_a_forced_call_fits(client, seed):
    _, calls, reason = ask(client, tools=TOOLS, tool_choice="required", temperature=1.5, seed=seed,
                           max_tokens=600)
    check(calls[:-1] if reason == "length" else calls)


def test_strict_tools_are_followed_where_they_are_called(client):
    content, calls, reason = ask(client, tools=STRICT)
    assert "Paris" in content and not calls and reason == "stop"
    weather = [{"role": "user", "content": "What's the weather like in Boston?"}]
    tool = {"type": "function", "function": {
        "name": "get_current_weather", "strict": True, "parameters": {
            "type": "object", "properties": {"unit": {"enum": ["kelvin"]},
                                             "location": {"type": "string", "maxLength": 12}},
            "required": ["unit", "location"], "additionalProperties": False}}}
    for stream in (False, True):
        _, calls, reason = ask(client, weather, stream, tools=[tool])
        assert reason == "tool_calls"
        assert json.loads(calls[0][1])["unit"] == "kelvin"  # which no demo conversation says


def test_a_form_or_calls(client):
    content, calls, _ = ask(client, tools=TOOLS, response_format=ANSWER)
    assert bool(calls) != bool(content)
    if content:
        jsonschema.validate(json.loads(content), ANSWER["json_schema"]["schema"])
    _, calls, _ = ask(client, tools=TOOLS, response_format=ANSWER, tool_choice="required",
                      parallel_tool_calls=False)
    check(calls)


@pytest.mark.parametrize("stream", [False, True])
def test_a_form_begins_behind_the_reasoning(client, stream):
    schema = {"type": "object", "properties": {"sum": {"type": "integer", "maximum": 999}},
              "required": ["sum"], "additionalProperties": False}
    form = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}
    for switch, thinks in (({"enable_thinking": True}, True), ({"enable_thinking": False}, False),
                           ({}, False), ({"enable_thinking": True, "thinking_token_budget": 5}, True)):
        reply = client.chat.completions.create(
            model="demo", messages=SUM, temperature=0, response_format=form, stream=stream,
            max_tokens=200, extra_body=switch)
        if stream:
            deltas = [chunk.choices[0].delta for chunk in reply]
            content = "".join(delta.content or "" for delta in deltas)
            reasoning = "".join(getattr(delta, "reasoning_content", None) or "" for delta in deltas)
        else:
            message = reply.choices[0].message
            content, reasoning = message.content, getattr(message, "reasoning_content", "")
        jsonschema.validate(json.loads(content), schema)
        assert bool(reasoning) == thinks and "{" not in reasoning


def test_reasoning_and_forms_of_the_other_protocols(client, server):
    schema = {"type": "object", "properties": {"sum": {"type": "integer", "maximum": 999}},
              "required": ["sum"], "additionalProperties": False}
    reply = client.responses.create(
        model="demo", input=SUM[0]["content"], temperature=0, reasoning={"effort": "low"},
        text={"format": {"type": "json_schema", "name": "n", "schema": schema}})
    assert reply.output[0].type == "reasoning"
    jsonschema.validate(json.loads(reply.output_text), schema)
    claude = anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0, timeout=60)
    message = claude.messages.create(
        model="demo", max_tokens=200, messages=SUM,
        extra_body={"temperature": 0, "thinking": {"type": "adaptive"},
                    "output_config": {"format": {"type": "json_schema", "schema": schema}}})
    assert [block.type for block in message.content] == ["thinking", "text"]
    jsonschema.validate(json.loads(message.content[1].text), schema)


@pytest.mark.parametrize("choice", [{"type": "any", "disable_parallel_tool_use": True},
                                    {"type": "tool", "name": "set_lamp"}])
def test_messages_can_force_a_call(server, choice):
    claude = anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0, timeout=60)
    tools = [{"name": name, "input_schema": schema} for name, schema in SCHEMAS.items()]
    options = {"model": "demo", "max_tokens": 200, "messages": CAPITAL, "tools": tools,
               "tool_choice": choice, "extra_body": {"temperature": 0}}
    message = claude.messages.create(**options)
    uses = [block for block in message.content if block.type == "tool_use"]
    assert uses and message.stop_reason in ("tool_use", "max_tokens")
    jsonschema.validate(uses[0].input, SCHEMAS[uses[0].name])
    assert choice.get("name", uses[0].name) == uses[0].name
    with claude.messages.stream(**options) as stream:
        final = stream.get_final_message()
    assert [block.input for block in final.content if block.type == "tool_use"] == [
        use.input for use in uses]


@pytest.mark.parametrize("choice", ["required", {"type": "function", "name": "set_lamp"}])
def test_responses_can_force_a_call(client, choice):
    tools = [{"type": "function", "name": name, "parameters": schema, "strict": True}
             for name, schema in SCHEMAS.items()]
    options = {"model": "demo", "temperature": 0, "input": CAPITAL[0]["content"], "tools": tools,
               "tool_choice": choice, "parallel_tool_calls": False}
    reply = client.responses.create(**options)
    assert [item.type for item in reply.output] == ["function_call"]
    check([(reply.output[0].name, reply.output[0].arguments)])
    last = list(client.responses.create(stream=True, **options))[-1].response
    assert last.output[0].arguments == reply.output[0].arguments


@pytest.mark.parametrize("parameters, part", [
    ({"type": "object", "properties": {"a": {"uniqueItems": True}}}, "/properties/a/uniqueItems"),
    ({"type": "object", "properties": {"a": {"$ref": "#/nowhere"}}}, "nowhere"),
    ({"type": "object", "properties": {"a": {"pattern": "((a{1,1000}){1,1000}){1,1000}"}}},
     "repetitions"),
    ({"type": "object", "properties": {"a": {"pattern": "(?=a)"}}}, "look-around"),
    ({"anyOf": [{"anyOf": [{"properties": {f"a{i}{k}": {"minLength": i}}, "type": "object"}
                           for i in range(9)]} for k in range(9)], "allOf": [
        {"anyOf": [{"required": [f"r{i}{k}"]} for i in range(30)]} for k in range(9)]}, "too"),
    ({"type": "object", "$defs": {f"d{i}": {"anyOf": [{"$ref": f"#/$defs/d{(i + 1) % 40}"},
                                                      {"$ref": f"#/$defs/d{(i + 7) % 40}"}]}
                                  for i in range(40)}, "$ref": "#/$defs/d0"}, "itself")])
def test_hostile_schemas_of_tools_are_refused(client, parameters, part):
    tool = {"type": "function", "function": {"name": "f", "parameters": parameters}}
    with pytest.raises(openai.BadRequestError) as caught:
        ask(client, tools=[tool], tool_choice="required")
    assert caught.value.param == "tools" and part in str(caught.value), caught.value
    strict = {"type": "function", "function": {"name": "f", "strict": True, "parameters": parameters}}
    with pytest.raises(openai.BadRequestError):
        ask(client, tools=[strict])
    assert ask(client, tools=[tool], max_tokens=2)  # "auto" does not look at the schema


def test_where_forms_are_off_calls_cannot_be_forced(start_server):
    client = start_server("--guided-decoding-backend", "off").client()
    for options in ({"tools": TOOLS, "tool_choice": "required"}, {"tools": STRICT}):
        with pytest.raises(openai.BadRequestError) as caught:
            ask(client, **options)
        assert "off" in str(caught.value)
    client = start_server("--tool-call-parser", "none").client()
    with pytest.raises(openai.BadRequestError) as caught:
        ask(client, tools=TOOLS, tool_choice="required")
    assert caught.value.param == "tool_choice" and "--tool-call-parser" in str(caught.value)
