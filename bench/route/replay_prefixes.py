#!/usr/bin/env python3
"""Prompt tokens that real servers find cached behind `skiff route`, by policy.

    bench/route/replay_prefixes.py TRACE [--skiff build/cpu/skiff] [--requests N] [--servers 4]
                                   [--policies prefix,random]

TRACE has Mooncake's JSON lines: hash_ids names the blocks of a prompt. Each block becomes 16 tokens here,
so that the demo model computes on a CPU what the trace asks of a GPU; caches hold 1,000 of these blocks a
server. Requests come in the order of the trace, twelve at a time, and every answer is checked to be there.
"""
import argparse
import collections
import http.client
import json
import pathlib
import queue
import random
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BLOCK, BLOCKS, CONTEXT, CLIENTS = 16, 1000, 8192, 12


class Program:
    """A `skiff` on a free port that has said `ready`."""

    def __init__(self, words, ready):
        self.process = subprocess.Popen([*map(str, words), "--host", "127.0.0.1", "--port", "0",
                                         "--access-log", "off"], stdout=subprocess.PIPE,
                                        stderr=subprocess.STDOUT, text=True)
        self.port, self.is_ready = None, threading.Event()
        self.last = collections.deque(maxlen=20)
        threading.Thread(target=self.read, args=(ready,), daemon=True).start()
        if not self.is_ready.wait(300) or self.port is None:
            sys.exit("did not start:\n" + "".join(self.last))

    def read(self, ready):
        for line in self.process.stdout:
            self.last.append(line)
            if found := re.search(r"listening on \S+ port (\d+)", line):
                self.port = int(found.group(1))
            if ready in line:
                self.is_ready.set()
        self.is_ready.set()

    def get(self, path):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=30) as answer:
            return answer.read().decode()

    def metric(self, name):
        return float(re.search(rf"^{name}{{[^}}]*}} (\S+)$", self.get("/metrics"), re.M).group(1))

    def close(self):
        self.process.kill()
        self.process.wait()


def prompts_of(trace, count):
    """Token ids of the prompts, whose equal blocks have equal tokens."""
    for line in trace.read_text().splitlines()[:count]:
        ids = []
        for block in json.loads(line)["hash_ids"]:
            draw = random.Random(block)
            ids += [draw.randint(300, 3000) for _ in range(BLOCK)]
        yield ids[:CONTEXT - 2]


def ask(port, prompts, failed):
    while not failed:
        try:
            prompt = prompts.get_nowait()
        except queue.Empty:
            return
        link = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
        link.request("POST", "/v1/completions", json.dumps(
            {"model": "demo", "prompt": prompt, "max_tokens": 1, "temperature": 0}),
            {"Content-Type": "application/json"})
        answer = link.getresponse()
        if answer.status != 200 or json.loads(answer.read())["usage"]["completion_tokens"] != 1:
            failed.append(answer.status)


def replay(args, model, policy):
    router = Program([args.skiff, "route", "--policy", policy], "listening")
    servers = [Program([args.skiff, "serve", model, "--served-model-name", "demo", "--threads", 1,
                        "--block-size", BLOCK, "--max-model-len", CONTEXT, "--max-num-seqs", 4,
                        "--num-gpu-blocks-override", BLOCKS, "--router",
                        f"127.0.0.1:{router.port}"], "Serving") for _ in range(args.servers)]
    while json.loads(router.get("/registered_number"))["mixed"] < args.servers:
        time.sleep(0.1)
    prompts = queue.Queue()
    for prompt in prompts_of(args.trace, args.requests):
        prompts.put(prompt)
    failed = []
    clients = [threading.Thread(target=ask, args=(router.port, prompts, failed))
               for _ in range(CLIENTS)]
    for client in clients:
        client.start()
    for client in clients:
        client.join()
    if failed:
        sys.exit(f"an answer is not there: status {failed[0]}")
    asked = [one.metric("vllm:prefix_cache_queries_total") for one in servers]
    hits = [one.metric("vllm:prefix_cache_hits_total") for one in servers]
    for one in [*servers, router]:
        one.close()
    computed = [a - h for a, h in zip(asked, hits)]
    return sum(hits) / sum(asked), max(computed) * len(computed) / sum(computed)


def main():
    options = argparse.ArgumentParser(description=__doc__,
                                      formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("trace", type=pathlib.Path)
    options.add_argument("--skiff", default=ROOT / "build/cpu/skiff")
    options.add_argument("--requests", type=int, default=1 << 30)
    options.add_argument("--servers", type=int, default=4)
    options.add_argument("--policies", default="prefix,random")
    args = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        model = pathlib.Path(folder) / "model"
        shutil.copytree(ROOT / "models/demo", model)
        config = json.loads((model / "config.json").read_text())
        config["max_position_embeddings"] = CONTEXT
        (model / "config.json").write_text(json.dumps(config))
        for policy in args.policies.split(","):
            cached, uneven = replay(args, model, policy)
            print(f"{policy:<16} cached {100 * cached:5.1f} %  most computed {uneven:.2f}x the mean",
                  flush=True)


if __name__ == "__main__":
    main()
