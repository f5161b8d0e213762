"""Replies of a given form, through the official client: every one parses and validates."""
import json
import re

import jsonschema
import openai
import pytest

SCHEMAS = [
    {"type": "object", "properties": {"sum": {"type": "integer", "maximum": 999, "minimum": 0}},
     "required": ["sum"], "additionalProperties": False},
    {"type": "object", "properties": {"name": {"type": "string", "maxLength": 12},
                                      "tags": {"type": "array", "items": {"enum": ["a", "b"]},
                                               "minItems": 1, "maxItems": 3}},
     "required": ["name", "tags"], "additionalProperties": False},
    {"type": "array", "prefixItems": [{"type": "boolean"}, {"const": "x"}], "items": False,
     "minItems": 2},
    {"enum": ["red", "green", 3, None]},
    {"type": "string", "pattern": "^[A-Z][a-z]{2,5}$"},
    {"type": "string", "format": "date"},
    {"type": "number", "minimum": 1.5, "maximum": 2.25, "multipleOf": 0.01},
    {"anyOf": [{"type": "object", "properties": {"t": {"const": "n"}, "v": {"type": "null"}},
                "required": ["t", "v"], "additionalProperties": False},
               {"type": "boolean"}]},
    {"$defs": {"tree": {"type": "object", "properties": {
        "v": {"type": "integer", "minimum": 0, "maximum": 9},
        "left": {"anyOf": [{"$ref": "#/$defs/tree"}, {"type": "null"}]}},
        "required": ["v"], "additionalProperties": False}}, "$ref": "#/$defs/tree"},
]


def ask(client, content="What is 27 + 45?", **options):
    reply = client.chat.completions.create(
        model="default", messages=[{"role": "user", "content": content}], max_tokens=160, **options)
    return reply.choices


def schema_format(schema):
    return {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}


@pytest.mark.parametrize("temperature", [0, 1.5])
def test_replies_follow_their_schema(server, temperature):
    client = server.client()
    for seed, schema in enumerate(SCHEMAS):
        for choice in ask(client, temperature=temperature, seed=seed, n=2,
                          response_format=schema_format(schema)):
            if choice.finish_reason == "length":
                continue
            assert choice.finish_reason == "stop"
            jsonschema.validate(json.loads(choice.message.content), schema)


def test_every_kind_of_constraint(server):
    client = server.client()
    cases = [({"guided_regex": "[0-9]{3}-[a-c]+z"}, "[0-9]{3}-[a-c]+z"),
             ({"guided_choice": ["left", "right"]}, "left|right"),
             ({"guided_grammar": 'root ::= "<" [a-d]{2,4} ">"'}, "<[a-d]{2,4}>"),
             ({"structured_outputs": {"grammar": 'start: "ok" | "no" "!"~1..2'}}, "ok|no!{1,2}"),
             ({"structured_outputs": {"choice": ["A", "B"]}}, "A|B"),
             ({"ebnf": 'root ::= "x" root "y" | "-"'}, "x*-y*"),
             ({"structural_tag": {"format": {"type": "tag", "begin": "[", "end": "]", "content":
                                             {"type": "regex", "pattern": "[0-9]{2}"}}}},
              r"\[[0-9]{2}\]")]
    for body, pattern in cases:
        for choice in ask(client, temperature=1, seed=3, extra_body=body):
            if choice.finish_reason == "stop":
                assert re.fullmatch(pattern, choice.message.content), (body, choice)


def test_a_stream_gives_the_same_text(server):
    client = server.client()
    options = {"temperature": 1, "seed": 5, "response_format": schema_format(SCHEMAS[1])}
    whole = ask(client, **options)[0].message.content
    parts = ask_stream(client, **options)
    assert "".join(parts) == whole


def ask_stream(client, **options):
    stream = client.chat.completions.create(
        model="default", messages=[{"role": "user", "content": "What is 27 + 45?"}],
        max_tokens=160, stream=True, **options)
    return [chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices]


def test_a_complete_form_ends_the_reply(server):
    choice = ask(server.client(), temperature=0,
                 extra_body={"guided_choice": ["yes"], "min_tokens": 40, "ignore_eos": True})[0]
    assert (choice.message.content, choice.finish_reason) == ("yes", "stop")


def deep_grammar(links):
    """Rules within rules; the first is `root`."""
    rules = [f'r{i} ::= "<" r{i + 1} ">"' for i in range(1, links)]
    return "\n".join(['root ::= "<" r1 ">"', *rules, f'r{links} ::= "m"'])


def deep_schema(links):
    """Lists within lists. The first members refer to late links, so that each is read by itself."""
    defs = {f"d{i}": {"type": "array", "minItems": 1, "items": {"$ref": f"#/$defs/d{i + 1}"}}
            for i in range(links)}
    properties = {f"p{i}": {"$ref": f"#/$defs/d{i}"} for i in range(links, 0, -80)}
    return {"type": "object", "properties": {**properties, "all": {"$ref": "#/$defs/d0"}},
            "required": ["all"], "additionalProperties": False,
            "$defs": {**defs, f"d{links}": {"type": "null"}}}


def test_what_cannot_be_honoured_is_a_400(server):
    client = server.client()
    cases = [({"guided_json": {"properties": {"a": {"not": {"type": "null"}}}}}, "guided_json",
              "/properties/a/not"),
             ({"guided_regex": "(?=a)"}, "guided_regex", "look-around"),
             ({"guided_regex": "((a{1,1000}){1,1000}){1,1000}"}, "guided_regex", "repetitions"),
             ({"guided_regex": "a", "guided_choice": ["b"]}, "guided_choice", "guided_regex"),
             ({"structured_outputs": {"choices": ["b"]}}, "structured_outputs", "choice"),
             ({"guided_grammar": "root ::= missing"}, "guided_grammar", "missing"),
             ({"guided_grammar": deep_grammar(1500)}, "guided_grammar", 'rule "r1025" lies deeper'),
             ({"guided_json": json.dumps(deep_schema(1400))}, "guided_json", "/$defs/d1023/items"),
             ({"guided_json": False}, "guided_json", "satisfied")]
    for body, field, part in cases:
        with pytest.raises(openai.BadRequestError) as refused:
            ask(client, extra_body=body)
        assert refused.value.body["param"] == field
        assert part in refused.value.body["message"]
