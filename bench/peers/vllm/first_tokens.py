#!/usr/bin/env python3
"""Asks a server for the greedy tokens after some prompts and writes them to a file, for table.py to compare.

    first_tokens.py URL FILE VOCAB
"""
import json
import random
import sys
import urllib.request

PROMPTS, LENGTH, TOKENS = 16, 64, 8


def main():
    url, path, vocab = sys.argv[1], sys.argv[2], int(sys.argv[3])
    rng, replies = random.Random(5), []
    for _ in range(PROMPTS):
        body = {"model": "default", "prompt": [rng.randrange(vocab) for _ in range(LENGTH)], "max_tokens": TOKENS,
                "temperature": 0, "ignore_eos": True, "return_token_ids": True}
        request = urllib.request.Request(url + "/v1/completions", json.dumps(body).encode(),
                                         {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=120) as answer:
            replies.append(json.load(answer)["choices"][0]["token_ids"])
    with open(path, "w") as file:
        json.dump(replies, file)


if __name__ == "__main__":
    main()
