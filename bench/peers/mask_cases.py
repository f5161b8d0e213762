"""Grammars with texts that fit them, for masks.py: a feature each."""
import json


def schema(name, schema, *texts):
    """The texts are JSON values."""
    return {"name": name, "kind": "json_schema", "text": json.dumps(schema), "texts": list(texts)}


def closed(**properties):
    return {"type": "object", "properties": properties, "required": list(properties),
            "additionalProperties": False}


def regex(name, pattern, *texts):
    return {"name": name, "kind": "regex", "text": pattern, "texts": list(texts)}


def gbnf(name, text, *texts):
    return {"name": name, "kind": "grammar", "text": text, "texts": list(texts)}


TREE = {"$ref": "#/$defs/node",
        "$defs": {"node": closed(v={"type": "integer"},
                                 next={"type": "array", "items": {"$ref": "#/$defs/node"}})}}
ARITHMETIC = '''root ::= term (("+" | "-") term)*
term ::= factor (("*" | "/") factor)*
factor ::= [0-9]+ | "(" root ")"
'''

CASES = [
    schema("string", {"type": "string"}, "plain", "a\"b\\c\n", "Zoë 北京 🚢"),
    schema("integer", {"type": "integer"}, 0, -17, 123456),
    schema("number", {"type": "number"}, 3.25, -1e-7),
    schema("boolean", {"type": "boolean"}, True, False),
    schema("null", {"type": "null"}, None),
    schema("enum", {"enum": ["red", "green", 3, None, True]}, "red", 3, None),
    schema("const", {"const": {"a": [1, 2]}}, {"a": [1, 2]}),
    schema("anyOf", {"anyOf": [{"type": "integer"}, {"type": "string"}]}, 5, "x"),
    schema("type list", {"type": ["integer", "null"]}, 5, None),
    schema("closed object", closed(a={"type": "integer"}, b={"type": "string"}), {"a": 1, "b": "x"}),
    schema("optional members", {"type": "object", "properties": {"a": {"type": "integer"},
                                                                 "b": {"type": "integer"},
                                                                 "c": {"type": "integer"}},
                                "additionalProperties": False, "required": ["b"]},
           {"b": 1}, {"a": 1, "b": 2, "c": 3}),
    schema("open object", {"type": "object", "properties": {"a": {"type": "integer"}},
                           "required": ["a"]}, {"a": 1, "more": [1]}),
    schema("array", {"type": "array", "items": {"type": "boolean"}}, [], [True, False]),
    schema("array of 2 to 4", {"type": "array", "items": {"type": "boolean"}, "minItems": 2,
                               "maxItems": 4}, [True, True], [True] * 4),
    schema("tuple", {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "boolean"}],
                     "items": False, "minItems": 2}, [1, True]),
    schema("string of 2 to 5", {"type": "string", "minLength": 2, "maxLength": 5}, "abc", "Zoë北"),
    schema("pattern", {"type": "string", "pattern": "^[A-Z]{2}-[0-9]{3,6}$"}, "AB-12345"),
    schema("minimum", {"type": "integer", "minimum": 0, "maximum": 250}, 0, 7, 250),
    schema("date", {"type": "string", "format": "date"}, "2024-02-29"),
    schema("uuid", {"type": "string", "format": "uuid"}, "123e4567-e89b-12d3-a456-426614174000"),
    schema("tree", TREE, {"v": 1, "next": [{"v": 2, "next": []}]}),
    schema("any JSON", {}, {"a": [1, None, "x"]}, 5),
    regex("digits", "[0-9]+(\\.[0-9]{1,2})?", "12.50", "7"),
    regex("words", "(yes|no|maybe)( please)?", "yes please", "no"),
    regex("identifier", "[a-zA-Z_][a-zA-Z0-9_]*", "some_name42"),
    regex("unicode class", "[äöüß]+", "äöß"),
    gbnf("arithmetic", ARITHMETIC, "(1+2)*34/5"),
    gbnf("lines", 'root ::= ("- " [^\\n]+ "\\n")+\n', "- one\n- two\n"),
]
