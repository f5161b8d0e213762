#!/usr/bin/env python3
"""Time to first token of a reused prefix, by where the cache has it.

    bench/prefix_reuse.py [SKIFF] [--only one|turns|chats] [--threads N] [--block-size N]

SKIFF is build/cpu/skiff unless given. On a machine with other work, one thread waits for nobody.

Starts `skiff serve` with random weights of the ERNIE-4.5-0.3B shape, talks to it over HTTP and
prints medians. Three experiments:

1. One conversation of 2,048 tokens comes back with 32 new ones: nothing cached; still in the pool;
   pushed out of the pool into host memory; into the file; and after a restart.
2. Four such conversations take turns with a pool for one of them: TTFT with the cache off, with
   the pool alone, and with each lower tier.
3. Four chats of several turns, one after the other at each turn: a turn's prompt is all that was said
   before, answers of the model among it, and 10 % that is new. TTFT with the cache off, on, with a pool
   for a quarter of it all and each lower tier, and after a restart.

Before any time is printed, the tokens of all runs are compared: they must be the same.
"""
import argparse
import json
import pathlib
import random
import re
import signal
import statistics
import subprocess
import tempfile
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent
PREFIX, TAIL, TALKS, TURNS, VOCAB = 2048, 32, 4, 3, 100_000
CHATS, CHAT_TURNS, CHAT_BEGIN, ANSWER = 4, 4, 1800, 16


class Server:
    """`skiff serve` on a free port, until the end of the with block."""

    threads, block = "0", 64

    def __init__(self, skiff, pool_blocks, flags):
        self.command = [
            skiff, "serve", "--threads", self.threads, str(ROOT / "bench/configs/ernie-4.5-0.3b"), "--tokenizer",
            str(ROOT / "models/demo"), "--load-format", "dummy", "--seed", "7", "--host",
            "127.0.0.1", "--port", "0", "--max-model-len", "4096", "--max-num-seqs", "4",
            "--block-size", str(self.block), "--num-gpu-blocks-override", str(pool_blocks), *flags]

    def __enter__(self):
        self.log = tempfile.TemporaryFile()
        self.process = subprocess.Popen(self.command, stdout=subprocess.PIPE, stderr=self.log,
                                        text=True)
        for line in self.process.stdout:
            if found := re.search(r"Serving .* on (http://\S+)", line):
                self.url = found[1]
                return self
        self.log.seek(0)
        raise SystemExit(self.log.read().decode())

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(60)

    def ask(self, tokens, max_tokens=1):
        """Seconds to the reply, and its tokens."""
        body = json.dumps({"prompt": tokens, "max_tokens": max_tokens, "temperature": 0,
                           "ignore_eos": True, "return_token_ids": True}).encode()
        request = urllib.request.Request(self.url + "/v1/completions", body,
                                         {"Content-Type": "application/json"})
        start = time.perf_counter()
        reply = json.load(urllib.request.urlopen(request))
        return time.perf_counter() - start, reply["choices"][0].get("token_ids")

    def ask_stream(self, tokens, max_tokens):
        """Seconds to the first piece of the reply, and all its tokens."""
        body = json.dumps({"prompt": tokens, "max_tokens": max_tokens, "temperature": 0,
                           "ignore_eos": True, "return_token_ids": True, "stream": True}).encode()
        request = urllib.request.Request(self.url + "/v1/completions", body,
                                         {"Content-Type": "application/json"})
        start, first, said = time.perf_counter(), None, []
        with urllib.request.urlopen(request) as reply:
            for line in reply:
                if not line.startswith(b"data: {"):
                    continue
                first = first or time.perf_counter() - start
                for choice in json.loads(line[6:])["choices"]:
                    said += choice.get("completion_token_ids") or []
        return first, said

    def counts(self):
        """Tokens that came from host memory and from the file, and blocks that failed."""
        text = urllib.request.urlopen(self.url + "/metrics").read().decode()
        names = ["prefix_cpu_cache_token_num", "prefix_ssd_cache_token_num",
                 "prefix_cache_tier_failures_total"]
        return [int(float(re.search(rf"^fastdeploy:{n}{{.*}} (\S+)$", text, re.M)[1]))
                for n in names]


def blocks_per_talk():
    return PREFIX // Server.block + 2


def talk(i):
    """The tokens that conversation i begins with."""
    rng = random.Random(i)
    return [rng.randrange(10, VOCAB) for _ in range(PREFIX)]


def turn(i, n):
    """New tokens of its n-th turn."""
    rng = random.Random(1000 * i + n + 1)
    return [rng.randrange(10, VOCAB) for _ in range(TAIL)]


def push_out(server):
    """Other conversations fill the pool."""
    for i in range(100, 102):
        server.ask(talk(i))


def one_prefix(skiff, said):
    """Experiment 1: rows of (where, seconds, tokens from host memory and file)."""
    rows = []

    def measure(name, server, prepare, n=3):
        times, counts = [], [0, 0, 0]
        for k in range(n):
            prepare(k)
            before = server.counts()
            seconds, tokens = server.ask(talk(k) + turn(k, 0))
            said.setdefault((k, 0), tokens)
            assert said[k, 0] == tokens, f"{name}: conversation {k} changed its tokens"
            times.append(seconds)
            counts = [c + a - b for c, a, b in zip(counts, server.counts(), before)]
        rows.append((name, statistics.median(times), *counts))

    with Server(skiff, 2 * blocks_per_talk(), ["--no-enable-prefix-caching"]) as server:
        server.ask(talk(99))
        measure("not cached", server, lambda k: None)
    with Server(skiff, 2 * blocks_per_talk(), []) as server:
        measure("in the pool", server, lambda k: server.ask(talk(k)))

    def evicted(server):
        return lambda k: (server.ask(talk(k)), push_out(server))

    with Server(skiff, 2 * blocks_per_talk(), ["--swap-space", "2"]) as server:
        measure("in host memory", server, evicted(server))
    with tempfile.TemporaryDirectory() as folder:
        file = ["--kvcache-storage-backend", "file", "--kvcache-storage-path", folder + "/kv"]
        with Server(skiff, 2 * blocks_per_talk(), file) as server:
            measure("in the file", server, evicted(server))
        with Server(skiff, 2 * blocks_per_talk(), file) as server:
            measure("in the file, after a restart", server, lambda k: None)
    return rows


def taking_turns(skiff, said):
    """Experiment 2: a pool for a quarter of the conversations."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        file = ["--kvcache-storage-backend", "file", "--kvcache-storage-path", folder + "/kv"]
        for name, flags in [("cache off", ["--no-enable-prefix-caching"]), ("pool only", []),
                            ("pool and host memory", ["--swap-space", "2"]),
                            ("pool and file", file), ("pool and file, restarted", file)]:
            with Server(skiff, TALKS * blocks_per_talk() // 4, flags) as server:
                times = []
                for n in range(TURNS):
                    for i in range(TALKS):
                        seconds, tokens = server.ask(talk(i) + turn(i, n))
                        said.setdefault((i, n), tokens)
                        assert said[i, n] == tokens, f"{name}: talk {i} turn {n} differs"
                        if n > 0 or "restarted" in name:
                            times.append(seconds)
                rows.append((name, statistics.median(times), *server.counts()))
    return rows


def chat_through(server, said, name, turns):
    """(turn, time to the first token) of these turns of all chats, and (chat, turn) of each."""
    prompts = [talk(i)[:CHAT_BEGIN] for i in range(CHATS)]
    times, asked = [], []
    for n in range(CHAT_TURNS):
        for i in range(CHATS):
            if n > 0:
                rng = random.Random(77 * i + n)
                prompts[i] += said[i, n - 1]
                prompts[i] += [rng.randrange(10, VOCAB) for _ in range(len(prompts[i]) // 9)]
            if n not in turns:
                continue
            seconds, tokens = server.ask_stream(prompts[i], ANSWER)
            said.setdefault((i, n), tokens)
            assert said[i, n] == tokens, f"{name}: chat {i} turn {n} differs"
            times.append((n, seconds))
            asked.append((i, n))
    return times, asked


def chats(skiff, said):
    """Experiment 3. The first turn has nothing to find, but for the server that was restarted."""
    rows, off = [], {}
    longest = int(CHAT_BEGIN * (10 / 9) ** (CHAT_TURNS - 1)) + 2 * ANSWER * CHAT_TURNS
    blocks = longest // Server.block + 2
    every = range(CHAT_TURNS)
    with tempfile.TemporaryDirectory() as folder:
        file = ["--kvcache-storage-backend", "file", "--kvcache-storage-path", folder + "/kv"]
        whole, quarter = CHATS * blocks, CHATS * blocks // 4
        for name, pool, flags in [
                ("cache off", whole, ["--no-enable-prefix-caching"]), ("cache on", whole, []),
                ("quarter pool, host memory", quarter, ["--swap-space", "2"]),
                ("quarter pool, file", quarter, file),
                ("quarter pool, file, restarted", quarter, file)]:
            with Server(skiff, pool, flags) as server:
                times, asked = chat_through(server, said, name,
                                     [CHAT_TURNS - 1] if "restarted" in name else every)
                rows.append((name, statistics.median(t for n, t in times if n > 0),
                             *server.counts()))
            off = off or dict(zip(asked, (seconds for _, seconds in times)))
            ratios = [off[key] / seconds for key, (n, seconds) in zip(asked, times) if n > 0]
            print(f"{name}: " + " ".join(f"{seconds * 1e3:.0f}" for _, seconds in times) +
                  f" ms to the first token; prompt by prompt {statistics.median(ratios):.1f}x")
    return rows


def show(title, rows):
    """A table; the last column is how much faster than the first row."""
    print(f"\n{title}\n{'':32}{'TTFT':>10}{'speed-up':>10}{'host tok':>10}{'file tok':>10}{'failed':>8}")
    for name, seconds, host, disk, failed in rows:
        print(f"{name:32}{seconds * 1e3:7.1f} ms{rows[0][1] / seconds:9.1f}x{host:10}{disk:10}{failed:8}")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("skiff", nargs="?", default=str(ROOT / "build/cpu/skiff"))
    parser.add_argument("--only", choices=["one", "turns", "chats"])
    parser.add_argument("--threads", default="0", help="of the servers; 0: one per core")
    parser.add_argument("--block-size", type=int, default=64,
                        help="tokens; what is shared is whole blocks")
    args = parser.parse_args()
    Server.threads, Server.block = args.threads, args.block_size
    said = {}
    if args.only in (None, "one"):
        show(f"One prefix of {PREFIX} tokens and {TAIL} new ones", one_prefix(args.skiff, said))
    if args.only in (None, "turns"):
        show(f"{TALKS} conversations take turns; the pool holds {TALKS // 4}",
             taking_turns(args.skiff, said))
    if args.only in (None, "chats"):
        show(f"{CHATS} chats of {CHAT_TURNS} turns, 90 % of each prompt said before",
             chats(args.skiff, {}))


if __name__ == "__main__":
    main()
