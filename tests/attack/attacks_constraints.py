"""Attacks by constraints: schemas, expressions, grammars, tags and tools that would cost much to compile or to follow."""
import time

from attack import Attack
from target import chat

CHAT = "/v1/chat/completions"


def texts(count, size):
    return [f"{i:05d}" + "x" * size for i in range(count)]


def choices_of_choices(depth):
    """An intersection of unions, as large as 3 to the power of depth if it is multiplied out."""
    def part(i, j):
        return {"type": "object", "properties": {f"a{i}": {"const": j}, f"b{j}": {"minimum": i}}, "required": [f"a{i}"]}
    return {"allOf": [{"anyOf": [part(i, j) for j in range(3)]} for i in range(depth)]}


def doubling(depth):
    """Each definition is the intersection of two that refer to the next one."""
    one = {f"d{i}": {"allOf": [{"properties": {"x": {"$ref": f"#/$defs/d{i + 1}"}}},
                               {"properties": {"x": {"$ref": f"#/$defs/d{i + 1}"}, "y": {"$ref": f"#/$defs/d{i + 1}"}}}]}
           for i in range(depth)}
    return {"$defs": {**one, f"d{depth}": {"type": "string"}}, "$ref": "#/$defs/d0"}


def patterns(count):
    """Names that match any of many expressions, whose product has two to the power of 20 states and more."""
    return {"type": "object", "patternProperties": {f"{chr(97 + i)}.{{{18 + i}}}$": {"multipleOf": i + 2}
                                                    for i in range(count)}}


def nested(depth, inner):
    return inner if depth == 0 else {"type": "object", "properties": {"a": nested(depth - 1, inner)}}


def schemas():
    yield "unions multiplied", choices_of_choices(24)
    yield "doubled definitions", doubling(40)
    yield "products of patterns", patterns(12)
    yield "a very long string", {"type": "string", "minLength": 10**9}
    yield "a very long list", {"type": "array", "items": {"type": "string", "pattern": "(a|b)*a(a|b){12}"}, "minItems": 9999}
    yield "bounds of bounds", {"type": "array", "maxItems": 9000, "items": {
        "type": "array", "maxItems": 9000, "items": {"type": "string", "maxLength": 100000}}}
    yield "many members", {"type": "object", "properties": {name: {"type": "string", "pattern": name}
                                                            for name in texts(900, 60)}, "maxProperties": 64}
    yield "many constants", {"enum": texts(1000, 200)}
    yield "many digits", {"type": "number", "minimum": -1.7e308, "maximum": 1.7e308, "multipleOf": 1e-9}
    yield "a large modulus", {"type": "integer", "multipleOf": 997, "minimum": -10**18, "maximum": 10**18}
    yield "deep", nested(20, {"anyOf": [{"type": "string", "pattern": "(x*)*y"}] * 40})
    yield "itself", {"$defs": {"a": {"allOf": [{"$ref": "#/$defs/a"}]}}, "$ref": "#/$defs/a"}
    yield "branches that may overlap", {"oneOf": [{"type": "string", "pattern": f"^(a|b)*{c}(a|b){{15}}$"} for c in "ababab"]}


EXPRESSIONS = [("repetitions", "((a{1,1000}){1,1000}){1,1000}"), ("optional ones", "(a?){4000}a{4000}"),
               ("nested stars", "((((((a*)*)*)*)*)*)*b"), ("two to the power of 30", "(a|b)*a(a|b){30}"),
               ("alternatives", "|".join(texts(4000, 40))), ("groups", "(" * 5000 + "a" + ")" * 5000),
               ("classes", "[\\w\\W]" * 20000), ("everything", "(.*a.*b.*c.*d.*e.*){9}")]

GRAMMARS = [("ambiguous", "root ::= root root | \"a\" | \"\""),
            ("nothing in nothing", "root ::= (((((\"\"?)*)*)*)*)* a\na ::= a? a? a? \"x\""),
            ("rules in a row", "root ::= r0\n" + "".join(f"r{i} ::= r{i + 1} | r{i + 1} \"x\"\n" for i in range(4800))
             + "r4800 ::= \"y\""),
            ("a wide rule", "root ::= \"z\" | " + " | ".join(f"\"{text}\" root" for text in texts(3000, 20))),
            ("itself first", "root ::= a\na ::= b \"x\" | \"\"\nb ::= a \"y\" | b b")]


def bodies():
    """(name, fields of a request)"""
    for name, schema in schemas():
        yield name, {"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}}
        tool = {"type": "function", "function": {"name": "f", "strict": True, "parameters": {
            "type": "object", "properties": {"a": {"$defs": schema.get("$defs", {}), **schema}}}}}
        if "$defs" not in schema:
            yield name + " of a tool", {"tools": [tool], "tool_choice": "required"}
    for name, text in EXPRESSIONS:
        yield name, {"guided_regex": text}
        yield name + " in a pattern", {"guided_json": {"type": "string", "pattern": text[:60000]}}
        yield name + " as blanks", {"guided_json": {"type": "array"}, "guided_whitespace_pattern": text[:1000]}
    for name, text in GRAMMARS:
        yield name, {"guided_grammar": text}
    yield "many triggers", {"structural_tag": {"format": {
        "type": "triggered_tags", "triggers": texts(900, 4),
        "tags": [{"begin": text, "content": {"type": "any_text"}, "end": "e"} for text in texts(900, 4)]}}}


def constraints(scene):
    """One after the other: each is refused or followed, and no worker is held for long."""
    slowest, refused, count = ("", 0.0), 0, 0
    for name, fields in bodies():
        if not scene.left():
            break
        reply = scene.job(name, CHAT, chat("Go on.", max_tokens=16, **fields), 20, statuses=(200, 400, 500))
        if reply is None or not reply.status:
            continue
        count, refused = count + 1, refused + (reply.status == 400)
        if reply.status == 400:
            scene.expect(b'"param":null' not in reply.body, f"{name}: a refusal without its field")
        slowest = max(slowest, (name, reply.seconds), key=lambda one: one[1])
    scene.note(f"{count} constraints, {refused} refused, slowest {slowest[0]} {slowest[1]:.2f} s")


def compiling(scene):
    """Eight clients at a time, each of whose expressions is a new one: what others send does not wait for them."""
    scene.end = min(scene.end, time.monotonic() + scene.count(10, 5))
    done = []

    def work(i):
        while scene.left():
            number = 1000 * i + len(done)
            fields = {"guided_json": {"oneOf": [{"type": "string", "pattern": f"^(a|b)*{c}(a|b){{15}}{number}$"}
                                                for c in "ababab"]}}
            done.append(scene.target.post(CHAT, chat("Go on.", max_tokens=4, **fields), 20).status)
    scene.together(work, 8)
    scene.stand_up()
    scene.expect(done and not done.count(0), f"{done.count(0)} of {len(done)} without an answer")
    scene.note(f"{len(done)} constraints by eight clients")


ATTACKS = [
    Attack("t28", "constraints that cost much", constraints, peak=1024, quick=True),
    Attack("t28b", "eight clients compile", compiling, peak=1024, quick=True),
]
