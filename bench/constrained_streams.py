#!/usr/bin/env python3
"""What constraints cost a server: tokens per second of many replies at a time, with and without a JSON schema each.

    bench/constrained_streams.py [SKIFF] [--model FOLDER] [--streams 64] [--tokens 128] [--rounds 8] [--flags FLAGS]

SKIFF is build/cpu/skiff unless given. One server; each round sends `--streams` requests at once, all constrained or all
free, in the order free, constrained, constrained, free. Every reply has exactly `--tokens` tokens: schemas ask for more
items than fit, and free replies ignore the end. Every reply of one round is first judged by `skiff constrain`, which must
accept all of its text under its schema. The first constrained round compiles all schemas and is shown apart.

Wall times count only on a machine with nothing else to do; the server's processor time per token is shown beside them.
"""
import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent
WORDS = "order user address city total price name status created items count value note tag owner state".split()
KINDS = [{"type": "string"}, {"type": "integer", "minimum": 0, "maximum": 9999}, {"type": "boolean"},
         {"type": "string", "maxLength": 60}, {"enum": ["open", "closed", "lost"]}, {"type": "number"},
         {"type": "array", "items": {"type": "string"}, "minItems": 1}, {"type": "string", "format": "date"}]


def schema_of(stream):
    """Another schema for each stream: objects of five members, in a list that no reply completes."""
    names = [WORDS[(stream * 7 + 3 * i) % len(WORDS)] + (str(stream) if i == 0 else "") for i in range(5)]
    members = {name: KINDS[(stream + 3 * i) % len(KINDS)] for i, name in enumerate(names)}
    one = {"type": "object", "properties": members, "required": list(members), "additionalProperties": False}
    return {"type": "array", "items": one, "minItems": 2000}


class Server:
    def __init__(self, args):
        self.command = [args.skiff, "serve", args.model, "--host", "127.0.0.1", "--port", "0",
                        "--max-num-seqs", str(args.streams), *args.flags]

    def __enter__(self):
        self.log = tempfile.TemporaryFile()
        self.process = subprocess.Popen(self.command, stdout=subprocess.PIPE, stderr=self.log, text=True)
        try:
            for line in self.process.stdout:
                if found := re.search(r"Serving .* on (http://\S+)", line):
                    self.url = found[1]
                    return self
        except BaseException:
            self.process.kill()
            raise
        self.log.seek(0)
        raise SystemExit(self.log.read().decode())

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(60)

    def processor_seconds(self):
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def ask(self, stream, tokens, constrained):
        body = {"messages": [{"role": "user", "content": f"Write a list, number {stream}."}], "max_tokens": tokens,
                "temperature": 0.8, "seed": stream, "ignore_eos": True,
                "chat_template_kwargs": {"enable_thinking": False}}
        if constrained:
            body["response_format"] = {"type": "json_schema",
                                       "json_schema": {"name": "list", "schema": schema_of(stream)}}
        request = urllib.request.Request(self.url + "/v1/chat/completions", json.dumps(body).encode(),
                                         {"Content-Type": "application/json"})
        reply = json.load(urllib.request.urlopen(request, timeout=600))
        assert reply["usage"]["completion_tokens"] == tokens, reply
        return reply["choices"][0]["message"]["content"]

    def round(self, pool, args, constrained):
        """Seconds and processor seconds of a round, and its replies."""
        processor, start = self.processor_seconds(), time.perf_counter()
        replies = list(pool.map(lambda i: self.ask(i, args.tokens, constrained), range(args.streams)))
        return time.perf_counter() - start, self.processor_seconds() - processor, replies


def judge_one(args, stream, text):
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(schema_of(stream), file)
        file.flush()
        out = subprocess.run([args.skiff, "constrain", args.model, "--json-schema", file.name],
                             input=json.dumps(text) + "\n", capture_output=True, text=True, check=True).stdout
    found = json.loads(out.splitlines()[-1])
    whole = len(text.encode())
    # The last character may be cut.
    assert found["at"] >= whole - 3 or "�" in text[-4:], (stream, found, whole, text[-80:])


def judge(args, replies):
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(lambda one: judge_one(args, *one), enumerate(replies)))


def show(name, rounds, args):
    tokens = args.streams * args.tokens
    wall, processor = (statistics.median(values) for values in zip(*rounds))
    print(f"{name:<12} {len(rounds)} rounds: median {tokens / wall:8.1f} tokens/s, "
          f"{1e6 * processor / tokens:8.1f} us of processor time a token", flush=True)
    return wall, processor


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("skiff", nargs="?", default=str(ROOT / "build/cpu/skiff"))
    parser.add_argument("--model", default=str(ROOT / "models/demo"))
    parser.add_argument("--streams", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=8, help="of each kind; even")
    parser.add_argument("--flags", default="", help="flags of skiff serve, in one argument")
    args = parser.parse_args()
    args.flags = args.flags.split()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by a signal"))  # the server ends, too
    free, constrained = [], []
    with Server(args) as server, concurrent.futures.ThreadPoolExecutor(args.streams) as pool:
        server.round(pool, args, False)
        *first, replies = server.round(pool, args, True)
        judge(args, replies)
        print(f"{args.streams} replies of {args.tokens} tokens at a time, each under a schema of its own: "
              "all accepted by skiff constrain")
        show("compiling", [first], args)
        for turn in range(args.rounds):
            for kind in (False, True) if turn % 2 == 0 else (True, False):
                seconds, processor, _ = server.round(pool, args, kind)
                (constrained if kind else free).append((seconds, processor))
    without, with_ = show("free", free, args), show("constrained", constrained, args)
    pairs = [c[0] / f[0] for f, c in zip(free, constrained)]
    print(f"constraints cost {100 * (1 - without[0] / with_[0]):.1f} % of tokens/s (pairs: median "
          f"{100 * (1 - 1 / statistics.median(pairs)):.1f} %) and {100 * (with_[1] / without[1] - 1):.1f} % more "
          "processor time a token")


if __name__ == "__main__":
    main()
