#!/usr/bin/env python3
"""A server on the second CUDA device answers as one on the first does, and leaves the first alone.

usage: check_second_device.py SKIFF MODEL [MORE FLAGS]

MODEL is a folder with a tokenizer; "--load-format dummy" may follow. Nobody else should use device 0 meanwhile. Says so
and ends well where there are fewer than two devices.
"""
import concurrent.futures
import json
import sys

from device import Hog, Serve, cuda, devices, expect, finish

PROMPTS = ["Once upon a time", "The capital of France", "1 2 3 4 5", "a", "Sing, goddess, the anger of Achilles",
           "time " * 40, "once " * 150]


def bodies():
    for i, prompt in enumerate(PROMPTS):
        yield {"prompt": prompt, "max_tokens": 24, "temperature": 0}
        yield {"prompt": prompt, "max_tokens": 24, "temperature": 0.8, "top_p": 0.9, "seed": i}
        yield {"prompt": prompt, "max_tokens": 8, "temperature": 0, "logprobs": 3, "frequency_penalty": 0.5}


def answers(server):
    """The texts, or None where a request failed: one request at a time, then all together."""
    def text(body):
        reply = server.answer("/v1/completions", body)
        return reply["choices"][0]["text"] if reply else None
    alone = [text(body) for body in bodies()]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        together = list(pool.map(text, bodies()))
    return alone, together


def serve(binary, model, device, port, flags, first):
    """What a server on `device` answers, and how far device 0's free memory fell meanwhile."""
    before = first.free()
    with Serve(binary, model, port, *flags, "--device", device) as server:
        expect(server.wait_for("/health", 200), f"a server on {device} starts", server.text()[-2000:])
        got = answers(server)
        used = before - first.free()
        expect(server.process.poll() is None, f"the server on {device} lives", server.text()[-2000:])
    return got, used


def compare(binary, model, flags, exact, first):
    flags = ["--gpu-memory-utilization", "0.3", *flags]
    one, used_one = serve(binary, model, "cuda:0", 8174, flags, first)
    two, used_two = serve(binary, model, "cuda:1", 8175, flags, first)
    name = " ".join(flags)
    for got, device in ((one, "cuda:0"), (two, "cuda:1")):
        missing = sum(text is None for texts in got for text in texts)
        expect(missing == 0, f"{name}: every request to {device} is answered", f"{missing} were not")
    expect(used_one > 64 << 20, f"{name}: the server on cuda:0 shows in its memory: {used_one >> 20} MiB")
    expect(abs(used_two) < 4 << 20, f"{name}: the one on cuda:1 leaves it untouched: {used_two} bytes")
    same = sum(a == b for x, y in zip(one, two) for a, b in zip(x, y))
    total = sum(len(texts) for texts in one)
    print(f"          {name}: {same} of {total} answers are the same on both")
    if exact:
        expect(same == total, f"{name}: the same tokens on both")


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    driver = cuda()
    devices(driver, 2)
    first = Hog(driver)
    binary, model, more = sys.argv[1], sys.argv[2], sys.argv[3:]
    # Products in float32 are our own kernels, the same everywhere; the library's bf16 algorithms are chosen by timing.
    compare(binary, model, ["--dtype", "float32", *more], True, first)
    compare(binary, model, ["--dtype", "bfloat16", *more], False, first)
    finish()


if __name__ == "__main__":
    main()
