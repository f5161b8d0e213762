#!/usr/bin/env python3
"""Masks of xgrammar and llguidance beside ours: are they equal, and how long do they take?

    python3 bench/grammar/make_schemas.py 300 > schemas.jsonl
    PYTHON bench/peers/masks.py TOKENIZER BUILD schemas.jsonl [--turns 3]

PYTHON has the packages xgrammar, llguidance, tokenizers and numpy; BUILD holds bench_masks and
mask_stream. See README.md beside this file.
"""
import argparse
import importlib.metadata
import json
import os
import pathlib
import random
import re
import subprocess
import sys
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"

import llguidance  # noqa: E402  the environment is read at import
import llguidance.numpy  # noqa: E402
import numpy  # noqa: E402
import tokenizers  # noqa: E402
import torch  # noqa: E402
import xgrammar  # noqa: E402

from mask_cases import CASES  # noqa: E402

WIDTH = 151_936  # logits of Qwen2.5 and Qwen3
COMPACT = dict(separators=(",", ":"), ensure_ascii=False)


class XGrammar:
    """One thread, nothing kept from grammar to grammar."""

    name = "xgrammar"

    def __init__(self, folder, tokenizer, end):
        pieces = [""] * WIDTH
        for text, token in tokenizer.get_vocab(with_added_tokens=True).items():
            pieces[token] = text
        self.info = xgrammar.TokenizerInfo(pieces, xgrammar.VocabType.BYTE_LEVEL,
                                           vocab_size=WIDTH, stop_token_ids=[end])
        self.compiler = xgrammar.GrammarCompiler(self.info, max_threads=1, cache_enabled=False)

    def compile(self, kind, text, compact):
        if kind == "regex":
            return self.compiler.compile_regex(text)
        if kind == "grammar":
            return self.compiler.compile_grammar(text)
        options = dict(any_whitespace=False, separators=(",", ":")) if compact else {}
        return self.compiler.compile_json_schema(text, strict_mode=False, **options)

    def start(self, compiled):
        return xgrammar.GrammarMatcher(compiled)

    def mask(self):
        tensor = xgrammar.allocate_token_bitmask(1, WIDTH)
        return tensor, tensor.numpy().view(numpy.uint32)[0]

    def fill(self, matcher, mask):
        matcher.fill_next_token_bitmask(mask[0])

    def accept(self, matcher, token):
        return matcher.accept_token(token)


class LlGuidance:
    """One thread, with the slices that its own servers use by default."""

    name = "llguidance"

    def __init__(self, folder, tokenizer, end):
        self.tokenizer = llguidance.LLTokenizer(str(folder / "tokenizer.json"), n_vocab=WIDTH,
                                                eos_token=end)

    def compile(self, kind, text, compact):
        if kind == "regex":
            grammar = llguidance.LLMatcher.grammar_from_regex(text)
        elif kind == "grammar":
            raise ValueError("another dialect")
        else:
            grammar = llguidance.LLMatcher.grammar_from_json_schema(
                text, overrides={"whitespace_flexible": False} if compact else None)
        matcher = llguidance.LLMatcher(self.tokenizer, grammar)
        if matcher.is_error():
            raise ValueError(matcher.get_error())
        return matcher

    def start(self, compiled):
        return compiled.deep_copy()

    def mask(self):
        array = numpy.zeros((1, WIDTH // 32), dtype=numpy.int32)
        return (array.ctypes.data, array.nbytes), array.view(numpy.uint32)[0]

    def fill(self, matcher, mask):
        matcher.unsafe_compute_mask_ptr(*mask[0])

    def accept(self, matcher, token):
        return matcher.consume_token(token)


def peers(folder, tokenizer, end):
    return [XGrammar(folder, tokenizer, end), LlGuidance(folder, tokenizer, end)]


# ---- Are they equal? ----

def texts_of(case):
    """The texts of a schema are JSON values."""
    schema = case["kind"] == "json_schema"
    return [json.dumps(text, **COMPACT) if schema else text for text in case["texts"]]


class Ours:
    """The masks of mask_stream, case by case."""

    def __init__(self, build, folder, end):
        self.process = subprocess.Popen([build / "mask_stream", folder, str(WIDTH), str(end)],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def masks(self, case, tokens):
        """A list of masks for each list of tokens, or why the constraint is refused."""
        line = json.dumps({"kind": case["kind"], "text": case["text"], "tokens": tokens}) + "\n"
        self.process.stdin.write(line.encode())
        self.process.stdin.flush()
        answer = json.loads(self.process.stdout.readline())
        if "error" in answer:
            return answer["error"]
        words = WIDTH // 32
        return [numpy.frombuffer(self.process.stdout.read(4 * words * count), numpy.uint32)
                .reshape(count, words) for count in answer["masks"]]


def bits(words):
    return numpy.unpackbits(words.view(numpy.uint8), bitorder="little").astype(bool)


# Why a token is in one mask and not in the other, by whose it is: the first test that is true of the token. What no
# test explains is shown.
def has(*texts):
    return lambda token: any(text in token.piece for text in texts)


REASONS = {
    ("xgrammar", "theirs"): [
        ("a special token counts as text", lambda token: token.special),
        ("a control character stands in a string of bounded length", lambda token: any(b < 32 for b in token.data)),
        ("the escape \\/ in a name beside declared ones, or under a pattern", has("\\/")),
        ("a 30th of February", lambda token: token.piece == "3"),
    ],
    ("xgrammar", "ours"): [
        ("strings of bounded length have no escapes there", has("\\")),
        ("-0 is an integer, and at least 0", lambda token: token.piece == "0" or "-" in token.piece),
        ("any JSON has a blank behind each comma there", has(",")),
    ],
    ("llguidance", "ours"): [
        ("an added token that is not special counts as text", lambda token: token.added),
        ("the escape \\/, or \\u", has("\\/", "\\u")),
        ("DEL in a string", lambda token: 127 in token.data),
        ("-0 is an integer, and at least 0", has("-")),
    ],
    ("llguidance", "theirs"): [],
}
FORCED = "the text is forced, and only one way to spell it is allowed there"


class Token:
    def __init__(self, tokenizer, number, letters):
        self.piece = tokenizer.id_to_token(number) or ""
        added = tokenizer.get_added_tokens_decoder().get(number)
        self.added, self.special = added is not None, bool(added and added.special)
        self.data = self.piece.encode() if self.added else bytes(letters[c] for c in self.piece)


def letters_of_bytes():
    """The bytes behind the letters of byte-level tokenizers."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = iter(range(256, 512))
    return {chr(b) if b in shown else chr(next(hidden)): b for b in range(256)}


class Explained:
    """Why masks of a peer are not ours: how many tokens, and in how many masks, by reason."""

    def __init__(self, peer, tokens):
        self.tokens, self.masks, self.equal, self.reasons = tokens, 0, 0, {}
        self.refused, self.cut, self.unexplained = [], [], []
        self.tests = {side: REASONS[peer, side] for side in ("ours", "theirs")}
        self.known = {}

    def reason(self, side, number):
        key = side, number
        if key not in self.known:
            token = self.tokens[number]
            self.known[key] = next((why for why, test in self.tests[side] if test(token)), None)
        return self.known[key]

    def add(self, name, mine, theirs):
        self.masks += 1
        differs = numpy.flatnonzero(bits(mine ^ theirs))
        self.equal += len(differs) == 0
        if not len(differs):
            return
        is_mine, found = bits(mine), {}
        forced = int(bits(theirs).sum()) == 1
        for number in differs:
            side = "ours" if is_mine[number] else "theirs"
            why = FORCED if forced and side == "ours" else self.reason(side, int(number))
            if why is None:
                self.unexplained.append((name, side, self.tokens[number].piece))
            else:
                found[side, why] = found.get((side, why), 0) + 1
        for key, count in found.items():
            masks, tokens = self.reasons.get(key, (0, 0))
            self.reasons[key] = masks + 1, tokens + count

    def show(self, name):
        print(f"{name}: {self.masks} masks, {self.equal} equal; {len(self.refused)} grammars refused, "
              f"{len(self.cut)} texts cut short, {len(self.unexplained)} tokens unexplained")
        for case, why in self.refused:
            print(f"  refuses {case}: {why}")
        for case, piece in self.cut:
            print(f"  does not take {piece!r} in {case}")
        for (side, why), (masks, tokens) in sorted(self.reasons.items(), key=lambda item: -item[1][0]):
            print(f"  {side} alone in {masks} masks ({tokens} tokens): {why}")
        for case, side, piece in self.unexplained[:40]:
            print(f"  unexplained: {side} alone {piece!r} in {case}")


def compare(peer, case, tokens, ours, report):
    try:
        compiled = peer.compile(case["kind"], case["text"], compact=True)
    except Exception as error:  # whatever a peer throws is its refusal
        report.refused.append((case["name"], str(error).strip().splitlines()[0][:100]))
        return
    buffer = peer.mask()
    for ids, masks in zip(tokens, ours):
        matcher = peer.start(compiled)
        for at, mask in enumerate(masks[:len(ids)]):
            peer.fill(matcher, buffer)
            report.add(case["name"], mask, buffer[1])
            if not peer.accept(matcher, ids[at]):
                report.cut.append((case["name"], report.tokens[ids[at]].piece))
                break


def run_comparison(args, tokenizer, end, cases):
    letters = letters_of_bytes()
    pieces = [Token(tokenizer, i, letters) for i in range(WIDTH)]
    ours = Ours(args.build, args.tokenizer, end)
    reports = [(peer, Explained(peer.name, pieces)) for peer in peers(args.tokenizer, tokenizer, end)]
    refused = 0
    for number, case in enumerate(cases):
        print(f"{number} of {len(cases)}: {case['name']}", file=sys.stderr)
        tokens = [tokenizer.encode(text, add_special_tokens=False).ids for text in texts_of(case)]
        masks = ours.masks(case, tokens)
        if isinstance(masks, str):
            refused += 1
            print(f"we refuse {case['name']}: {masks}")
            continue
        for ids, found in zip(tokens, masks):
            if len(found) <= len(ids):
                print(f"we do not take {pieces[ids[len(found) - 1]].piece!r} in {case['name']}")
        for peer, report in reports:
            compare(peer, case, tokens, masks, report)
    print(f"{len(cases)} grammars; we refuse {refused}")
    for peer, report in reports:
        report.show(peer.name)


# ---- How long do they take? ----

def quantiles(values, parts):
    values = sorted(values)
    return [values[min(len(values) - 1, int(part * len(values)))] for part in parts]


PARTS = {"p50": 0.5, "p95": 0.95, "p99": 0.99, "p99.9": 0.999}


def time_peer(peer, cases, tokenizer):
    compile_us, mask_us = [], []
    buffer = peer.mask()
    clock = time.thread_time_ns
    for case in cases:
        schema = json.dumps(case["schema"])
        begin = clock()
        compiled = peer.compile("json_schema", schema, compact=False)
        peer.fill(peer.start(compiled), buffer)
        compile_us.append((clock() - begin) / 1e3)
        for text in case["good"]:
            matcher = peer.start(compiled)
            for token in tokenizer.encode(text, add_special_tokens=False).ids:
                begin = clock()
                peer.fill(matcher, buffer)
                mask_us.append((clock() - begin) / 1e3)
                if not peer.accept(matcher, token):
                    break
    return {what: dict(zip(PARTS, quantiles(values, PARTS.values())))
            for what, values in (("compile", compile_us), ("mask", mask_us))}


def time_ours(args):
    text = subprocess.run([args.build / "bench_masks", args.tokenizer, args.schemas, str(WIDTH)],
                          check=True, capture_output=True, text=True).stdout
    out = {}
    for line in text.splitlines():
        for what in ("compile", "mask"):
            if line.startswith(what):
                out[what] = {part: float(re.search(rf"{re.escape(part)} +([\d.]+)", line)[1])
                             for part in PARTS}
    return out


def run_timing(args, tokenizer, end):
    cases = [json.loads(line) for line in args.schemas.read_text().splitlines()]
    rows = []
    for turn in range(args.turns):
        rows.append(("skiff", time_ours(args)))
        for peer in peers(args.tokenizer, tokenizer, end):
            rows.append((peer.name, time_peer(peer, cases, tokenizer)))
        for name, row in rows[-3:]:
            print(f"turn {turn} {name:<10} "
                  + "  ".join(f"{what} {part} {row[what][part]:.1f}"
                              for what in ("compile", "mask") for part in PARTS), flush=True)
    print("median of the turns, us, and how many times ours:")
    for what in ("compile", "mask"):
        for part in PARTS:
            values = {name: sorted(row[what][part] for n, row in rows if n == name)[args.turns // 2]
                      for name in ("skiff", "xgrammar", "llguidance")}
            print(f"  {what:<8}{part:<6}" + "  ".join(
                f"{name} {value:.1f} ({value / values['skiff']:.2f})"
                for name, value in values.items()))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tokenizer", type=pathlib.Path)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("schemas", type=pathlib.Path)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--compare", type=int, default=20, help="schemas of the file to compare")
    args = parser.parse_args()
    tokenizer = tokenizers.Tokenizer.from_file(str(args.tokenizer / "tokenizer.json"))
    end = tokenizer.token_to_id("<|im_end|>")
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in ("xgrammar", "llguidance"))
    print(f"{versions}; "
          f"{WIDTH} logits, one thread, processor time")
    made = [json.loads(line) for line in args.schemas.read_text().splitlines()]
    cases = CASES + [{"name": f"schema {i}", "kind": "json_schema",
                      "text": json.dumps(one["schema"]),
                      "texts": [json.loads(text) for text in one["good"]]}
                     for i, one in random.Random(0).sample(list(enumerate(made)),
                                                           min(args.compare, len(made)))]
    run_comparison(args, tokenizer, end, cases)
    if args.turns > 0:
        run_timing(args, tokenizer, end)


if __name__ == "__main__":
    torch.set_num_threads(1)
    sys.exit(main())
