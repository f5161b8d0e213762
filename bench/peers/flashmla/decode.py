#!/usr/bin/env python3
"""decode.py LIBRARY: times FlashMLA's dense decode of DeepSeek's latents (bfloat16) beside `bench_mla`.

LIBRARY is the extension _flashmla_C.abi3.so of a vLLM wheel; only it and torch are needed. Each kind of shape is first compared
with attention in float32, then calls on as many caches as exceed the L2 are timed in one CUDA graph. Exit status 1 if a result
is wrong."""
import sys

import torch

WIDTH, VALUES, PAGE = 576, 512, 64
SCALE = 192**-0.5

# What bench_mla calls it, heads, sequences, context, rows of a sequence, caches that are read by turns.
SHAPES = [
    ("128 heads, 128 x 4K", 128, 128, 4096, 1, 2),
    ("128 heads, 128 x 4K, 2 rows", 128, 128, 4096, 2, 2),
    ("128 heads, 32 x 32K", 128, 32, 32768, 1, 1),
    ("32 heads, 64 x 8K", 32, 64, 8192, 1, 2),
    ("32 heads, 64 x 8K, 2 rows", 32, 64, 8192, 2, 2),
    ("32 heads, 64 x 8K, 3 rows", 32, 64, 8192, 3, 2),
    ("16 heads, 32 x 8K", 16, 32, 8192, 1, 4),
    ("16 heads, 32 x 8K, 4 rows", 16, 32, 8192, 4, 4),
    ("16 heads, 1 x 1K", 16, 1, 1024, 1, 64),
    ("128 heads, 1 x 128K", 128, 1, 131072, 1, 2),
]


class World:
    """Random queries and paged caches."""

    def __init__(self, heads, sequences, context, rows, caches=1):
        pages = -(-context // PAGE)
        bf16 = dict(device="cuda", dtype=torch.bfloat16)
        self.context = context
        self.queries = torch.randn(sequences, rows, heads, WIDTH, **bf16)
        self.caches = torch.randn(caches, sequences * pages, PAGE, 1, WIDTH, **bf16)
        self.table = torch.randperm(sequences * pages, device="cuda").to(torch.int32).view(sequences, pages)
        self.lengths = torch.full((sequences,), context, device="cuda", dtype=torch.int32)

    def attend(self, cache=0, plan=(None, None)):
        return torch.ops._flashmla_C.dense_decode_fwd(
            self.queries, self.caches[cache], VALUES, self.lengths, self.table, SCALE, True, *plan, None
        )

    def error(self):
        """The largest error of a sequence, relative to its attention in float32."""
        got, worst = self.attend()[0], 0.0
        rows = self.queries.shape[1]
        for s, query in enumerate(self.queries):
            keys = self.caches[0][self.table[s].long()].reshape(-1, WIDTH)[: self.context].float()
            scores = torch.einsum("qhd,kd->hqk", query.float(), keys) * SCALE
            last = self.context - rows + torch.arange(rows, device="cuda")
            hidden = torch.arange(self.context, device="cuda")[None, :] > last[:, None]
            weights = torch.softmax(scores.masked_fill(hidden[None], float("-inf")), -1)
            want = torch.einsum("hqk,kd->qhd", weights, keys[:, :VALUES])
            worst = max(worst, ((got[s].float() - want).norm() / want.norm()).item())
        return worst


def check():
    good = True
    for heads, sequences, context, rows in [(128, 2, 500, 1), (32, 3, 1000, 2), (16, 2, 4096, 1)]:
        error = World(heads, sequences, context, rows).error()
        good &= error < 1e-2
        print(f"{'ok  ' if error < 1e-2 else 'BAD '} {heads} heads, {sequences} x {context}, {rows} rows: error {error:.1e}")
    return good


def microseconds(world):
    caches = len(world.caches)
    plan = [part.clone() for part in world.attend()[2:]]
    world.attend(0, plan)
    torch.cuda.synchronize()
    calls = max(4, caches)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for i in range(calls):
            world.attend(i % caches, plan)
    graph.replay()
    best = float("inf")
    for _ in range(5):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        best = min(best, begin.elapsed_time(end) * 1e3 / calls)
    return best


def main(library):
    torch.ops.load_library(library)
    print("torch", torch.__version__, torch.cuda.get_device_name())
    if not check():
        return 1
    for name, heads, sequences, context, rows, caches in SHAPES:
        us = microseconds(World(heads, sequences, context, rows, caches))
        operations = 2.0 * sequences * heads * rows * context * (WIDTH + VALUES)
        read = 2.0 * sequences * context * WIDTH
        print(f"FlashMLA {name:28s} {us:9.1f} us {operations / us * 1e-6:7.1f} TFLOP/s {read / us * 1e-3:7.0f} GB/s", flush=True)
    return 0


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1]))
