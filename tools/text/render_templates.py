#!/usr/bin/env python3
"""Renders templates with Python's jinja2, set up as Hugging Face sets it up, to make the expected
outputs of the template tests:

  tests/text/jinja_cases.json         the snippets of jinja_snippets.py with their full outputs
  tests/text/jinja_random.json.gz     random templates of jinja_grammar.py with their outputs
  tests/text/chat_template_sums.json  length and FNV-1a hash of what the models' templates of
                                      SHARED/data give for several conversations (no text of theirs)

usage: render_templates.py [--shared DIR] [--first-seed N] [--random N]
"""
import argparse
import datetime
import gzip
import itertools
import json
import os
import pathlib
import re

import jinja2
import jinja2.ext
from jinja2.sandbox import ImmutableSandboxedEnvironment

import jinja_grammar
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


def environment(**options):
    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators,
                          sort_keys=sort_keys)

    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def strftime_now(form):
        return datetime.datetime.fromtimestamp(NOW).strftime(form)

    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True,
                                        extensions=[Generation, jinja2.ext.loopcontrols],
                                        **options)
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


# Templates that join the arguments of calls to other text, and take only a message whose content is
# none for one with calls: what src/text/chat/history_form.h finds out about them.
JOINED = ("DeepSeek-R1-Distill-Llama-8B.jinja", "deepseek-r1/tokenizer_config.json")


def in_history_form(message):
    """The message as those templates read it."""
    if not message.get("tool_calls"):
        return message
    calls = [call | {"function": call["function"] | {
        "arguments": arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)}}
        for call in message["tool_calls"] for arguments in [call["function"]["arguments"]]]
    return message | {"content": message["content"] or None, "tool_calls": calls}


# What Python prints and we do not promise: addresses of objects, and integers beyond 64 bits.
# Slices of constants that have none, and arithmetic with more than 64 bits.
NOT_PROMISED = re.compile(r"(none|\d)\)*\[[^\]]*:|max64.* (\*|//|\+|-|\*\*|%|/) |(\*|//|\+|-|\*\*|%|/) .*max64|h \| int",
                          re.DOTALL)
NOT_COMPARED = re.compile(r" at 0x[0-9a-f]+|\d{19}", re.IGNORECASE)


def random_cases(env, first_seed, count):
    """Templates whose output is short and the same for everybody, refused ones among them."""
    cases = []
    # Nothing computed ahead of time: neither by the optimizer nor for outputs that are constant.
    plain = environment(optimized=False, finalize=jinja2.pass_context(lambda context, value: value))
    for seed in itertools.count(first_seed):
        text = jinja_grammar.template(seed)
        output = render(env, text, jinja_grammar.VARIABLES)
        if output is not None and (NOT_COMPARED.search(output.replace("18446744073709551615", "")) or len(output) > 2000):
            continue
        if NOT_PROMISED.search(text) or len(text) > 1200 or is_refused_by_host(env, text):
            continue
        if render(plain, text, jinja_grammar.VARIABLES) != output:  # folded constants forgive errors
            continue
        cases.append([text, output])
        if len(cases) == count:
            return cases


def is_refused_by_host(env, text):
    """Whether the reason is the host language: a lone surrogate, an integer that is too large."""
    try:
        env.from_string(text).render(**jinja_grammar.VARIABLES)
    except (UnicodeError, MemoryError, RecursionError):
        return True
    except Exception:
        return False
    return False


def write_random(out, env, first_seed, count):
    cases = random_cases(env, first_seed, count)
    text = json.dumps({"now": NOW, "variables": jinja_grammar.VARIABLES, "cases": cases}, ensure_ascii=False)
    with open(out / "jinja_random.json.gz", "wb") as raw:
        with gzip.GzipFile(fileobj=raw, mode="wb", filename="", mtime=0) as file:
            file.write(text.encode())
    refused = sum(output is None for _, output in cases)
    print(f"{len(cases)} random templates ({refused} refused by jinja2)")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shared", type=pathlib.Path, default=ROOT.parent / "shared")
    parser.add_argument("--first-seed", type=int, default=0, help="of the random templates")
    parser.add_argument("--random", type=int, default=2000, help="how many of them")
    args = parser.parse_args()
    data = args.shared / "data"
    env = environment()
    write_random(ROOT / "tests/text", env, args.first_seed, args.random)
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
                if template_name.endswith(JOINED):
                    variables["messages"] = [in_history_form(one) for one in context["messages"]]
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
