#!/usr/bin/env python3
"""Prints comments of src/ drawn at random by a fixed seed, for a reader to judge: each should be a full
sentence that an engineer of the field understands alone.

  tools/draw_comments.py [--seed 1] [--count 60] [FOLDER...]      default: src, without tests
"""
import argparse
import pathlib
import random
import re

ROOT = pathlib.Path(__file__).resolve().parent.parent
LINE = re.compile(r"^(?P<code>.*?[;{},)>\]:]|)[ \t]*//(?P<words>.*)$|^[ \t]*//(?P<whole>.*)$")
SUFFIXES = {".h", ".cc", ".cu", ".cuh"}


def comments(path):
    """(line, text, the code that it is about) of every comment of a file. Lines belong together where their
    comments begin in the same column."""
    found, open_column = [], None
    lines = path.read_text().splitlines()
    for number, line in enumerate(lines, 1):
        match = LINE.match(line)
        if not match or (match["code"] or "").replace('\\"', "").count('"') % 2:  # "//" within a string
            open_column = None
            continue
        column, code = line.index("//"), (match["code"] or "").strip()
        words = (match["whole"] if match["whole"] is not None else match["words"]).strip()
        if column == open_column and not code:
            found[-1][1].append(words)
        else:
            found.append((number, [words], code))
        open_column = column
    for number, words, code in found:
        text = " ".join(words).strip()
        if not re.fullmatch(r"namespace.*|NOLINT.*|", text):
            below = number - 1 + len(words)
            yield number, text, code or (lines[below].strip() if below < len(lines) else "")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("folders", nargs="*", default=["src"])
    args = parser.parse_args()
    files = sorted(p for folder in args.folders for p in (ROOT / folder).rglob("*")
                   if p.suffix in SUFFIXES and not re.search(r"(_test|_testing|_fuzz)$", p.stem)
                   and "/suite/" not in p.as_posix())
    found = [(p.relative_to(ROOT), *c) for p in files for c in comments(p)]
    drawn = random.Random(args.seed).sample(found, min(args.count, len(found)))
    for path, line, words, code in sorted(drawn, key=lambda c: (str(c[0]), c[1])):
        print(f"{path}:{line}: {words}\n    {code[:100]}")
    print(f"{len(drawn)} of {len(found)} comments of {len(files)} files, seed {args.seed}")


if __name__ == "__main__":
    main()
