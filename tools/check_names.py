#!/usr/bin/env python3
"""Fails if a type, alias or concept is defined twice in one namespace, or if a file of a room does
not put its names into that room's namespace.

Two definitions of one name in one namespace break the one-definition rule, and no compiler sees it
where no translation unit includes both. The rooms are those of src/CMakeLists.txt; the rooms whose
names everybody speaks live in skiff itself, any other in skiff::<last part of its name>.
"""
import collections
import pathlib
import re
import sys

from check_rooms import ROOT, SRC, read_rooms, room_of

VOCABULARY = {"base", "message", "tensor", "arch", "weights", "ops", "gguf"}
# One of each pair is compiled, never both (cmake/rooms.cmake).
STAND_INS = re.compile(r"(_cuda|/absent)\.cc$")
TOKEN = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"([^(\s]*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\''
    r"|^[ \t]*#(?:\\\n|[^\n])*|[A-Za-z_]\w*|::|\[\[|\S", re.S | re.M)


def tokens(text):
    """The words and signs of C++ source, without comments, literals and directives."""
    for match in TOKEN.finditer(text):
        token = match.group(0)
        if not token.startswith(("//", "/*", '"', "'", 'R"')) and not token.lstrip().startswith("#"):
            yield token


def opened_by(head):
    """What a `{` opens after the tokens of its declaration: ("namespace", name) or ("", "")."""
    if "namespace" in head:
        at = len(head) - 1 - head[::-1].index("namespace")
        return "namespace", "".join(head[at + 1:])
    return "", ""


def without_template(head):
    """A declaration without `template <...>` and `requires` in front of it."""
    while head[:1] == ["template"]:
        depth = 0
        for at, token in enumerate(head[1:], 1):
            depth += (token == "<") - (token == ">")
            if depth == 0:
                break
        head = head[at + 1:]
    return head


def defined_type(head):
    """The name that `head {` or `using head;` defines, or None."""
    head = without_template(head)
    words = [w for w in head if re.match(r"[A-Za-z_]", w)]
    if "using" in words and "=" in head and head.index("using") < head.index("="):
        return head[head.index("using") + 1]
    if "concept" in words:
        return head[head.index("concept") + 1]
    for key in ("class", "struct", "union", "enum"):
        if key in head and "(" not in head[:head.index(key)] and "=" not in head:
            rest = head[head.index(key) + 1:]
            rest = rest[1:] if rest[:1] == ["class"] else rest
            if "<" in rest and (":" not in rest or rest.index("<") < rest.index(":")):
                return None  # a specialization
            if "(" in rest and "alignas" not in rest:
                return None  # a function that returns one
            names = [w for w in rest if re.match(r"[A-Za-z_]", w) and w not in ("alignas", "final")]
            return names[0] if names and "::" not in rest[:2] else None
    return None


def definitions(text):
    """(namespace, name) of every type, alias and concept at the scope of a named namespace, and the
    set of namespaces that the text opens."""
    found, spaces, scopes, head, parens = [], set(), [], [], 0
    for token in tokens(text):
        in_namespace = all(kind == "namespace" for kind, _ in scopes)
        if token == "{" and parens == 0:
            kind, name = opened_by(head) if in_namespace else ("", "")
            if in_namespace and kind == "" and (defined := defined_type(head)):
                found.append(("::".join(n for _, n in scopes), defined))
            scopes.append((kind, name or "(anonymous)"))
            if kind == "namespace" and name:
                spaces.add("::".join(n for _, n in scopes))
            head = []
        elif token == "}" and parens == 0:
            if scopes:
                scopes.pop()
            head = []
        elif token == ";" and parens == 0:
            alias = without_template(head)[:1] in (["using"], ["concept"])
            if in_namespace and alias and (defined := defined_type(head)):
                found.append(("::".join(n for _, n in scopes), defined))
            head = []
        else:
            parens += (token == "(") - (token == ")")
            head.append(token)
    return found, spaces


def home_of(room):
    return "skiff" if room in VOCABULARY else "skiff::" + room.split("/")[-1]


def main():
    rooms = read_rooms()
    problems, where = [], collections.defaultdict(list)
    for path in sorted(p for p in SRC.rglob("*") if p.suffix in {".h", ".cc", ".cu", ".cuh"}):
        found, spaces = definitions(path.read_text())
        name = path.relative_to(ROOT).as_posix()
        room = room_of(path, rooms)
        home = home_of(room)
        # A backend also defines what the vocabulary declares, as make_cpu_ops().
        shared = {"skiff"} if room.split("/")[0] in VOCABULARY else set()
        strangers = {s for s in spaces - shared if s.startswith("skiff") and s != home
                     and not s.startswith((home + "::", "skiff::testing", "skiff::suite"))
                     and not s.endswith("(anonymous)")}
        for space in sorted(strangers):
            problems.append(f"{name}: opens {space}; its room's namespace is {home}")
        if STAND_INS.search(name):
            continue
        for space, defined in found:
            if "(anonymous)" not in space and space.startswith("skiff"):
                where[space, defined].append(name)
    for (space, defined), files in sorted(where.items()):
        if len(files) > 1:
            problems.append(f"{space}::{defined} is defined in {', '.join(files)}")
    for problem in problems:
        print(problem)
    print(f"names: {len(where)} types checked, {len(problems)} problem(s)")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
