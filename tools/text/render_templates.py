#!/usr/bin/env python3
"""Renders templates with Python's jinja2, set up as Hugging Face sets it up, to make the expected
outputs of the template tests:

  tests/text/jinja_cases.json         the snippets of jinja_snippets.py with their full outputs
  tests/text/chat_template_sums.json  length and FNV-1a hash of what the models' templates of
                                      SHARED/data give for several conversations (no text of theirs)

usage: render_templates.py [--shared DIR]
"""
import argparse
import datetime
import json
import os
import pathlib

import jinja2.ext
from jinja2.sandbox import ImmutableSandboxedEnvironment

import jinja_snippets

os.environ["TZ"] = "UTC"
NOW = 1_700_000_000
ROOT = pathlib.Path(__file__).resolve().parents[2]


class Generation(jinja2.ext.Extension):
    """{% generation %}: marks assistant text for training; renders its body."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_run"), [], [], body).set_lineno(line)

    def _run(self, caller):
        return caller()


def environment():
    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators,
                          sort_keys=sort_keys)

    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def strftime_now(form):
        return datetime.datetime.fromtimestamp(NOW).strftime(form)

    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True,
                                        extensions=[Generation, jinja2.ext.loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = strftime_now
    return env


def render(env, text, variables):
    """The output, or None where jinja2 refuses."""
    try:
        return env.from_string(text).render(**variables)
    except (Exception, RecursionError):
        return None


def fnv1a(data):
    h = 0xCBF29CE484222325
    for byte in data:
        h = (h ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return f"{h:016x}"


TOOLS = [{"type": "function", "function": {
    "name": "get_weather", "description": "Weather of a city — now",
    "parameters": {"type": "object", "properties": {
        "city": {"type": "string", "description": "The city"},
        "unit": {"type": "string", "enum": ["celsius", "fahrenheit"], "default": "celsius"},
        "days": {"type": ["integer", "null"]}},
        "required": ["city"]}}}]

CONTEXTS = {
    "turns": {"messages": [
        {"role": "system", "content": "  Be brief.\n"},
        {"role": "user", "content": "Grüße aus 北京! <b>&amp;</b>\n\n"},
        {"role": "assistant", "content": "<think>\nhm, 'quotes' and \"more\"\n</think>\n\nHello."},
        {"role": "user", "content": "And \\n now? 🎉"}]},
    "tools": {"messages": [
        {"role": "user", "content": "Weather in Oslo?"},
        {"role": "assistant", "content": None, "tool_calls": [
            {"id": "call00001", "type": "function",
             "function": {"name": "get_weather", "arguments": {"city": "Oslo", "days": 2}}}]},
        {"role": "tool", "tool_call_id": "call00001", "name": "get_weather",
         "content": "{\"sky\": \"grey\"}"}], "tools": TOOLS},
    "thinking_off": {"messages": [
        {"role": "user", "content": "2+2?"},
        {"role": "assistant", "content": "4", "reasoning_content": "easy"},
        {"role": "user", "content": "3+3?"}], "enable_thinking": False},
    "parts": {"messages": [
        {"role": "user", "content": [{"type": "text", "text": "Hello"},
                                     {"type": "text", "text": " there"}]}]},
}


def contexts(shared):
    for path in sorted((shared / "chat_templates/contexts").glob("*.json")):
        yield "shared:" + path.stem, json.loads(path.read_text())
    for name, context in CONTEXTS.items():
        yield name, context | {"bos_token": "<s>", "eos_token": "</s>"}


def templates(shared):
    for path in sorted((shared / "chat_templates/templates").glob("*.jinja")):
        yield str(path.relative_to(shared)), path.read_text()
    for path in sorted((shared / "tokenizers").glob("*/tokenizer_config.json")):
        text = json.loads(path.read_text()).get("chat_template")
        if isinstance(text, str):
            yield str(path.relative_to(shared)), text


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shared", type=pathlib.Path, default=ROOT.parent / "shared")
    data = parser.parse_args().shared / "data"
    env = environment()
    cases = [{"template": t, "output": render(env, t, jinja_snippets.VARIABLES)}
             for t in jinja_snippets.SNIPPETS]
    out = ROOT / "tests/text"
    (out / "jinja_cases.json").write_text(json.dumps(
        {"now": NOW, "variables": jinja_snippets.VARIABLES, "cases": cases},
        indent=1, ensure_ascii=False) + "\n")
    sums = []
    for template_name, text in templates(data):
        for context_name, context in contexts(data):
            for prompt in (True, False):
                variables = {"tools": None, "documents": None} | context
                text_out = render(env, text, variables | {"add_generation_prompt": prompt})
                raw = None if text_out is None else text_out.encode()
                sums.append([template_name, context_name, prompt,
                             None if raw is None else len(raw), raw and fnv1a(raw)])
    rows = ",\n".join("  " + json.dumps(row) for row in sums)
    own = json.dumps({n: c for n, c in contexts(data) if ":" not in n},
                     ensure_ascii=False)
    (out / "chat_template_sums.json").write_text(
        f'{{"now": {NOW},\n "contexts": {own},\n "sums": [\n{rows}\n ]}}\n')
    refused = sum(row[3] is None for row in sums)
    print(f"{len(cases)} snippets, {len(sums)} renderings ({refused} refused by jinja2)")


if __name__ == "__main__":
    main()
