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
COMMENT = re.compile(r"(?:^[ \t]*//[^\n]*\n)+|(?<=[;{},)])[ \t]+//[^\n]*(?:\n[ \t]+//[^\n]*)*", re.M)
SUFFIXES = {".h", ".cc", ".cu", ".cuh"}


def comments(path):
    """(line, text, first line of the code that follows) of every comment of a file."""
    text = path.read_text()
    for match in COMMENT.finditer(text):
        words = " ".join(line.strip().lstrip("/").strip() for line in match.group(0).splitlines())
        if re.fullmatch(r"namespace.*|NOLINT.*|", words.strip()):
            continue
        line = text[:match.start()].count("\n") + 1
        before = text[text.rfind("\n", 0, match.start()) + 1:match.start()].strip()
        after = text[match.end():].lstrip("\n").split("\n", 1)[0].strip()
        yield line, words.strip(), before or after


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
