"""The tokenizer: byte-level BPE, trained on the project's own corpus.

    python3 tokenizer.py              trains and writes models/demo/tokenizer.json and its configs

Chinese characters are trained one by one (no merge crosses a character), digits stand alone, and
any UTF-8 text round-trips because the alphabet is the 256 bytes.
"""
import json
import os
from functools import lru_cache
from pathlib import Path

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

import chat

MODEL_DIR = Path(__file__).resolve().parents[2] / "models" / "demo"
VOCAB = 4096


@lru_cache(maxsize=1)
def load():
    return Tokenizer.from_file(str(MODEL_DIR / "tokenizer.json"))


def train(texts):
    tok = Tokenizer(models.BPE())
    digits, byte_level = pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    han = pre_tokenizers.Split(Regex(r"\p{Han}"), "isolated")
    tok.pre_tokenizer = pre_tokenizers.Sequence([digits, han, byte_level])
    tok.decoder = decoders.ByteLevel()
    special = [AddedToken(t, special=True, normalized=False) for t in chat.SPECIAL]
    special += [AddedToken(t, special=False, normalized=False) for t in chat.MARKERS]
    tok.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=VOCAB, min_frequency=2, show_progress=False, special_tokens=special, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    # the merges never cross Chinese characters, so inference needs no rule for them
    tok.pre_tokenizer = pre_tokenizers.Sequence([digits, byte_level])
    return tok


def reset_flags(path):
    """The trainer makes every token it is given special; the markers shall stay visible in decoded text."""
    data = json.loads(path.read_text(encoding="utf-8"))
    for t in data["added_tokens"]:
        t["special"] = t["content"] in chat.SPECIAL
    path.write_text(json.dumps(data, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


def write_configs():
    flags = {"lstrip": False, "rstrip": False, "normalized": False, "single_word": False}
    tokens = chat.SPECIAL + chat.MARKERS
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "added_tokens_decoder": {str(i): {"content": t, "special": t in chat.SPECIAL, **flags} for i, t in enumerate(tokens)},
        "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<unk>",
        "cls_token": chat.BEGIN, "sep_token": chat.END,
        "model_max_length": 2048, "clean_up_tokenization_spaces": False, "add_bos_token": False, "add_eos_token": False,
        "chat_template": chat.TEMPLATE,
    }
    write_json(MODEL_DIR / "tokenizer_config.json", config)
    write_json(MODEL_DIR / "special_tokens_map.json", {k: config[k] for k in ("bos_token", "eos_token", "unk_token", "pad_token", "cls_token", "sep_token")})
    write_json(MODEL_DIR / "generation_config.json", {
        "bos_token_id": 1, "eos_token_id": [tokens.index(chat.END), 2], "pad_token_id": 0,
        "do_sample": True, "temperature": 0.1, "top_p": 0.8})


def write_json(path, data):
    path.write_text(json.dumps(data, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")


def main():
    import corpus
    MODEL_DIR.mkdir(parents=True, exist_ok=True)

    def texts():
        import skills as s
        import world as w
        for table in (w.COUNTRIES, w.WORDS, w.SENTENCES, w.CITIES, w.TOPICS):  # every fact of the world is seen
            for row in table:
                yield from [" ".join(row)] * 10
        yield from w.ZH_SURNAMES * 10 + w.ZH_GIVEN * 10
        for i in range(12000):
            c = corpus.training_chat(f"tokenizer {i}")
            yield "".join(t for t, _ in corpus.segments(c, c.rng))

    path = MODEL_DIR / "tokenizer.json"
    train(texts()).save(str(path))
    reset_flags(path)
    write_configs()
    load.cache_clear()
    tok = load()
    for t in ("<|begin_of_sentence|>User: What is 12 + 34?\nAssistant: <think>\nhm\n</think>", "法国的首都是哪里？ 🙂 naïve\t\x00 x", " a  b\r\n\n  c "):
        assert tok.decode(tok.encode(t, add_special_tokens=False).ids, skip_special_tokens=False) == t
    print("vocabulary", tok.get_vocab_size())


if __name__ == "__main__":
    main()
