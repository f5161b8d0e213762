"""The tokenizers of reference data as the `tokenizers`, `sentencepiece` and `tiktoken` packages run
them, each beside the folder that skiff reads.

A reference has encode(text) -> ids with what the model puts around a text, decode(ids) -> text
without special tokens, and files: the names in its model folder and the data they come from, where
"ranks:PATH" stands for the rank file with the ids of a byte-level tokenizer.json.
"""
import base64
import gzip
import json
import pathlib
import re
import unicodedata

import sentencepiece
import tiktoken
import tokenizers

LLAMA3_WORDS = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|"
                r"\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN_WORDS = LLAMA3_WORDS.replace(r"\p{N}{1,3}", r"\p{N}")


def contents(path):
    packed = pathlib.Path(f"{path}.gz")
    return gzip.decompress(packed.read_bytes()) if packed.exists() else path.read_bytes()


def write_files(reference, folder):
    for name, source in reference.files.items():
        if str(source).startswith("ranks:"):
            ranks = ranks_of_json(pathlib.Path(str(source)[6:]))
            data = b"".join(base64.b64encode(t) + b" %d\n" % i for t, i in ranks.items())
        else:
            data = contents(source)
        (folder / name).write_bytes(data)


class Json:
    """tokenizer.json; `front` is what the configuration puts before a text although the file does not."""

    def __init__(self, folder, front=(), name="tokenizer.json"):
        self.folder, self.front = folder, list(front)
        self.model = tokenizers.Tokenizer.from_str(contents(folder / name).decode())

    def encode(self, text):
        return self.front + self.model.encode(text).ids

    def decode(self, ids):
        return self.model.decode(ids, skip_special_tokens=True)

    def vocab_size(self):
        return self.model.get_vocab_size()

    @property
    def files(self):
        names = sorted(path.name.removesuffix(".gz") for path in self.folder.iterdir())
        return {n: self.folder / n for n in names if n.endswith((".json", ".txt"))}


class Gpt2(Json):
    """vocab.json and merges.txt."""

    def __init__(self, folder):
        self.folder, self.front = folder, []
        model = tokenizers.models.BPE.from_file(str(folder / "vocab.json"), str(folder / "merges.txt"))
        self.model = tokenizers.Tokenizer(model)
        self.model.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
        self.model.decoder = tokenizers.decoders.ByteLevel()
        self.model.add_special_tokens(["<|endoftext|>"])


class SentencePiece:
    """tokenizer.model under a Python class that finds special tokens first. `later`: stretches behind a
    special token get no leading space (legacy: false). `glued` special tokens count only behind others.
    `special` are texts of the model, `append` follow them, `added` have ids of their own."""

    def __init__(self, path, config=(), special=(), append=(), glued=(), front=(), later=False, added=None):
        self.path, self.config = path, config
        data = path.read_bytes()
        self.model = sentencepiece.SentencePieceProcessor(model_proto=data)
        self.later = self.model
        if later:
            self.later = sentencepiece.SentencePieceProcessor(model_proto=data + b"\x1a\x02\x18\x00")
        size = self.model.vocab_size()
        self.ids = {t: self.model.piece_to_id(t) for t in special}
        self.ids |= {self.model.id_to_piece(i): i for i in range(size) if self.model.is_control(i) or self.model.is_unknown(i)}
        self.ids |= {t: size + i for i, t in enumerate(append)} | (added or {})
        self.glued, self.size = set(glued), max(size, *(i + 1 for i in self.ids.values()))
        self.front = [self.ids[t] for t in front]
        texts = sorted(self.ids, key=len, reverse=True)
        self.pattern = re.compile("|".join(map(re.escape, texts)))

    def segments(self, text):
        done = 0
        behind = False
        for match in self.pattern.finditer(text):
            if match[0] in self.glued and not (behind and match.start() == done):
                continue
            if match.start() > done:
                yield text[done:match.start()], None
            yield match[0], self.ids[match[0]]
            done, behind = match.end(), True
        if done < len(text):
            yield text[done:], None

    def encode(self, text):
        ids = list(self.front)
        for i, (part, token) in enumerate(self.segments(text)):
            ids += [token] if token is not None else (self.later if i else self.model).encode(part)
        return ids

    def decode(self, ids):
        special = set(self.ids.values())
        return self.model.decode([i for i in ids if i not in special and i < self.model.vocab_size()])

    def vocab_size(self):
        return self.size

    @property
    def files(self):
        return {"tokenizer.model": self.path} | {n: self.path.parent / n for n in self.config}


class Ranks:
    """A tiktoken rank file: `ranks` maps bytes to ids, `special` texts to ids."""

    def __init__(self, files, ranks, words, special, front=(), normalize=None):
        self.files, self.ranks, self.special = files, ranks, special
        self.model = tiktoken.Encoding("x", pat_str=words, mergeable_ranks=ranks, special_tokens=special)
        self.front, self.normalize = list(front), normalize or (lambda text: text)

    def encode(self, text):
        return self.front + self.model.encode(self.normalize(text), allowed_special="all")

    def decode(self, ids):
        return self.model.decode_bytes([i for i in ids if i < len(self.ranks)]).decode("utf-8", "replace")

    def vocab_size(self):
        return len(self.ranks) + len(self.special)


def ranks_of_file(path):
    pairs = (line.split() for line in path.read_bytes().splitlines())
    return {base64.b64decode(token): int(rank) for token, rank in pairs}


def ranks_of_json(path):
    """Qwen 1's ranks are the ids of Qwen 2's vocabulary."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [b for b in range(256) if b not in printable]
    byte = {chr(b): b for b in printable} | {chr(0x100 + i): b for i, b in enumerate(others)}
    vocab = json.loads(contents(path))["model"]["vocab"]
    return {bytes(byte[c] for c in token): i for token, i in sorted(vocab.items(), key=lambda kv: kv[1])}


def llama3(data):
    path = data / "tokenizers/llama3-tiktoken/tokenizer.model"
    ranks = ranks_of_file(path)
    reserved = [f"<|reserved_special_token_{i}|>" for i in range(251)]
    special = ["<|begin_of_text|>", "<|end_of_text|>", *reserved[:4], "<|start_header_id|>", "<|end_header_id|>",
               reserved[4], "<|eot_id|>", *reserved[5:]]
    ids = {t: len(ranks) + i for i, t in enumerate(special)}
    return Ranks({"tokenizer.model": path}, ranks, LLAMA3_WORDS, ids, [128000])


def qwen(data):
    path = data / "tokenizers/qwen2.5/tokenizer.json"
    ranks = ranks_of_json(path)
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", *(f"<|extra_{i}|>" for i in range(205))]
    ids = {t: len(ranks) + i for i, t in enumerate(special)}
    return Ranks({"qwen.tiktoken": f"ranks:{path}"}, ranks, QWEN_WORDS, ids, normalize=lambda text: unicodedata.normalize("NFC", text))


def chatglm3(data):
    append = ["[MASK]", "[gMASK]", "[sMASK]", "sop", "eop", "<|system|>", "<|user|>", "<|assistant|>", "<|observation|>"]
    return SentencePiece(data / "tokenizers/chatglm3-6b/tokenizer.model", ["tokenizer_config.json"], append=append,
                         glued=["sop", "eop"], front=["[gMASK]", "sop"])


def ernie_model(data):
    folder = data / "tokenizers/ernie-4.5"
    roles = json.loads((folder / "special_tokens_map.json").read_text())
    added = json.loads((folder / "added_tokens.json").read_text())
    special = [t for key, value in roles.items() for t in ([value] if isinstance(value, str) else value)
               if not key.startswith(("sys_", "header_")) for t in [t] if t not in added]
    return SentencePiece(folder / "tokenizer.model.reconstructed",
                         ["tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"],
                         special=special, added=added)


CONFIG = ["tokenizer_config.json", "special_tokens_map.json"]

# name: what makes the reference from the data folder.
REFERENCES = {
    "qwen2.5": lambda d: Json(d / "tokenizers/qwen2.5"),
    "qwen3": lambda d: Json(d / "tokenizers/qwen3"),
    "llama-3": lambda d: Json(d / "tokenizers/llama3-hf-via-bitnet"),
    "llama-2": lambda d: Json(d / "tokenizers/llama-2-7b"),
    "mixtral": lambda d: Json(d / "tokenizers/mixtral-8x7b-v0.1"),
    "ernie-4.5": lambda d: Json(d / "tokenizers/ernie-4.5"),
    "ernie-4.5-thinking": lambda d: Json(d / "tokenizers/ernie-4.5-thinking"),
    "deepseek-r1": lambda d: Json(d / "tokenizers/deepseek-r1", [0]),
    "gpt2": lambda d: Gpt2(d / "tokenizers/gpt2"),
    "stories260K": lambda d: Json(d / "models/stories260K-hf"),
    "llama-3.tiktoken": llama3,
    "qwen.tiktoken": qwen,
    "chatglm3.model": chatglm3,
    "baichuan2.model": lambda d: SentencePiece(d / "tokenizers/baichuan2-7b/tokenizer.model", CONFIG),
    "llama-2.model": lambda d: SentencePiece(d / "tokenizers/llama-2-7b/tokenizer.model", CONFIG, front=["<s>"], later=True),
    "llama-2-legacy.model": lambda d: SentencePiece(d / "tokenizers/llama-2-7b/tokenizer.model", front=["<s>"]),
    "ernie-4.5.model": ernie_model,
    "stories260K.model": lambda d: SentencePiece(d / "models/stories260K-hf/tokenizer.model", front=["<s>"]),
}
