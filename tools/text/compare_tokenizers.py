#!/usr/bin/env python3
"""`skiff tokenize` against the reference packages: every id of every text and of ten thousand hard
strings, and every decoded text.

    compare_tokenizers.py SKIFF SHARED_DIR [NAME...]

Prints one line per tokenizer and the first mismatches; the exit code is 1 if there are any.
"""
import json
import pathlib
import random
import subprocess
import sys
import tempfile
import time

from hard_strings import hard_strings, is_young
from make_tokenizers import make
from references import REFERENCES, Json, contents, write_files


def texts_of(shared):
    """Each text whole and by lines, as they are and with their line ends."""
    out = []
    for path in sorted((shared / "data/text").glob("*.txt*")):
        whole = contents(path.with_name(path.name.removesuffix(".gz"))).decode()
        lines = whole.splitlines(keepends=True)
        out += [whole, *lines[::7], *(line.rstrip() for line in lines[3::11])]
    return out


def run(skiff, folder, lines, *flags):
    """The answers of skiff, and how long it took."""
    start = time.time()
    done = subprocess.run([skiff, "tokenize", folder, *flags], input="\n".join(map(json.dumps, lines)) + "\n",
                          text=True, capture_output=True)
    if done.returncode:
        raise SystemExit(done.stderr)
    return [json.loads(line) for line in done.stdout.split("\n")[:-1]], time.time() - start


def random_ids(size):
    rng = random.Random(size)
    return [[rng.randrange(size) for _ in range(rng.randint(1, 25))] for _ in range(500)]


# Those whose steps ask for word characters or punctuation.
YOUNG = {f"made/{n}" for n in ("bert", "bert-cased", "accents", "places", "split-removed", "split-isolated", "split-merged_with_previous",
                               "split-merged_with_next", "split-contiguous")}


class Comparison:
    def __init__(self, name):
        self.name, self.checked, self.wrong = name, 0, 0

    def expect(self, what, given, got, expected):
        self.checked += 1
        if got == expected:
            return
        self.wrong += 1
        if self.wrong <= 5:
            at = next((i for i, (a, b) in enumerate(zip(got, expected)) if a != b), min(len(got), len(expected)))
            part = slice(max(0, at - 4), at + 8)
            print(f"  {self.name} {what} {json.dumps(given)[:200]} at {at}:\n    got      {got[part]!r}\n    expected {expected[part]!r}")


def compare(skiff, name, reference, texts):
    result = Comparison(name)
    with tempfile.TemporaryDirectory() as folder:
        write_files(reference, pathlib.Path(folder))
        ids, seconds = run(skiff, folder, texts)
        for text, got in zip(texts, ids, strict=True):
            result.expect("encode", text, got, reference.encode(text))
        sequences = ids + random_ids(reference.vocab_size())
        decoded, _ = run(skiff, folder, sequences, "--decode", "--no-special")
        for sequence, got in zip(sequences, decoded, strict=True):
            result.expect("decode", sequence, got, reference.decode(sequence))
    size = sum(len(t.encode()) for t in texts)
    print(f"{name:28} {result.checked:7} checks, {result.wrong} wrong; {sum(map(len, ids))} tokens, {size / seconds / 1e6:.1f} MB/s with start", flush=True)
    return result.wrong


def main():
    skiff, shared, names = sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3:]
    texts = hard_strings() + texts_of(shared)
    makers = {n: lambda m=m: m(shared / "data") for n, m in REFERENCES.items()}
    made = tempfile.TemporaryDirectory()
    for name, file in make():
        folder = pathlib.Path(made.name) / name
        folder.mkdir()
        (folder / "tokenizer.json").write_text(json.dumps(file))
        makers[f"made/{name}"] = lambda f=folder: Json(f)
    old = [text for text in texts if not is_young(text)]
    wrong = sum(compare(skiff, name, makers[name](), old if name in YOUNG else texts) for name in names or makers)
    print(f"{len(names or makers)} tokenizers, {len(texts)} texts, {wrong} wrong")
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
