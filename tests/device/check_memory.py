#!/usr/bin/env python3
"""Device memory that is not there becomes a refusal with numbers, never a crash.

usage: check_memory.py SKIFF MODEL [MORE FLAGS]

MODEL is a folder with a tokenizer; "--load-format dummy" may follow. Takes all memory of CUDA device 0: nobody else
should need it. Says so and ends well where there is no device.
"""
import concurrent.futures
import json
import subprocess
import sys
import threading
import time

from device import GIB, Hog, Serve, cuda, expect, finish


def refused(text, code, what, *words):
    """One error, exit code 1, these words; no abort, no half a start."""
    line = text[text.find("skiff: error:"):] if "skiff: error:" in text else ""
    expect(code == 1, f"{what}: exit code {code}, to be 1", text[-2000:])
    missing = [word for word in words if word not in line]
    expect(line and not missing, f"{what}: the refusal names {', '.join(words)}", f"missing {missing} in: {text[-2000:]}")
    print("          " + line.strip().split("\n")[0])


def start(binary, flags, hog=None):
    """What it says until it ends, and its exit code; a hog takes all memory once the plan is printed."""
    run = subprocess.Popen([binary, "serve", *flags, "--host", "127.0.0.1", "--port", "8170"],
                           stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    guard = threading.Timer(60, run.kill)
    guard.start()
    text = ""
    for line in run.stdout:
        text += line
        if "memory plan" in line and hog:
            hog.take(0)
    code = run.wait()
    guard.cancel()
    return text, code


def twice(binary, flags):
    """A second server finds what the first has left: nothing. The first does not notice."""
    most = flags + ["--gpu-memory-utilization", "0.99", "--max-num-seqs", "128"]
    body = json.dumps({"prompt": "once upon a time", "max_tokens": 16}).encode()
    with Serve(binary, most[0], 8172, *most[1:]) as server:
        expect(server.wait_for("/health", 200), "a server takes 0.99 of the device", server.text()[-2000:])
        text, code = start(binary, most)
        refused(text, code, "a second one", "GiB", "--gpu-memory-utilization", "nvidia-smi")
        expect(server.ask("/v1/completions", body) == 200, "the first one answers", server.text()[-2000:])


def in_service(binary, flags, hog):
    """With no byte left, every kind of request is still answered: nothing is allocated any more."""
    with Serve(binary, flags[0], 8171, *flags[1:]) as server:
        expect(server.wait_for("/health", 200), "a server starts", server.text()[-2000:])
        hog.take(0)
        expect(hog.free() < 16 << 20, f"{hog.free() >> 20} MiB of the device are left")
        bodies = []
        for i, words in enumerate([1, 3, 17, 40, 65, 120, 200, 333]):
            bodies.append({"prompt": "time " * words, "max_tokens": 24, "seed": i})
            bodies.append({"prompt": "once " * words, "max_tokens": 9, "temperature": 0, "logprobs": 3})
            bodies.append({"prompt": "upon " * words, "max_tokens": 9, "frequency_penalty": 0.5, "presence_penalty": 0.5,
                           "logit_bias": {"5": 3}, "top_p": 0.7})
        with concurrent.futures.ThreadPoolExecutor(6) as pool:
            codes = list(pool.map(lambda b: server.ask("/v1/completions", json.dumps(b).encode()), bodies))
        expect(set(codes) == {200}, f"{len(codes)} requests are answered with the device full: {sorted(set(codes))}",
               server.text()[-2000:])
        expect(server.ask("/live") == 200 and server.process.poll() is None, "the server lives", server.text()[-2000:])
    hog.give_back()


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    hog = Hog(cuda())
    binary, flags = sys.argv[1], sys.argv[2:]
    numbers = ["GiB", "--gpu-memory-utilization", "--max-num-seqs", "--max-model-len"]

    hog.take(3 * GIB)
    text, code = start(binary, flags + ["--max-model-len", "2048"])
    refused(text, code, "3 GiB are free", *numbers, "in use already", "available")
    hog.take(0)
    text, code = start(binary, flags + ["--max-model-len", "2048"])
    refused(text, code, "nothing is free", *numbers, "nvidia-smi")
    hog.give_back()

    text, code = start(binary, flags + ["--max-model-len", "2048"], hog)
    refused(text, code, "memory is taken after the plan", *numbers, "nvidia-smi", "weights", "kv cache", "bytes are free")
    hog.give_back()

    twice(binary, flags)
    in_service(binary, flags, hog)
    finish()


if __name__ == "__main__":
    begin = time.monotonic()
    try:
        main()
    finally:
        print(f"{time.monotonic() - begin:.1f} s")
