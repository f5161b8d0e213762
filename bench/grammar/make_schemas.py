#!/usr/bin/env python3
"""Writes schemas with good and bad texts for bench_masks: make_schemas.py [COUNT] > FILE."""
import json
import random
import sys

WORDS = "order user address city total price name status created items count value note tag owner".split()
TEXT = "The quick delivery to the old town was late, but Zoë said it is fine at 10:30 on Monday".split()


def leaf(rng):
    kind = rng.randrange(8)
    if kind == 0:
        return {"type": "integer", "minimum": 0, "maximum": 10 ** rng.randrange(2, 7)}, rng.randrange(100), -1
    if kind == 1:
        return {"type": "number"}, round(rng.random() * 100, 2), "x"
    if kind == 2:
        return {"type": "boolean"}, rng.random() < 0.5, 0
    if kind == 3:
        values = rng.sample(WORDS, 4)
        return {"enum": values}, rng.choice(values), "none"
    if kind == 4:
        return {"type": "string", "format": "date"}, f"20{rng.randrange(10, 30)}-0{rng.randrange(1, 9)}-17", "2021-02-30"
    if kind == 5:
        return {"type": "string", "pattern": "^[A-Z]{2}-[0-9]{3,6}$"}, f"AB-{rng.randrange(1000, 99999)}", "AB12"
    if kind == 6:
        return {"type": "string", "maxLength": 120}, " ".join(rng.sample(TEXT, 9)), 5
    return {"type": "string"}, " ".join(rng.sample(TEXT, rng.randrange(1, 12))), None


def node(rng, depth):
    if depth == 0 or rng.random() < 0.45:
        return leaf(rng)
    if rng.random() < 0.35:
        schema, good, bad = node(rng, depth - 1)
        return ({"type": "array", "items": schema, "minItems": 1, "maxItems": rng.choice([5, 50, 5000])},
                [good] * rng.randrange(1, 4), [bad])
    properties, good, bad = {}, {}, {}
    for name in rng.sample(WORDS, rng.randrange(2, 9)):
        properties[name], good[name], bad[name] = node(rng, depth - 1)
    schema = {"type": "object", "properties": properties, "required": list(properties)[: rng.randrange(1, 3)]}
    if rng.random() < 0.6:
        schema["additionalProperties"] = False
    return schema, good, bad


def main():
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    for seed in range(count):
        rng = random.Random(seed)
        schema, good, bad = {"type": "string"}, "", 0
        while schema["type"] != "object" if "type" in schema else True:
            schema, good, bad = node(rng, 3)
        indent = [None, 2][seed % 2]
        print(json.dumps({"schema": schema, "good": [json.dumps(good, ensure_ascii=False, indent=indent)],
                          "bad": [json.dumps(bad)]}))


if __name__ == "__main__":
    main()
