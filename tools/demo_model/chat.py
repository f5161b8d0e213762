"""The chat format: the Jinja template that ships with the model and the same in plain Python.

    <|begin_of_sentence|>{system}\\n
    Tools:\\n- name(argument: type, ...): description\\n      (if tools are given)
    Thinking: on\\n                                          (if thinking is asked for)
    User: ...\\nAssistant: ...<|end_of_sentence|>User: ...\\nAssistant: 
    Tool: {result}\\n                                        (the result of a call)
"""
import json

BEGIN, END = "<|begin_of_sentence|>", "<|end_of_sentence|>"
SPECIAL = ["<unk>", "<s>", "</s>", BEGIN, END]                       # ids 0 to 4
MARKERS = ["<think>", "</think>", "<tool_call>", "</tool_call>"]     # ids 5 to 8, visible in the text

TEMPLATE = r"""
{%- set thinking = enable_thinking is defined and enable_thinking -%}
{{- '<|begin_of_sentence|>' -}}
{%- if messages and messages[0]['role'] == 'system' -%}
    {{- messages[0]['content'] + '\n' -}}
{%- endif -%}
{%- if tools is defined and tools -%}
    {{- 'Tools:\n' -}}
    {%- for tool in tools -%}
        {%- set fn = tool['function'] if tool['function'] is defined else tool -%}
        {{- '- ' + fn['name'] + '(' -}}
        {%- if fn['parameters'] is defined and fn['parameters'] and fn['parameters']['properties'] is defined -%}
            {%- for arg in fn['parameters']['properties'] -%}
                {%- set schema = fn['parameters']['properties'][arg] -%}
                {{- (', ' if not loop.first else '') + arg + ': ' + (schema['type'] if schema['type'] is string else 'any') -}}
            {%- endfor -%}
        {%- endif -%}
        {{- '): ' + (fn['description'] if fn['description'] is defined and fn['description'] else fn['name']) + '\n' -}}
    {%- endfor -%}
{%- endif -%}
{%- if thinking -%}
    {{- 'Thinking: on\n' -}}
{%- endif -%}
{%- for message in messages -%}
    {%- set text = message['content'] if message['content'] is string else '' -%}
    {%- if message['role'] == 'user' -%}
        {{- 'User: ' + text + '\n' -}}
    {%- elif message['role'] == 'tool' -%}
        {{- 'Tool: ' + text + '\n' -}}
    {%- elif message['role'] == 'system' -%}
        {%- if not loop.first -%}
            {{- text + '\n' -}}
        {%- endif -%}
    {%- elif message['role'] == 'assistant' -%}
        {%- if '</think>' in text -%}
            {%- set text = text.split('</think>')[-1].lstrip('\n') -%}
        {%- endif -%}
        {{- 'Assistant: ' + text -}}
        {%- if message['tool_calls'] is defined and message['tool_calls'] -%}
            {%- for call in message['tool_calls'] -%}
                {%- set args = call['function']['arguments'] -%}
                {{- '<tool_call>\n{"name": "' + call['function']['name'] + '", "arguments": ' + (args if args is string else args | tojson) + '}\n</tool_call>' -}}
            {%- endfor -%}
        {%- endif -%}
        {{- '<|end_of_sentence|>' -}}
    {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt is not defined or add_generation_prompt -%}
    {{- 'Assistant: ' -}}
{%- endif -%}
""".strip()


def header(system=None, tools=None, thinking=False):
    """Everything before the first turn."""
    out = BEGIN + (system + "\n" if system is not None else "")
    if tools:
        out += "Tools:\n"
        for tool in tools:
            fn = tool["function"]
            args = ", ".join(f"{a}: {s['type']}" for a, s in fn["parameters"]["properties"].items())
            out += f"- {fn['name']}({args}): {fn['description']}\n"
    return out + ("Thinking: on\n" if thinking else "")


def strip_think(text):
    return text.split("</think>")[-1].lstrip("\n") if "</think>" in text else text


def prompt(messages, tools=None, thinking=False):
    """The text that the model continues; equal to the template with add_generation_prompt."""
    system = messages[0]["content"] if messages[0]["role"] == "system" else None
    out = [header(system, tools, thinking)]
    for m in messages[system is not None:]:
        if m["role"] == "assistant":
            out.append("Assistant: " + strip_think(m["content"]) + END)
        else:
            out.append({"user": "User: ", "tool": "Tool: ", "system": ""}[m["role"]] + m["content"] + "\n")
    return "".join(out) + "Assistant: "


def parse_call(text):
    """The call in a reply as (name, arguments), or None."""
    if "<tool_call>" not in text:
        return None
    body = text.split("<tool_call>")[1].split("</tool_call>")[0]
    try:
        call = json.loads(body)
        return call["name"], call["arguments"]
    except (ValueError, KeyError, TypeError):
        return None
