"""Strings that tokenizers get wrong, from a seed: the same ones on every machine.

    hard_strings.py [COUNT] > strings.jsonl
"""
import json
import random
import sys
import unicodedata

SPECIAL = [
    "<s>", "</s>", "<unk>", "<pad>", "<0x41>", "<0xE4>", "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|begin_of_text|>",
    "<|end_of_text|>", "<|eot_id|>", "<|start_header_id|>", "<|end_header_id|>", "<|reserved_special_token_0|>", "<|extra_0|>",
    "<|fim_prefix|>", "<think>", "</think>", "<tool_call>", "</tool_call>", "<|object_ref_start|>", "<|begin_of_sentence|>",
    "<|end_of_sentence|>", "<mask:1>", "<mask:4>", "<|LOC_12|>", "<\uff5cbegin\u2581of\u2581sentence\uff5c>", "<\uff5cUser\uff5c>",
    "<\uff5cAssistant\uff5c>", "[MASK]", "[gMASK]", "[sMASK]", "sop", "eop", "<|system|>", "<|user|>", "<|assistant|>", "<|observation|>",
    "<reserved_106>", "[INST]", "[/INST]", "<<SYS>>", "\u2581", "\u0120", "\u010a",
]
WORDS = """the of and to in that it was for on are with as his they at be this have from or had by word but what some we can out
other were all there when up use your how said an each she which do their time if will way about many then them write would like so
these her long make thing see him two has look more day could go come did number sound no most people my over know water than call first
who may down side been now find Once upon little girl named Lily don't can't I'll we're it's O'Neill Tokenization internationalization
antidisestablishmentarianism Hello World HELLO camelCaseWord snake_case_word __dunder__ naive na\u00efve r\u00e9sum\u00e9 \u00fcber Stra\u00dfe
\u0130stanbul \ufb01sh""".split()
CODE = [
    "def f(x):\n    return x**2\n", "for (int i = 0; i < n; ++i) {\n\ta[i] += b[i];\n}", "std::vector<std::pair<int, float>> v;", "x = {'a': [1, 2, {}]}",
    "#include <stdio.h>\n", "SELECT * FROM t WHERE a <> 'b''c';", "if (a && !b || ~c ^ d) {}", "fn main() -> Result<(), Box<dyn Error>> {", "\\frac{a}{b}",
    "<div class=\"x\">&nbsp;</div>", "https://example.com/a?b=c&d=%20#e", "user.name+tag@example.co.uk", "C:\\dir\\file.txt", "$(ls -la | grep '^d')",
    "```python\nprint('hi')\n```", "0x1F_FFu64", "/* comment */", "// TODO(x): y", "\"\\u00e9\\n\"", "lambda: (yield)", "{{ x|e }}", "a<-b", "=>", "===", "!==", "...", ":=",
]
EMOJI = [
    "\U0001f600", "\U0001f44d\U0001f3fd", "\U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466", "\U0001f3f3\ufe0f\u200d\U0001f308", "\U0001f1e9\U0001f1ea",
    "\U0001f1eb\U0001f1f7", "1\ufe0f\u20e3", "\u2764\ufe0f", "\u2764\ufe0f\u200d\U0001f525", "\U0001f9d1\u200d\U0001f4bb", "\U0001f3f4\U000e0067\U000e0062\U000e007f", "\u200d", "\ufe0f",
    "\U0001f3fb", "\u2603", "\u26a7", "\U0001f469\U0001f3ff\u200d\U0001f680",
]
SPACES = [" ", "  ", "   ", "\n", "\n\n", "\t", "\r\n", "\r", "\u00a0", "\u3000", "\u2003", "\u2009", "\u200b", "\u2028", "\u0085", "\u180e", "\v", "\f", "\u1680", "\ufeff", "\u2060"]
# Ranges of scripts: (first, last) code points, assigned for the most part.
SCRIPTS = {
    "latin": [(0x61, 0x7A), (0x41, 0x5A), (0xC0, 0x17F)], "latin extended": [(0x180, 0x24F), (0x1E00, 0x1EFF)], "greek": [(0x391, 0x3A1), (0x3B1, 0x3C9)],
    "cyrillic": [(0x410, 0x44F), (0x450, 0x45F)], "armenian": [(0x561, 0x586)], "hebrew": [(0x5D0, 0x5EA), (0x5B0, 0x5BC)],
    "arabic": [(0x627, 0x64A), (0x64B, 0x652), (0x660, 0x669)], "devanagari": [(0x904, 0x939), (0x93C, 0x94D), (0x966, 0x96F)], "bengali": [(0x985, 0x98C), (0x9BE, 0x9C4)],
    "tamil": [(0xB85, 0xB8A), (0xBBE, 0xBC2), (0xBCD, 0xBCD)], "thai": [(0xE01, 0xE30), (0xE31, 0xE3A), (0xE40, 0xE4E), (0xE50, 0xE59)], "georgian": [(0x10D0, 0x10F0)],
    "hangul": [(0xAC00, 0xD7A3)], "jamo": [(0x1100, 0x1112), (0x1161, 0x1175), (0x11A8, 0x11C2)], "kana": [(0x3041, 0x3096), (0x30A1, 0x30FA), (0x3099, 0x309A), (0x30FC, 0x30FC)],
    "han": [(0x4E00, 0x9FA5)], "rare han": [(0x3400, 0x4DB5), (0x20000, 0x2A6D6), (0xF900, 0xFA2D)], "half width": [(0xFF01, 0xFFEE)], "marks": [(0x300, 0x36F)], "ethiopic": [(0x1200, 0x1248)],
    "symbols": [(0x2190, 0x22FF), (0x2460, 0x24FF), (0x2600, 0x26FF)], "punctuation": [(0x21, 0x2F), (0x3A, 0x40), (0x5B, 0x60), (0x7B, 0x7E), (0x2010, 0x2027), (0x3001, 0x3011)],
    "letterlike": [(0x2100, 0x214F), (0x2150, 0x2188)], "control": [(0x0, 0x1F), (0x7F, 0x9F)], "format": [(0x200B, 0x200F), (0x202A, 0x202E), (0x2066, 0x2069)],
    "private": [(0xE000, 0xE0FF), (0xFFFC, 0xFFFF)], "plane 1": [(0x10330, 0x1034A), (0x1D400, 0x1D454), (0x12000, 0x12050)], "old italic": [(0x10300, 0x10320)],
}


def of_script(rng, ranges, length):
    return "".join(chr(rng.randint(*rng.choice(ranges))) for _ in range(length))


def number(rng):
    digits = "".join(rng.choices("0123456789", k=rng.choice([1, 2, 3, 4, 5, 7, 12, 30])))
    return rng.choice(["{}", "-{}", "{}.5", "1,{}", "{}%", "${}", "{}e10", "0x{}", "{}th", "v{}.0", "{}:{}", "\u0661\u0662{}", "\u00bd{}", "\uff11{}"]).replace("{}", digits)


def near_special(rng):
    text = rng.choice(SPECIAL)
    at = rng.randrange(len(text))
    kind = rng.randrange(6)
    if kind == 0:
        return text[:at] + text[at + 1:]
    if kind == 1:
        return text[:at] + " " + text[at:]
    if kind == 2:
        return text[:at + 1]
    if kind == 3:
        return text.upper() if text != text.upper() else text.lower()
    if kind == 4:
        return text + rng.choice(SPECIAL)
    return text + "\u0301" if at % 2 else text + text[at:]


def mixed(rng):
    makers = (words, spaced, code, emoji, script, special, lambda r: number(r), long_run)
    return rng.choice(["", " ", ", "]).join(rng.choice(makers)(rng) for _ in range(rng.randint(2, 5)))


def words(rng):
    return rng.choice(["", " "]) + " ".join(rng.choices(WORDS, k=rng.randint(1, 8))) + rng.choice(["", ".", "!", "?", "\n", " "])


def spaced(rng):
    return "".join(rng.choice([rng.choice(SPACES) * rng.choice([1, 1, 2, 3, 9]), rng.choice(WORDS)]) for _ in range(rng.randint(1, 6)))


def code(rng):
    return rng.choice(["", " ", "\n", "    "]).join(rng.choices(CODE, k=rng.randint(1, 3)))


def emoji(rng):
    return "".join(rng.choice(EMOJI + ["", " ", "x"]) for _ in range(rng.randint(1, 6)))


def script(rng):
    return "".join(of_script(rng, SCRIPTS[rng.choice(sorted(SCRIPTS))], rng.randint(1, 7)) + rng.choice(["", "", " "]) for _ in range(rng.randint(1, 4)))


def combined(rng):
    base = rng.choice(["a", "e", "o", "\u1100\u1161", "\uac00", "\u0915", "\u05e9", "\u0627", "<s>", "<|im_end|>", "\n", " ", "1"])
    return "".join(base + of_script(rng, SCRIPTS["marks"], rng.randint(1, 4)) for _ in range(rng.randint(1, 3)))


def special(rng):
    parts = [rng.choice(SPECIAL) if rng.random() < 0.6 else rng.choice(WORDS + SPACES) for _ in range(rng.randint(1, 5))]
    return rng.choice(["", " "]).join(parts)


def misses(rng):
    return rng.choice(["", " ", "x"]).join(near_special(rng) for _ in range(rng.randint(1, 3)))


def long_run(rng):
    unit = rng.choice(["a", "ab", "=", "-", " ", "\n", " \n", "\t", "0", "ha", "\u4f60", "\U0001f600", "!", ". ", "_", "\u0301", "\u2581", "A", "\u0e01", "~"])
    return unit * rng.choice([3, 7, 8, 15, 16, 17, 31, 33, 64, 100])


def random_points(rng):
    def point():
        while True:
            c = rng.choice([rng.randrange(0x80), rng.randrange(0x3000), rng.randrange(0x10000), rng.randrange(0x110000)])
            if not 0xD800 <= c <= 0xDFFF:
                return chr(c)
    return "".join(point() for _ in range(rng.randint(1, 12)))


def very_long(rng):
    return "".join(of_script(rng, SCRIPTS[rng.choice(["latin", "han", "thai", "cyrillic"])], 40) for _ in range(rng.randint(2, 12)))


KINDS = [(words, 12), (spaced, 10), (code, 8), (emoji, 8), (script, 16), (combined, 6), (special, 8), (misses, 8), (long_run, 6), (random_points, 6), (mixed, 10),
         (very_long, 1), (lambda r: " ".join(number(r) for _ in range(r.randint(1, 5))), 6)]


def hard_strings(count=10000, seed=20250607):
    rng = random.Random(seed)
    makers, weights = zip(*KINDS)
    return [rng.choices(makers, weights)[0](rng) for _ in range(count)]


def lone_bytes(count=200, seed=3):
    """Bytes that are not UTF-8: damaged strings and noise."""
    rng = random.Random(seed)
    out = []
    while len(out) < count:
        text = bytearray(mixed(rng).encode()[:40]) if rng.random() < 0.7 else bytearray(rng.randbytes(rng.randint(1, 9)))
        for _ in range(rng.randint(0, 3)):
            at = rng.randrange(len(text) + 1)
            text[at:at + rng.randint(0, 1)] = bytes([rng.choice([0x80, 0xBF, 0xC0, 0xC3, 0xE4, 0xED, 0xF0, 0xF4, 0xFF])])
        try:
            text.decode()
        except UnicodeDecodeError:
            out.append(bytes(text))
    return out


def is_young(text):
    """Whether it holds letters, marks or punctuation that Unicode 3.2 did not know, or characters that are
    not assigned: the tables of the reference packages are of various ages."""
    old = unicodedata.ucd_3_2_0.category
    return any(old(c) == "Cn" and unicodedata.category(c) not in ("So", "Sk", "Cf") for c in text)


if __name__ == "__main__":
    for text in hard_strings(int(sys.argv[1]) if len(sys.argv) > 1 else 10000):
        print(json.dumps(text))
