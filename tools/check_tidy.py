#!/usr/bin/env python3
"""clang-tidy over the sources of a build, by .clang-tidy, remembering what it found clean.

  tools/check_tidy.py [--build build/cpu] [--all | --seconds N] [FILE...]

A file is clean until it, a header of this project that it includes (directly or not), or .clang-tidy
changes: BUILD/tidy keeps a mark for each, so a second run repeats no work. Without files: every source
of src/ that the build compiles. --seconds N stops starting new files after N seconds, those of the last
commit and of the working tree first, and says how many wait; --all has no such limit. Where there is no
clang-tidy or no build, it says so and passes.
"""
import argparse
import concurrent.futures
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
# tests/requirements.txt has the version that .clang-tidy is written for. clang-tidy 14 cannot parse std::ranges of GCC 12.
TIDY = ROOT / ".venv/bin/clang-tidy"
INCLUDE = re.compile(r'^#include "([^"]+)"', re.M)


class Digests:
    """A digest of a file and of all project headers that it reaches."""

    def __init__(self):
        self.texts = {}

    def text(self, path):
        if path not in self.texts:
            self.texts[path] = path.read_bytes() if path.is_file() else b""
        return self.texts[path]

    def reach(self, path):
        seen, todo = set(), [path]
        while todo:
            here = todo.pop()
            if here in seen:
                continue
            seen.add(here)
            for name in INCLUDE.findall(self.text(here).decode(errors="replace")):
                todo.append(ROOT / "src" / name)
        return seen

    def of(self, path):
        digest = hashlib.sha256(self.text(ROOT / ".clang-tidy"))
        for each in sorted(self.reach(path)):
            digest.update(f"{each}\n".encode() + self.text(each))
        return digest.hexdigest()


def compiled(build):
    """The C++ sources of src/ that the build compiles."""
    entries = json.loads((build / "compile_commands.json").read_text())
    files = {pathlib.Path(e["file"]).resolve() for e in entries}
    return sorted(f for f in files if f.suffix == ".cc" and f.is_relative_to(ROOT / "src"))


def changed():
    """Files that the last commit or the working tree changed."""
    names = set()
    for command in (["git", "diff", "--name-only", "HEAD~1"], ["git", "diff", "--name-only"]):
        out = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        names |= set(out.stdout.split())
    return {ROOT / name for name in names}


def tidy(build, path):
    """What clang-tidy says of a file; empty: it is clean."""
    # clang-tidy does not silence the compiler inside system headers, where GCC 12's std::stable_sort uses what the
    # standard deprecates; of our own uses the build warns.
    quiet = ["--extra-arg=-Wno-unknown-warning-option", "--extra-arg=-Wno-deprecated-declarations"]
    command = [TIDY, "-p", build, "--quiet", *quiet, path]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    return "" if done.returncode == 0 else done.stdout + done.stderr


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/cpu")
    parser.add_argument("--all", action="store_true", help="no limit of time")
    parser.add_argument("--seconds", type=float, default=60, help="start no file after this time (60)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("files", nargs="*", type=pathlib.Path)
    args = parser.parse_args()
    build = args.build.resolve()
    if not TIDY.exists() or not (build / "compile_commands.json").exists():
        print(f"tidy: skipped, there is no {TIDY.relative_to(ROOT)} or no build in {args.build}")
        return 0
    marks = build / "tidy"
    marks.mkdir(exist_ok=True)
    digests = Digests()
    files = [f.resolve() for f in args.files] or compiled(build)
    wanted = {f: marks / digests.of(f) for f in files}
    first = changed()
    todo = sorted((f for f, mark in wanted.items() if not mark.exists()), key=lambda f: f not in first)
    begin, dirty, checked = time.monotonic(), 0, 0

    def check(path):
        late = not args.all and not args.files and time.monotonic() - begin > args.seconds
        return path, None if late else tidy(build, path)

    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        for path, found in pool.map(check, todo):
            if found is None:
                continue
            checked += 1
            if found:
                dirty += 1
                print(found)
            else:
                wanted[path].touch()
    left = len(todo) - checked
    rest = f", {left} left for another run (--all)" if left else ""
    print(f"tidy: {checked} of {len(files)} files checked now{rest}, {dirty} not clean")
    return 1 if dirty else 0


if __name__ == "__main__":
    sys.exit(main())
