#!/usr/bin/env python3
"""A model cut among CUDA devices answers as it does on one, whatever else is asked at the same time.

usage: check_ranks.py SKIFF MODEL [MORE FLAGS]

MODEL is a folder with a tokenizer whose model fits two ranks; "--load-format dummy" may follow. Says so and ends well where
there are fewer than two devices. Where there are four, four ranks are tried, too, if the model fits them.
"""
import sys

from check_second_device import answers
from device import Serve, cuda, devices, expect, finish


def serve(binary, model, port, flags):
    with Serve(binary, model, port, "--device", "cuda", "--gpu-memory-utilization", "0.3", *flags) as server:
        name = " ".join(flags)
        expect(server.wait_for("/health", 200), f"{name}: starts", server.text()[-2000:])
        got = answers(server)
        missing = sum(text is None for texts in got for text in texts)
        expect(missing == 0, f"{name}: every request is answered", f"{missing} were not; {server.text()[-2000:]}")
        server.process.terminate()
        expect(server.process.wait(30) == 0, f"{name}: SIGTERM ends it with code 0")
    return got


def same(a, b):
    return sum(x == y for x, y in zip(a, b)), len(a)


def compare(binary, model, ranks, more):
    cut = ["--tensor-parallel-size", str(ranks)]
    for dtype, least in (("float32", 0.95), ("bfloat16", 0.5)):
        whole = serve(binary, model, 8176, ["--dtype", dtype, *more])
        parts = serve(binary, model, 8177, ["--dtype", dtype, *cut, *more])
        agree, total = same(whole[0], parts[0])
        # Another number of ranks adds in another order: a near tie may fall the other way, more often in bfloat16.
        expect(agree >= least * total, f"{ranks} ranks, {dtype}: {agree} of {total} answers are those of one rank")
    kept = serve(binary, model, 8178, ["--batch-invariant", *cut, *more])
    agree, total = same(*kept)
    expect(agree == total, f"{ranks} ranks, --batch-invariant: answers do not depend on company", f"{agree} of {total}")
    host = serve(binary, model, 8179, ["--swap-space", "0.05", "--num-gpu-blocks-override", "24", *cut, *more])
    agree, total = same(*host)
    print(f"          {ranks} ranks, blocks that come and go: {agree} of {total} answers are the same alone and together")


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    count = devices(cuda(), 2)
    for ranks in (2, 4):
        if ranks <= count:
            compare(sys.argv[1], sys.argv[2], ranks, sys.argv[3:])
    finish()


if __name__ == "__main__":
    main()
