#!/usr/bin/env python3
"""Encode, decode and load times of Hugging Face tokenizers on the texts of bench_tokenizer.

    python3 bench/peers/hf_tokenizers.py DATA SOURCES [TOKENIZER...]

One thread, processor time of the process, the best of several, a new tokenizer for every round.
"""
import gzip
import os
import pathlib
import sys
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"

import tokenizers  # noqa: E402  the environment is read at import

REPEATS = 2


def read(path):
    return gzip.open(path).read() if path.suffix == ".gz" else path.read_bytes()


def best(prepare, work):
    seconds = float("inf")
    for _ in range(REPEATS):
        subject = prepare()
        start = time.process_time()
        result = work(subject)
        seconds = min(seconds, time.process_time() - start)
    return seconds, result


def main():
    data, sources = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    names = sys.argv[3:] or ["qwen2.5", "llama3-hf-via-bitnet", "deepseek-r1", "ernie-4.5",
                             "llama-2-7b", "mixtral-8x7b-v0.1"]
    texts = {name.split(".")[0]: read(data / "text" / name).decode()
             for name in ("tinyshakespeare.txt", "botchan.txt", "xiyouji.txt.gz")}
    texts["source code"] = b"".join(p.read_bytes() for p in sorted(sources.rglob("*.cc"))).decode()
    print(f"tokenizers {tokenizers.__version__}")
    for name in names:
        folder = data / "tokenizers" / name
        path = folder / "tokenizer.json"
        file = read(path if path.exists() else path.with_suffix(".json.gz")).decode()
        load = lambda _=None: tokenizers.Tokenizer.from_str(file)  # noqa: E731
        seconds, tokenizer = best(lambda: None, load)
        print(f"{name}: load {1e3 * seconds:.0f} ms")
        size = spent = 0
        ids = []
        for title, text in texts.items():
            seconds, encoded = best(load, lambda t: t.encode(text, add_special_tokens=False))
            count = len(text.encode())
            print(f"  encode {title:<16} {count:>9} bytes {len(encoded.ids):>8} tokens "
                  f"{count / seconds / 1e6:>7.1f} MB/s")
            size, spent = size + count, spent + seconds
            ids += encoded.ids
        print(f"  encode {'all':<16} {size:>9} bytes {len(ids):>8} tokens {size / spent / 1e6:>7.1f} MB/s")
        seconds, _ = best(lambda: None, lambda _: tokenizer.decode(ids))
        print(f"  decode as a whole {1e6 * seconds / len(ids):>24.3f} us/token")


if __name__ == "__main__":
    main()
