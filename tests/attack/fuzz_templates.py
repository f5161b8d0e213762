"""Mutated chat templates: real ones, hostile ones and generated ones, cut into tokens and put together
wrongly. Each is asked for at /tokenize, which renders it and computes nothing."""
import json
import re
import sys

import templates as hostile
from target import ROOT

sys.path.insert(0, str(ROOT / "tools/text"))
import jinja_grammar  # noqa: E402
import jinja_snippets  # noqa: E402

SHARED = ROOT.parent / "shared/data/chat_templates"
TOKEN = re.compile(r"\{%-?|-?%\}|\{\{-?|-?\}\}|\w+|'[^'\n]*'|\"[^\"\n]*\"|\s+|.", re.S)
NUMBERS = ["0", "-1", "1", "2", "60", "100000", "2147483648", "9223372036854775807",
           "-9223372036854775808", "18446744073709551615", "1e308", "1e-308", "99999999999999999999"]
PIECES = [
    "{% for i in range(100000) %}", "{% endfor %}", "{% if ", " %}", "{% endif %}", "{% else %}",
    "{% set ns.a=[ns.a] %}", "{% set ns=namespace(a=1) %}", "{% macro f(x, y=1) %}", "{% endmacro %}",
    "{% call f() %}", "{% endcall %}", "{{ caller() }}", "{{ f() }}", "{{ loop(messages) }}",
    "{% filter upper %}", "{% endfilter %}", "{% set x %}", "{% endset %}", "{% raw %}", "{% endraw %}",
    "{% generation %}", "{% endgeneration %}", "{% block b %}", "{% endblock %}", "{% break %}",
    "{% continue %}", "{% include 'x' %}", "{% extends 'x' %}", "{% import 'x' as y %}", "{# ", " #}",
    "{% with a=1 %}", "{% endwith %}", "{{ messages|tojson(indent=4) }}", " recursive ", "~'a'*60000000",
    "|map(attribute='content')", "|selectattr('role','equalto','user')", "|sort(attribute='role')",
    "|groupby('role')", "|batch(3)", "|slice(3)", "|join", "|unique", "|tojson", "|string", "|list",
    "|length", "|int", "|float", "|indent(1000)", "|center(1000)", "|replace('a','aaaa')", "|reverse",
    "|dictsort", "|items", "|xmlattr", "|urlize", "|wordwrap(1)", "|truncate(1)", "|format(1)", "|sum",
    "[::-1]", "[-1:]", "[::0]", ".split('')", ".format(a)", ".join(messages)", ".items()", ".append(1)",
    ".update(x)", ".__class__", "['__globals__']", " is defined", " is sameas ", " not in ", " if ",
    " else ", "joiner('x')", "cycler(1,2)", "loop.changed(x)", "loop.cycle(1,2)", "loop.previtem",
    "loop.nextitem", "lipsum()", "dict(a=1)", "raise_exception('x')", "strftime_now('%Y')",
    "range(9**9)", "**", "//", "%", "(", ")", "[", "]", "{", "}", ",", ":", "=", "|", "'", '"', "\\",
    "\0", "\u0301", "\U0001F389", "\xff",
]


def seeds():
    """(templates, contexts)."""
    every = [path.read_text() for path in sorted(SHARED.glob("templates/*.jinja"))]
    every += [text for table in (hostile.CRASHES, hostile.RECURSION, hostile.UNCHARGED, hostile.MEMORY,
                                 hostile.PARSE) for text in table.values() if len(text) < 2000]
    every += [snippet if isinstance(snippet, str) else snippet[0]
              for snippet in jinja_snippets.SNIPPETS]
    contexts = [json.loads(path.read_text()) for path in sorted(SHARED.glob("contexts/*.json"))]
    contexts.append(dict(jinja_grammar.VARIABLES))
    return every, contexts


class Templates:
    def __init__(self, rng):
        self.rng = rng
        self.seeds, self.contexts = seeds()
        self.bag = [token for text in self.seeds[:60] for token in TOKEN.findall(text)]

    def text(self):
        rng = self.rng
        kind = rng.random()
        if kind < 0.25:
            text = jinja_grammar.template(rng.randrange(1 << 30))
            text = text if isinstance(text, str) else text[0]
        else:
            text = rng.choice(self.seeds)
        if kind > 0.9:  # long: one piece of it many times over
            return self.repeated(text)
        tokens = TOKEN.findall(text)
        for _ in range(rng.choice([1, 1, 2, 3, 5, 10, 30])):
            self.mutate(tokens)
        return "".join(tokens)[:1 << 20]

    def repeated(self, text):
        rng = self.rng
        start = rng.randrange(max(1, len(text)))
        piece = text[start:start + rng.choice([1, 2, 5, 20, 100])] or rng.choice(PIECES)
        if rng.random() < 0.5:
            piece = rng.choice(PIECES)
        return (text[:start] + piece * (rng.choice([100, 3000, 100000]) // len(piece) + 1)
                + text[start:])[:1 << 20]

    def mutate(self, tokens):
        rng = self.rng
        at = rng.randrange(len(tokens) + 1)
        end = min(len(tokens), at + rng.choice([1, 1, 2, 5, 20]))
        kind = rng.randrange(9)
        if kind == 0:
            del tokens[at:end]
        elif kind == 1:
            tokens[at:at] = tokens[at:end] * rng.choice([1, 2, 10])
        elif kind == 2:
            tokens.insert(at, rng.choice(PIECES))
        elif kind == 3:
            tokens.insert(at, rng.choice(self.bag))
        elif kind == 4 and at < len(tokens):
            tokens[at] = rng.choice(self.bag)
        elif kind == 5:
            numbers = [i for i, token in enumerate(tokens) if token.isdigit()]
            if numbers:
                tokens[rng.choice(numbers)] = rng.choice(NUMBERS)
        elif kind == 6 and tokens:
            other = rng.randrange(len(tokens))
            at = min(at, len(tokens) - 1)
            tokens[at], tokens[other] = tokens[other], tokens[at]
        elif kind == 7:
            tokens[at:at] = TOKEN.findall(rng.choice(self.seeds))[:200]
        else:
            names = [i for i, token in enumerate(tokens) if token.isidentifier()]
            if len(names) > 1:
                tokens[rng.choice(names)] = tokens[rng.choice(names)]

    def case(self):
        context = self.rng.choice(self.contexts)
        body = {"messages": context.get("messages", [{"role": "user", "content": "Hi"}]),
                "chat_template": self.text()}
        if isinstance(context.get("tools"), list):
            body["tools"] = context["tools"]
        extra = {name: value for name, value in context.items()
                 if name not in ("messages", "tools", "bos_token", "eos_token", "add_generation_prompt")}
        if extra:
            body["chat_template_kwargs"] = extra
        return "POST", "/tokenize", json.dumps(body).encode()
