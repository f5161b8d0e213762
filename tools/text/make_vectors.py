#!/usr/bin/env python3
"""Writes the reference vectors of tests/text with the `tokenizers`, `sentencepiece` and `tiktoken`
packages.

    make_vectors.py SHARED_DIR        # needs data/tokenizers, data/models and data/text of that folder

tests/text/strings.json holds strings, tests/text/vectors/NAME.json, per tokenizer, their token ids
(what the model's configuration adds included) and the texts that decoding gives where they differ
from the strings. tests/text/hard_strings.json holds many more, digests.json the CRC-32 of what each
tokenizer makes of every hundred of them and of real texts; see Digest. Same input, same output.
"""
import json
import pathlib
import random
import struct
import sys
import zlib

from hard_strings import hard_strings, is_young, lone_bytes
from references import REFERENCES, Json, SentencePiece, contents

OUT = pathlib.Path(__file__).resolve().parents[2] / "tests/text"

HAND = [
    "", " ", "  ", "   ", "\n", "\n\n", "\n\n\n", "\r\n", "\r\n\r\n", "\t", "\t\t", " \n", "\n ", " \n ",
    "  \n  \n", "\t\n\t", "\u00a0", "\u00a0 \u00a0", "\u2003em", "\u3000", "a\u3000b", "\u200b", "a\u200bb", "\ufeffBOM",
    "\u0085next", "a\u0085b", "\u180e", "a \u180eb", "\u2028\u2029", "\v\f", "\x00", "a\x00b", "\x01\x02\x1f\x7f", "\x1b[0m",
    "Hello", "Hello world", " Hello world", "Hello  world", "Hello   world ", "hello world!", "HELLO WORLD",
    "Hello, world! How are you?", "The quick brown fox jumps over the lazy dog.",
    "I'm you're he's she'll we'd they've can't", "I'M YOU'RE HE'S SHE'LL WE'D THEY'VE CAN'T",
    "'s't'm'd'll've're", "it\u2019s", "'\u017f", "don'\u017f", "'S 's ' s", "rock'n'roll 'tis o'clock",
    "0", "1", "12", "123", "1234", "12345", "1234567890", "3.14159", "1,000,000.00", "-42", "+1-2*3/4=5", "1e10", "0x1F",
    "2024-01-31T23:59:59Z", "a1b2c3", "1a 2b 3c", "\u0661\u0662\u0663", "\u0967\u0968\u0969", "\u00bd \u00bc \u00b2 \u2167 \u2460",
    "\uff11\uff12\uff13", "IPv4 192.168.0.1:8080", "x^2 + y_1 = z", "50%", "$9.99", "\u20ac100", "#1", "@user", "C++", "C#", "F#",
    "caf\u00e9", "cafe\u0301", "\u00c5ngstr\u00f6m A\u030angstro\u0308m", "\u1e9b\u0323", "q\u0307\u0323", "\u1100\u1161\u11a8", "\uac01",
    "na\u00efve r\u00e9sum\u00e9", "\u00df \u1e9e \u00c6 \u0153", "\ufb01 \ufb02", "\u212b \u2126 \u212a", "a\u0300\u0301\u0302\u0303b", "\u0301lone",
    "Z\u0351\u036b\u0343a\u0321l\u0322g\u0323o", "\u0130stanbul \u0131", "\u0391\u03b8\u03ae\u03bd\u03b1 \u03c2\u03c3\u03a3",
    "\u041f\u0440\u0438\u0432\u0435\u0442, \u043c\u0438\u0440!", "\u0421\u044a\u0435\u0448\u044c \u0435\u0449\u0451", "\u05e9\u05dc\u05d5\u05dd \u05e2\u05d5\u05dc\u05dd", "\u0645\u0631\u062d\u0628\u0627 \u0628\u0627\u0644\u0639\u0627\u0644\u0645",
    "\u0627\u0644\u0633\u0651\u064e\u0644\u0627\u0645\u064f \u0639\u064e\u0644\u064e\u064a\u0652\u0643\u064f\u0645", "\u0928\u092e\u0938\u094d\u0924\u0947 \u0926\u0941\u0928\u093f\u092f\u093e", "\u0bb5\u0ba3\u0b95\u0bcd\u0b95\u0bae\u0bcd",
    "\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35\u0e0a\u0e32\u0e27\u0e42\u0e25\u0e01", "\u1019\u103c\u1014\u103a\u1019\u102c", "\u10d2\u10d0\u10db\u10d0\u10e0\u10ef\u10dd\u10d1\u10d0", "\u0540\u0561\u0575\u0565\u0580\u0565\u0576", "\u12a0\u121b\u122d\u129b",
    "\u4f60\u597d", "\u4f60\u597d\uff0c\u4e16\u754c\uff01", "\u4f60\u597d world \u4e16\u754c", "\u4e2d\u6587123\u4e2d\u6587abc", "\u3053\u3093\u306b\u3061\u306f\u4e16\u754c", "\u30ab\u30bf\u30ab\u30ca\u3068\u3072\u3089\u304c\u306a",
    "\uff8a\uff9d\uff76\uff78", "\u30ac\u30ab\u3099", "\uc548\ub155\ud558\uc138\uc694 \uc138\uacc4", "\ud55c\uad6d\uc5b4 123", "\u7e41\u9ad4\u4e2d\u6587\u8207\u7b80\u4f53", "\U00020000\U0002a6d6", "\ufa0e\uf900", "\u9fa5\u9fa6\u4e00",
    "\u300c\u5f15\u7528\u300d\u3002\u3001", "1\u6708" "2\u65e5", "\u7b2c10\u7ae0",
    "\U0001f600", "\U0001f600\U0001f600\U0001f600", "\U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466", "\U0001f3f3\ufe0f\u200d\U0001f308", "\U0001f44d\U0001f3fd", "\U0001f1e9\U0001f1ea\U0001f1eb\U0001f1f7",
    "1\ufe0f\u20e3", "\u2764\ufe0f", "text\U0001f680text", " \U0001f680 ", "\U0001f9d1\u200d\U0001f4bb codes", "\u2603\u2744\u2605\u2713", "\u2190\u2192\u21d2\u2200x\u2203y", "\u222b\u2211\u221a\u221e\u2260",
    "\U0001d54f\U0001d7d8\U0001d4b3", "\U00010348\U00012000", "\ue000\uf8ff", "\ufffd", "\ufffd\ufffd", "\uffff", "\U0010ffff", "\u00ad soft", "\u202eRTL\u202c", "a\u0308\u200d\u0627",
    "def f(x):\n    return x + 1\n", "def f(x):\n\treturn x\n\n\nclass A:\n    pass\n", "for (int i = 0; i < n; ++i) {\n  a[i] += b[i];\n}",
    "if(a&&b||!c){x=y?z:w;}", "std::vector<std::pair<int, float>> v;", "#include <stdio.h>\n\nint main(void) { return 0; }",
    "SELECT * FROM t WHERE a = 'b''c' -- d", "{\"key\": [1, 2.5, null, true], \"s\": \"\\u00e9\\n\"}", "<div class=\"a\">&amp;</div>", "<!-- x -->",
    "https://example.com/a/b?c=d&e=%20#f", "user.name+tag@example.co.uk", "C:\\Users\\me\\file.txt", "/usr/local/bin:$PATH", "$ ls -la | grep '^d' > /dev/null 2>&1",
    "```python\nprint('hi')\n```", "# Title\n\n* item\n* item 2\n\n> quote\n", "| a | b |\n|---|---|\n| 1 | 2 |", "\\frac{a}{b} \\alpha_{i}^{2}", "a->b; c=>d; e<-f; g:=h", "...", "\u2026", "!!!???", "----------", "==========", "__init__", "snake_case_name camelCaseName PascalCase SCREAMING_CASE",
    "a.b.c", "a,b,c", "(a)[b]{c}<d>", "\"quoted\" 'single' `tick` \u00abguillemets\u00bb \u201ccurly\u201d", "~!@#$%^&*()_+`-={}|[]\\:\";'<>?,./",
    "!hello", "#tag", "(word", "\"word", "_word", " _word", "-word", "*bold*", "[link](url)", "&nbsp;", "\\n", "\\\\", "\n!", "x\n\ny", "x \n y", "x\n  y\n    z", "    indented", "        eight", "trailing   ", "\ttab\tsep\t",
    "a" * 50, "ab" * 40, "aaaaaaaab", "=" * 33, " " * 17, " " * 40 + "x", "\n" * 9, " \n" * 6, "\r" * 3, "x\ry", "ha" * 30, "0" * 31, "\u4f60" * 15, "\U0001f600" * 7, "!" * 21, ". " * 11, "_" * 25,
    "antidisestablishmentarianism", "Donaudampfschifffahrtsgesellschaftskapit\u00e4n", "pneumonoultramicroscopicsilicovolcanoconiosis", "supercalifragilisticexpialidocious", "qwertyuiopasdfghjkl", "xzqjkvbw", "AbCdEfGhIjKl", "ThE qUiCk",
    "Once upon a time, there was a little girl named Lily.", "She saw a big, red ball.\nIt was fun!", "\"Mom, can I play?\" asked Tim.",
    "<s>", "</s>", "<unk>", "<s>Hello</s>", " <s> Hello </s> ", "a<s>b", "<s><s>", "<S>", "< s>", "<s", "s>", "<0x41>", "<0xE4><0xBD><0xA0>", "\u2581", "\u2581\u2581Hello\u2581world", "a\u2581b", "\u0120Hello", "\u010a",
    "<|endoftext|>", "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n", "<|im_start|>", "<|im_start|", "|im_start|>", "<|im_start|><|im_end|>", "a<|im_end|>b", " <|im_end|> ", "<think>\nhm\n</think>\n\nyes", "<tool_call>{}</tool_call>",
    "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>", "<|end_of_text|>", "<|reserved_special_token_0|>", "<\uff5cbegin\u2581of\u2581sentence\uff5c>Hi<\uff5cUser\uff5c>a<\uff5cAssistant\uff5c>b<\uff5cend\u2581of\u2581sentence\uff5c>", "<\uff5cUser\uff5c>", "<|begin_of_sentence|>User: hi\nAssistant: ", "<mask:1><mask:4>", "<|LOC_12|> 12", "[INST] hi [/INST]", "<<SYS>>\nx\n<</SYS>>", "<|fim_prefix|>a<|fim_suffix|>b<|fim_middle|>",
]

FRAGMENTS = [
    " ", "  ", "\n", "\t", "\r\n", "a", "the", " of", "ing", "Tokens", "42", "7", ".", ",", "'s", "'LL", "!", "(", "{", "}", ";", "->", "_", "-", "\"", "<", ">", "|", "<s>", "<|im_end|>", "</s>",
    "\u4f60", "\u597d", "\u306e", "\u30fc", "\uac00", "\u0639", "\u0301", "\u0308", "\u00e9", "\u00df", "\u0416", "\u03c9", "\u0e33", "\u0915\u094d", "\U0001f600", "\u200d", "\ufe0f", "\U0001f3fd", "\u2581", "\u00a0", "\u3000", "\u2009", "\u00bd", "\u0663", "\x00", "\x7f", "\ufffd",
]

TEXT_BYTES = 200_000  # the size taken from each real text, in whole lines


def strings():
    rng = random.Random(20240607)
    mixed = ["".join(rng.choices(FRAGMENTS, k=rng.randint(2, 12))) for _ in range(60)]
    return HAND + mixed


def json_lines(values):
    return "[\n" + ",\n".join(json.dumps(v, separators=(",", ":")) for v in values) + "\n]"


class Digest:
    """The CRC-32 of values one after the other, each with an end that no value holds: ids are little-endian
    int32 and end with -1, texts are UTF-8 and end with 0xFF."""

    def __init__(self):
        self.crc = 0

    def ids(self, ids):
        self.crc = zlib.crc32(struct.pack(f"<{len(ids) + 1}i", *ids, -1), self.crc)

    def text(self, text):
        self.crc = zlib.crc32(text.encode() + b"\xff", self.crc)


def digests_of(reference, hard, texts):
    out = {"ids": [], "decoded": [], "texts": {}}
    for begin in range(0, len(hard), 100):
        ids, decoded = Digest(), Digest()
        for text in hard[begin:begin + 100]:
            made = reference.encode(text)
            ids.ids(made)
            decoded.text(reference.decode(made))
        out["ids"].append(ids.crc)
        out["decoded"].append(decoded.crc)
    for name, text in texts.items():
        digest, made = Digest(), reference.encode(text)
        digest.ids(made)
        digest.text(reference.decode(made))
        out["texts"][name] = [len(made), digest.crc]
    if isinstance(reference, SentencePiece):  # the only one that takes bytes
        digest = Digest()
        for data in lone_bytes():
            digest.ids(reference.model.encode(data))
        out["bytes"] = digest.crc
    return out


def real_texts(data):
    """What fits of each into TEXT_BYTES, up to the last line that ends there."""
    out = {}
    for path in sorted((data / "text").glob("*.txt*")):
        name = path.name.removesuffix(".gz")
        out[name] = contents(path.with_name(name))[:TEXT_BYTES].rpartition(b"\n")[0].decode()
    return out


def write_vectors(name, reference, data, texts):
    ids = [reference.encode(s) for s in texts]
    decoded = {str(i): d for i, (s, d) in enumerate(zip(texts, map(reference.decode, ids))) if s != d}
    files = {n: str(p).replace(f"{data}/", "") for n, p in reference.files.items()}
    (OUT / "vectors" / f"{name}.json").write_text(
        f'{{"files": {json.dumps(files)},\n"ids": {json_lines(ids)},\n"decoded": {json.dumps(decoded)}}}\n')
    print(f"{name}: {len(ids)} strings, {len(decoded)} decode differently")


def main():
    data = pathlib.Path(sys.argv[1]) / "data"
    texts, hard = strings(), [t for t in hard_strings(1500) if not is_young(t)]
    (OUT / "strings.json").write_text(json_lines(texts) + "\n")
    (OUT / "hard_strings.json").write_text(json_lines(hard) + "\n")
    digests, real = {"lone bytes": [b.hex() for b in lone_bytes()]}, real_texts(data)
    for name, make in REFERENCES.items():
        reference = make(data)
        write_vectors(name, reference, data, texts)
        digests[name] = digests_of(reference, hard, real)
    for path in sorted((OUT / "made").glob("*.json")):
        digests[f"made/{path.stem}"] = digests_of(Json(path.parent, name=path.name), hard, {})
    lines = (f"{json.dumps(n)}: {json.dumps(d, separators=(',', ':'))}" for n, d in digests.items())
    (OUT / "digests.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
