#!/usr/bin/env python3
"""Fails if a file includes from a room that its own room may not see, or if one that is no test
includes what only tests use.

The rooms and what they may see are the skiff_room(...) lines of src/CMakeLists.txt: the build and
this check read the same text. A room may include from its DEPS, its tests from its TEST_DEPS too;
what a dependency sees in its turn does not count, so each line names all that its room uses. The table
of rooms in ARCHITECTURE.md must say the same.
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
SRC = ROOT / "src"
KEYWORDS = {"DEPS", "LIBS", "SUBDIRS", "TEST_DEPS", "TEST_LIBS", "PRIVATE_LIBS", "WITHOUT_CUDA",
            "WITHOUT_GRPC", "WITHOUT_REDIS"}


def read_rooms():
    """Room -> {"deps": set, "test": set, "subdirs": set}."""
    rooms = {}
    text = (SRC / "CMakeLists.txt").read_text()
    for body in re.findall(r"^ *skiff_room\(([^)]*)\)", text, re.M):
        name, *words = body.split()
        room = {key: set() for key in KEYWORDS}
        key = None
        for word in words:
            if word in KEYWORDS:
                key = word
            else:
                room[key].add(word)
        rooms[name] = room
    return rooms


def room_of(path, rooms):
    """The longest room name that is a prefix of a file's folder."""
    folder = path.relative_to(SRC).parent.as_posix()
    fits = [r for r in rooms if folder == r or folder.startswith(r + "/")]
    return max(fits, key=len) if fits else None


def is_for_tests(path):
    """Tests, fuzz targets, and headers that only those include: x_testing.h, or a folder `suite`."""
    return path.stem.endswith(("_test", "_fuzz", "_testing")) or path.parent.name == "suite"


def table_problems(rooms):
    """Where the table of rooms in ARCHITECTURE.md differs from the skiff_room lines, but for `base`."""
    rows = re.findall(r"^\| `([\w/]+)/` \| .* \| ([^|]*) \|$", (ROOT / "ARCHITECTURE.md").read_text(), re.M)
    above, problems = [], [f"ARCHITECTURE.md: no row for room {room}" for room in sorted(set(rooms) - {r for r, _ in rows})]
    for room, sees in rows:
        every = re.fullmatch(r"all of the above(?: but (.*))?", sees)
        named = set(above) - set((every[1] or "").split()) if every else set(sees.replace("–", "").split())
        has = rooms[room]["DEPS"] if room in rooms else set()
        if named - {"base"} != has - {"base"}:
            problems.append(f"ARCHITECTURE.md: room {room} sees {' '.join(sorted(has - {'base'}))}")
        above.append(room)
    return problems


def main():
    rooms = read_rooms()
    problems = table_problems(rooms)
    for path in sorted(p for p in SRC.rglob("*") if p.suffix in {".h", ".cc", ".cu", ".cuh"}):
        room = room_of(path, rooms)
        where = path.relative_to(ROOT)
        if room is None:
            problems.append(f"{where}: lies in no room of src/CMakeLists.txt")
            continue
        below = path.parent.relative_to(SRC / room).as_posix()
        if below != "." and below not in rooms[room]["SUBDIRS"]:
            problems.append(f"{where}: folder {below} is not in SUBDIRS of room {room}")
        allowed = rooms[room]["DEPS"] | {room}
        tests = is_for_tests(path)
        if tests:
            allowed |= rooms[room]["TEST_DEPS"]
        for included in re.findall(r'^#include "([^"]+)"', path.read_text(), re.M):
            target = SRC / included
            seen = room_of(target, rooms) if target.exists() else None
            if seen is None:
                problems.append(f"{where}: includes {included}, which is in no room")
            elif seen not in allowed:
                problems.append(f"{where}: room {room} may not see {seen} ({included})")
            elif is_for_tests(target) and not tests:
                problems.append(f"{where}: includes {included}, which is for tests only")
    for problem in problems:
        print(problem)
    print(f"rooms: {len(rooms)} checked, {len(problems)} problem(s)")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
