#!/usr/bin/env python3
"""Writes tests/text/made/*.json: tokenizer.json files so small that they can be kept here, which
together use every step that skiff reads, trained with the `tokenizers` package on hard strings.
Same input, same output.
"""
import collections
import io
import json
import pathlib

import sentencepiece
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from hard_strings import hard_strings

OUT = pathlib.Path(__file__).resolve().parents[2] / "tests/text/made"


def training_strings():
    """Hard strings in the 110 characters that are the most frequent."""
    texts = [t for t in hard_strings(3000, seed=11) if "s>" not in t and "<unk>" not in t]
    kept = {c for c, _ in collections.Counter("".join(texts)).most_common(110)}
    return ["".join(c for c in text if c in kept) for text in texts]


TRAINING = training_strings()
PLACES = [
    AddedToken("<left>", lstrip=True, normalized=False, special=True), AddedToken("<right>", rstrip=True, normalized=False, special=True),
    AddedToken("<both>", lstrip=True, rstrip=True, normalized=False), AddedToken("the", single_word=True, normalized=True),
    AddedToken("<0x41>", normalized=True), AddedToken("Hello World", normalized=True), AddedToken("</s>", lstrip=True, single_word=True, normalized=False, special=True),
    AddedToken("na\u00efve", normalized=True), AddedToken("\U0001f44d", rstrip=True, normalized=True), AddedToken("<|im_end|>", normalized=False, special=True),
    AddedToken("<|im_start|>", normalized=True, special=True), AddedToken("caf\u00e9", lstrip=True, rstrip=True, single_word=True, normalized=False),
]
# The package decodes normalized tokens as they are after normalization: these stay as they are.
LOWER = [t for t in PLACES if t.content not in ("Hello World", "na\u00efve")] + [AddedToken("hello world", normalized=True)]


def bpe(size=420, byte_level=False, alphabet=120, **model):
    special = ["<unk>", "<cls>", "<sep>"]
    made = Tokenizer(models.BPE(unk_token="<unk>", **model))
    start = pre_tokenizers.ByteLevel.alphabet() if byte_level else []
    return made, trainers.BpeTrainer(vocab_size=size, special_tokens=special, initial_alphabet=start, limit_alphabet=max(alphabet, len(start)), show_progress=False)


def unigram(size=400):
    return Tokenizer(models.Unigram()), trainers.UnigramTrainer(vocab_size=size, special_tokens=["<unk>", "<s>", "</s>"], unk_token="<unk>", show_progress=False)


def finish(made, trainer, added=(), **parts):
    for name, part in parts.items():
        setattr(made, name, part)
    made.train_from_iterator(TRAINING, trainer)
    made.add_tokens([t for t in added if not t.special])
    made.add_special_tokens([t for t in added if t.special])
    return json.loads(made.to_str())


def with_bytes(file):
    """Byte tokens for a Unigram model, less likely than any piece."""
    file["model"]["vocab"] += [[f"<0x{b:02X}>", -50.0] for b in range(256)]
    file["model"]["byte_fallback"] = True
    return file


def charsmap(rules):
    """A map of SentencePiece's: NFKC and more if `rules` is a name, else the pairs of strings."""
    options = {"normalization_rule_name": rules}
    if not isinstance(rules, str):
        path = pathlib.Path("/tmp/skiff-rules.tsv")
        path.write_text("".join("{}\t{}\n".format(*(" ".join(f"{ord(c):X}" for c in s) for s in rule)) for rule in rules))
        options = {"normalization_rule_tsv": str(path)}
    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(["a b c d e f g"] * 50), model_writer=out, vocab_size=12, model_type="char",
                                             minloglevel=2, **options)
    return charsmap_of(out.getvalue())


def fields(data):
    """The length-delimited fields of a protocol buffer message."""
    at = 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(data):
        tag = varint()
        if tag & 7 == 2:
            size = varint()
            yield tag >> 3, data[at:at + size]
            at += size
        elif tag & 7 == 0:
            varint()
        else:
            at += 4 if tag & 7 == 5 else 8


def charsmap_of(model):
    return dict(fields(dict(fields(model))[3]))[2]


def precompiled(rules):
    return normalizers.Precompiled(charsmap(rules))


RULES = [("\u00e9", "e"), ("e\u0301", "e"), ("\ufb01", "fi"), ("\u3000", " "), ("\u00bd", "1/2"), ("\uac00", "\u1100\u1161"), ("a\u0300\u0301", "A"), ("\u200d", ""),
         ("\u0935", "v"), ("\u0915\u094d", "k"), ("\U0001f600", ":)"), ("\t", " "), ("\n", " "), ("\u2581", "_"), ("\u2460", "(1)")]


def template(before, after):
    return processors.TemplateProcessing(single=f"{before} $A {after}".strip(), pair="$A $B", special_tokens=[(t, i) for i, t in enumerate(("<unk>", "<s>", "</s>")) if t in (before, after)])


def make():
    N, P, D = normalizers, pre_tokenizers, decoders
    yield "unigram-bytes", with_bytes(finish(*unigram(), normalizer=N.Sequence([N.Nmt(), N.NFKC(), N.Replace(Regex(" {2,}"), " ")]), pre_tokenizer=P.Metaspace(),
                                             decoder=D.Sequence([D.ByteFallback(), D.Metaspace()]), post_processor=template("<s>", "")))
    yield "unigram-charsmap", finish(*unigram(), normalizer=precompiled(RULES), pre_tokenizer=P.Sequence([P.WhitespaceSplit(), P.Metaspace(prepend_scheme="first")]),
                                     decoder=D.Metaspace(prepend_scheme="first"), post_processor=template("", "</s>"))
    yield "unigram-nfkc", finish(*unigram(), normalizer=precompiled("nmt_nfkc"), pre_tokenizer=P.Metaspace(prepend_scheme="never", split=False), decoder=D.Metaspace(prepend_scheme="never"))
    yield "bert", finish(*bpe(fuse_unk=True), normalizer=N.BertNormalizer(), pre_tokenizer=P.BertPreTokenizer(), post_processor=processors.BertProcessing(("<sep>", 2), ("<cls>", 1)))
    yield "bert-cased", finish(*bpe(), normalizer=N.BertNormalizer(clean_text=True, handle_chinese_chars=False, strip_accents=True, lowercase=False), pre_tokenizer=P.Whitespace(),
                               decoder=D.Fuse())
    yield "accents", finish(*bpe(fuse_unk=True), normalizer=N.Sequence([N.NFD(), N.StripAccents(), N.Lowercase(), N.Strip(left=True, right=True)]),
                            pre_tokenizer=P.Sequence([P.CharDelimiterSplit("e"), P.Digits(individual_digits=False)]), decoder=D.Sequence([D.Replace("a", "aa"), D.Fuse(), D.Strip("x", 1, 0)]))
    yield "compatible", finish(*bpe(), normalizer=N.Sequence([N.NFKD(), N.Strip(left=False, right=True), N.Prepend("x")]), pre_tokenizer=P.Split(Regex(r"\w+"), "contiguous", invert=True))
    yield "places", finish(*bpe(byte_level=True), PLACES, normalizer=N.NFC(), decoder=D.ByteLevel(), post_processor=processors.RobertaProcessing(("<sep>", 2), ("<cls>", 1)),
                           pre_tokenizer=P.Sequence([P.Split(Regex(r"[^\s]+"), "merged_with_previous"), P.Punctuation("contiguous"), P.ByteLevel(add_prefix_space=True, use_regex=True)]))
    yield "places-lower", finish(*bpe(), LOWER, normalizer=N.Sequence([N.Lowercase(), N.NFKC(), N.Replace("\u00ef", "i")]), pre_tokenizer=P.Metaspace(prepend_scheme="first"), decoder=D.Metaspace())
    behaviors = ("removed", "isolated", "merged_with_previous", "merged_with_next", "contiguous")
    for i, behavior in enumerate(behaviors):
        yield f"split-{behavior}", finish(*bpe(size=380, byte_level=True, ignore_merges=bool(i % 2)), decoder=D.ByteLevel(),
                                          pre_tokenizer=P.Sequence([P.Split(" ", behavior), P.Split(Regex(r"[aeiou\d]"), behavior, invert=bool(i % 2)), P.Punctuation(behavior), P.Digits(individual_digits=True),
                                                                    P.ByteLevel(add_prefix_space=False, use_regex=bool(i % 2))]))
    yield "bytes-first", finish(*bpe(byte_level=True), normalizer=N.ByteLevel(), decoder=D.ByteLevel())


def main():
    OUT.mkdir(exist_ok=True)
    for name, file in make():
        text = json.dumps(file, ensure_ascii=False, separators=(",", ":"))
        kept = len(text) < 40000
        print(f"{name}: {len(text)} characters" + ("" if kept else ", too large to keep"))
        if kept:
            (OUT / f"{name}.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
