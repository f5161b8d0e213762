"""Two hundred schemas through the official client: every reply ends, parses and is valid, and has the same tokens
where they are drafted. Replies to the same questions without a form are not all valid."""
import concurrent.futures
import json
import random

import jsonschema
import pytest

from api_server import Server
from edge import demo_model

COUNT = 200
WORDS = "name city age sum tags state items owner note price unit code".split()
LEAVES = [
    {"type": "integer", "minimum": -20, "maximum": 9999},
    {"type": "integer", "exclusiveMinimum": 0, "maximum": 500, "multipleOf": 5},
    {"type": "boolean"},
    {"type": ["null", "boolean"]},
    {"const": "fixed: \"é\""},
    {"enum": ["open", "closed", 3, None]},
    {"type": "string", "maxLength": 10},
    {"type": "string", "minLength": 2, "maxLength": 6, "pattern": "^[a-z]*$"},
    {"type": "string", "pattern": "^[A-Z]{2}-[0-9]{2,4}$"},
    {"type": "string", "format": "date"},
    {"type": "string", "format": "uuid"},
    {"type": "string", "format": "ipv4"},
    {"$ref": "#/$defs/pair"},
]
PAIR = {"type": "array", "prefixItems": [{"type": "boolean"}, {"type": "integer", "minimum": 0, "maximum": 99}],
        "items": False, "minItems": 2}


def closed_object(rng, depth):
    names = rng.sample(WORDS, rng.randrange(1, 5))
    out = {"type": "object", "properties": {name: node(rng, depth - 1) for name in names},
           "required": rng.sample(names, rng.randrange(len(names) + 1)), "additionalProperties": False}
    if rng.random() < 0.2:
        out["allOf"] = [{"required": [names[0]]}, {"minProperties": 2 if len(names) > 1 else 1}]
    return out


def tagged(kind, inner):
    return {"type": "object", "properties": {"kind": {"const": kind}, "value": inner},
            "required": ["kind", "value"], "additionalProperties": False}


def node(rng, depth):
    """A schema of which every value is finite, so that a reply ends by itself."""
    if depth == 0:
        return rng.choice(LEAVES)
    shape = rng.randrange(10)
    if shape < 5:
        return closed_object(rng, depth)
    if shape < 7:
        return {"type": "array", "items": node(rng, depth - 1), "minItems": rng.randrange(2), "maxItems": 3}
    if shape == 7:
        return {"anyOf": [node(rng, depth - 1), {"type": "null"}]}
    if shape == 8:
        return {"oneOf": [tagged(kind, node(rng, depth - 1)) for kind in ("a", "b")]}
    return rng.choice(LEAVES)


def schema_of(number):
    return {"$defs": {"pair": PAIR}, **node(random.Random(number), 2)}


SCHEMAS = [schema_of(number) for number in range(COUNT)]


def ask(client, number, constrained):
    schema = SCHEMAS[number]
    form = {"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}}
    return client.chat.completions.create(
        model="demo", temperature=0.8, seed=number, max_tokens=1500 if constrained else 200,
        messages=[{"role": "user", "content": f"Fill in this JSON: {{\"{WORDS[number % 12]}\": \"\"}}"}],
        extra_body={"return_token_ids": True}, **(form if constrained else {})).choices[0]


def ask_all(running, constrained=True, workers=16):
    client = running.client()
    with concurrent.futures.ThreadPoolExecutor(workers) as pool:
        return list(pool.map(lambda number: ask(client, number, constrained), range(COUNT)))


def is_valid(number, choice):
    try:
        value = json.loads(choice.message.content or "")
    except ValueError:
        return False
    judge = jsonschema.Draft202012Validator(SCHEMAS[number], format_checker=jsonschema.FormatChecker())
    return judge.is_valid(value)


@pytest.fixture(scope="module")
def replies(server):
    return ask_all(server)


def test_every_reply_is_valid(replies):
    assert len({json.dumps(schema) for schema in SCHEMAS}) > COUNT / 2
    for number, choice in enumerate(replies):
        shown = f"{json.dumps(SCHEMAS[number])}: {choice.finish_reason} {choice.message.content}"
        assert choice.finish_reason == "stop", shown
        assert is_valid(number, choice), shown
    assert len({choice.message.content for choice in replies}) > COUNT / 2


def test_without_the_form_not_every_reply_is(server):
    free = [is_valid(number, choice) for number, choice in enumerate(ask_all(server, constrained=False))]
    assert sum(free) < COUNT / 2, f"{sum(free)} of {COUNT} are valid by themselves"


def test_drafts_change_no_token(replies):
    config = {"method": "ngram", "num_speculative_tokens": 4, "min_ngram_size": 1}
    running = Server(demo_model(), "--speculative-config", json.dumps(config))
    try:
        # Few at a time: in a large batch no draft may be worth its row.
        for number, (plain, drafted) in enumerate(zip(replies, ask_all(running, workers=2))):
            assert drafted.token_ids == plain.token_ids, SCHEMAS[number]
            assert drafted.finish_reason == plain.finish_reason
            assert drafted.message.content == plain.message.content
        assert running.metric("vllm:spec_decode_num_accepted_tokens_total") > COUNT / 10
    finally:
        running.close()
