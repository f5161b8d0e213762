"""Random schemas with random instances, judged by jsonschema: no bad instance is accepted, and no
good one refused but for the documented differences (order of members, 1.0 as an integer, characters
about which readers of patterns disagree). What is refused is refused for one of a few reasons.

`SKIFF_RANDOM_SCHEMAS=5000 pytest tests/grammar` looks further.
"""
import json
import os
import random
import re
from fractions import Fraction

import jsonschema

COUNT = int(os.environ.get("SKIFF_RANDOM_SCHEMAS", "850"))
UNSATISFIABLE = "the schema cannot be satisfied"
REFUSALS = (UNSATISFIABLE, '"oneOf" is supported where no value fits two branches',
            "minProperties beside members that the schema does not name is not supported",
            "the schema refers to itself without taking in anything")
# Characters about which dialects of regular expressions disagree: digits, letters, spaces and line
# ends to some of them. They are all between the two readings of some pattern below.
DISPUTED = set("\n\r\x1c\x85é٣½\u0301\u2028\ufeff")
NAMES = ["a", "b", "ab", "x1", "é", 'q"', "٣", "b\n"]
PATTERNS = ["^a", "b$", "^[ab]{1,3}$", "x|^é", "\\d", "^(a|b)*$", "[^a]", "^\\w+$", "^[^\\d]+$", "^[^\\w]",
            "^[^\\s]$", "[^\\S]", "^[^\\D]$", "^[^\\W]$", "^.$", "\\W"]


def exact(number):
    """The number that is written, not the double next to it."""
    return Fraction(str(number))


def multiple_of(validator, step, instance, schema):
    """By the specification. jsonschema divides doubles, by which 4.35 is no multiple of 0.01."""
    if validator.is_type(instance, "number") and exact(instance) % exact(step):
        yield jsonschema.ValidationError(f"{instance} is not a multiple of {step}")


# Bounds need no change: decimals of a few digits are ordered as the doubles next to them are.
Judge = jsonschema.validators.extend(jsonschema.Draft202012Validator, {"multipleOf": multiple_of})


def decimal(rng):
    """A number with one to three decimals, the last of which is not 0."""
    digits = rng.randrange(1, 4)
    number = rng.choice([435, 10 * rng.randrange(-400, 1300) + rng.randrange(1, 10)])
    return float(f"{number}e-{digits}")


def scalar(rng):
    return rng.choice([decimal(rng), None, True, False, 0, 1, -3, 7, 12, 100, 2.5, -0.25, 10.01, "", "a", "ab", "bab",
                       "x1", "éé", 'q"\\', "a\nb", "😀", "a" * 7, rng.choice(sorted(DISPUTED)), "ab\n"])


def instance(rng, depth=0):
    kind = rng.random()
    if depth > 2 or kind < 0.55:
        return scalar(rng)
    if kind < 0.75:
        return [instance(rng, depth + 1) for _ in range(rng.randrange(4))]
    return {rng.choice(NAMES): instance(rng, depth + 1) for _ in range(rng.randrange(4))}


def schema(rng, depth=0):
    if rng.random() < 0.05:
        return True
    out = {}
    if rng.random() < 0.8:
        kinds = ["null", "boolean", "integer", "number", "string", "array", "object"]
        out["type"] = rng.sample(kinds, 2) if rng.random() < 0.2 else rng.choice(kinds[2:])

    def add(chance, key, make):
        if rng.random() < chance:
            out[key] = make()

    inner = 0.5 if depth < 3 else 0
    add(0.15, "minimum", lambda: rng.choice([-5, 0, 1, 2.5, 7]))
    add(0.15, "maximum", lambda: rng.choice([-1, 7, 10.01, 100]))
    add(0.07, "exclusiveMinimum", lambda: rng.choice([-3, 0, 2.5]))
    add(0.07, "exclusiveMaximum", lambda: rng.choice([1, 12, 100]))
    add(0.12, "multipleOf", lambda: rng.choice([1, 2, 3, 7, 0.1, 0.01, 0.001]))
    add(0.15, "minLength", lambda: rng.randrange(4))
    add(0.15, "maxLength", lambda: rng.randrange(5))
    add(0.15, "pattern", lambda: rng.choice(PATTERNS))
    add(0.06, "enum", lambda: [instance(rng) for _ in range(3)])
    add(0.04, "const", lambda: scalar(rng))
    add(inner, "properties", lambda: {n: schema(rng, depth + 1) for n in rng.sample(NAMES, 2)})
    add(0.2, "required", lambda: rng.sample(NAMES, rng.randrange(3)))
    add(0.2, "additionalProperties", lambda: rng.choice([False, {"type": "integer"}]))
    add(0.1 * inner, "patternProperties", lambda: {rng.choice(PATTERNS): schema(rng, depth + 1)})
    add(0.07, "propertyNames", lambda: {"pattern": rng.choice(PATTERNS)})
    add(0.07, "maxProperties", lambda: rng.randrange(3))
    add(0.07, "minProperties", lambda: rng.randrange(3))
    add(inner / 2, "items", lambda: schema(rng, depth + 1))
    add(inner / 4, "prefixItems", lambda: [schema(rng, depth + 1) for _ in range(2)])
    add(0.1, "minItems", lambda: rng.randrange(3))
    add(0.1, "maxItems", lambda: rng.randrange(4))
    add(inner / 4, "anyOf", lambda: [schema(rng, depth + 1) for _ in range(2)])
    add(inner / 4, "allOf", lambda: [schema(rng, depth + 1) for _ in range(2)])
    add(inner / 6, "oneOf", lambda: [schema(rng, depth + 1) for _ in range(2)])
    add(inner / 6, "$ref", lambda: "#/$defs/d")
    return out


CLASSES = ["^[^\\d]$", "^[^\\w]$", "^[^\\s]$", "^[^\\S]$", "^[^\\D]$", "^[^\\W]$", "^\\d$", "^\\w$", "^\\s$", "^\\S$",
           "^\\D$", "^\\W$", "^.$", "^[^.]$", "^[^\\d\\s]$", "^[\\W\\d]$"]


def test_classes_of_characters(constrain):
    """Of all characters, none is accepted by a pattern that does not match it in Python."""
    characters = [chr(c) for c in range(0x3000) if not 0xD800 <= c < 0xE000]
    characters += list("\u3000一\ufeff\uffff😀𝟘𐄀")
    texts = [json.dumps(c, ensure_ascii=False) for c in characters]
    for pattern in CLASSES:
        verdicts = constrain("json-schema", json.dumps({"type": "string", "pattern": pattern}), texts)
        matches = [re.search(pattern, c) is not None for c in characters]
        wrong = [c for c, match, v in zip(characters, matches, verdicts) if v["accepts"] and not match]
        assert not wrong, f"{pattern} accepts {wrong[:20]}"
        assert any(v["accepts"] for v in verdicts), pattern


def test_decimals(constrain):
    """Multiples of powers of ten, by their digits; without the exact judge these would differ."""
    numbers = [4.35, 0.07, 1.1, 2.675, 0.3, 8.41, -4.35, 0.001, 12.0]
    for step in [0.1, 0.01, 0.001]:
        root = {"type": "number", "multipleOf": step}
        verdicts = constrain("json-schema", json.dumps(root), [json.dumps(n) for n in numbers])
        for number, verdict in zip(numbers, verdicts):
            assert verdict["accepts"] == Judge(root).is_valid(number), (number, step)
    assert Judge({"multipleOf": 0.01}).is_valid(4.35)
    assert not jsonschema.Draft202012Validator({"multipleOf": 0.01}).is_valid(4.35)


def has_one_order(value):
    """No object in the value has two members, so that their order cannot matter."""
    if isinstance(value, dict):
        return len(value) < 2 and all(has_one_order(member) for member in value.values())
    return not isinstance(value, list) or all(has_one_order(element) for element in value)


def is_undisputed(value):
    """No text in the value, or name of a member, is one that a pattern may match to some readers only."""
    if isinstance(value, dict):
        return all(is_undisputed(name) and is_undisputed(member) for name, member in value.items())
    if isinstance(value, list):
        return all(is_undisputed(element) for element in value)
    return not isinstance(value, str) or not DISPUTED & set(value)


def test_random_schemas(constrain):
    accepted = good = bad = 0
    for seed in range(COUNT):
        rng = random.Random(seed)
        root = schema(rng)
        if not isinstance(root, dict):
            continue
        root["$defs"] = {"d": schema(rng, 2)}
        values = [instance(rng) for _ in range(60)]
        texts = [json.dumps(v, ensure_ascii=i % 2 == 0, indent=2 if i % 3 == 0 else None)
                 for i, v in enumerate(values)]
        verdicts = constrain("json-schema", json.dumps(root), texts)
        judge = Judge(root)
        if isinstance(verdicts, dict):
            assert verdicts["error"].startswith(REFUSALS), f"seed {seed}: {root} is refused: {verdicts}"
            if verdicts["error"].startswith(UNSATISFIABLE):
                assert not any(judge.is_valid(value) for value in values if is_undisputed(value)), \
                    f"seed {seed}: {root} can be satisfied"
            continue
        accepted += 1
        for value, text, verdict in zip(values, texts, verdicts):
            try:
                valid = judge.is_valid(value)
            except RecursionError:  # $defs/d is itself, without taking in anything: nobody can tell
                break
            good, bad = good + valid, bad + (not valid)
            assert valid or not verdict["accepts"], f"seed {seed}: {root} accepts {text}"
            if valid and not verdict["accepts"]:
                assert not (has_one_order(value) and is_undisputed(value)), f"seed {seed}: {root} refuses {text}"
    assert good > COUNT and bad > 10 * COUNT and accepted > COUNT / 2, (good, bad, accepted)
    print(f"{accepted} schemas accepted of {COUNT}; {good} good instances, {bad} bad ones")
