#!/usr/bin/env python3
"""One model on the devices of two nodes, which are processes of this host, is the model on two devices of one process.

usage: check_nodes.py SKIFF MODEL [MORE FLAGS]

The answers are the same, to the last digit of each log-probability; SIGTERM to the first node ends both in good order;
and where one is killed the other ends within 10 s with exit code 5 and says why. MODEL is a folder with a tokenizer.
Says so and ends well where there are fewer than two devices, or no NCCL.
"""
import concurrent.futures
import ctypes
import signal
import sys
import time

from device import Serve, cuda, devices, expect, finish, skip

PROMPTS = ["Once upon a time", "The capital of France", "1 2 3 4 5", "a", "time " * 40, "once " * 150]
MEETING = "127.0.0.1,127.0.0.1"


def bodies():
    for i, prompt in enumerate(PROMPTS):
        yield {"prompt": prompt, "max_tokens": 24, "temperature": 0, "logprobs": 3}
        yield {"prompt": prompt, "max_tokens": 24, "temperature": 0.8, "top_p": 0.9, "seed": i, "logprobs": 3}


def answers(server):
    """What was said, with its log-probabilities: one request at a time, then all together."""
    def choice(body):
        reply = server.answer("/v1/completions", body)
        return reply and (reply["choices"][0]["text"], str(reply["choices"][0]["logprobs"]))
    alone = [choice(body) for body in bodies()]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        return alone, list(pool.map(choice, bodies()))


class Nodes:
    """Two nodes with a device each, until the end of a `with`."""

    def __init__(self, binary, model, port, flags):
        shared = ["--tensor-parallel-size", "2", "--ips", MEETING, "--engine-worker-queue-port", str(port + 100), *flags]
        self.nodes = [Serve(binary, model, port + node, "--device", f"cuda:{node}", "--node-rank", str(node), *shared)
                      for node in (0, 1)]

    def __enter__(self):
        expect(self.nodes[0].wait_for("/health", 200), "two nodes start", self.text())
        return self

    def __exit__(self, *_):
        for node in self.nodes:
            node.__exit__()

    def text(self):
        return "\n".join(f"--- node {i}\n{node.text()[-2500:]}" for i, node in enumerate(self.nodes))

    def code_of(self, node, seconds):
        try:
            return self.nodes[node].process.wait(seconds)
        except Exception:
            return None


def end_well(nodes):
    begin = time.monotonic()
    nodes.nodes[0].process.send_signal(signal.SIGTERM)
    codes = [nodes.code_of(node, 20) for node in (0, 1)]
    expect(codes == [0, 0], f"SIGTERM to the first ends both in good order: {codes}, {time.monotonic() - begin:.1f} s",
           nodes.text())


def compare(binary, model, port, flags):
    name = " ".join(flags)
    with Serve(binary, model, port, "--device", "cuda", "--tensor-parallel-size", "2", *flags) as one:
        expect(one.wait_for("/health", 200), f"{name}: one process starts", one.text()[-2000:])
        expected = answers(one)
    with Nodes(binary, model, port + 1, flags) as nodes:
        got = answers(nodes.nodes[0])
        end_well(nodes)
    together = 2 if "--batch-invariant" in flags else 1
    missing = sum(choice is None for each in (*expected, *got) for choice in each)
    expect(missing == 0, f"{name}: every request is answered", f"{missing} were not")
    for what, a, b in list(zip(("alone", "together"), expected, got))[:together]:
        same = sum(x == y for x, y in zip(a, b))
        expect(same == len(a), f"{name}: {what}, {same} of {len(a)} answers are the same")


def kill(binary, model, port, flags, victim):
    def ask_on():
        """Until there is no answer; the lengths of those that there were."""
        lengths = []
        while reply := nodes.nodes[0].answer("/v1/completions", {"prompt": "Once", "max_tokens": 1500, "ignore_eos": True}):
            lengths.append(reply["usage"]["completion_tokens"])
        return lengths
    with Nodes(binary, model, port, flags) as nodes, concurrent.futures.ThreadPoolExecutor(1) as pool:
        client = pool.submit(ask_on)
        time.sleep(0.7)
        expect(not client.done(), "requests are under way")
        begin = time.monotonic()
        nodes.nodes[victim].process.kill()
        code = nodes.code_of(1 - victim, 20)
        seconds = time.monotonic() - begin
        expect(code == 5 and seconds < 10, f"node {victim} is killed: the other ends with code {code} after {seconds:.1f} s",
               nodes.text())
        expect(f"node {victim}" in nodes.nodes[1 - victim].text(), "and says who is gone", nodes.text())
        expect(set(client.result()) <= {1500}, "nobody is told a lie")


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    devices(cuda(), 2)
    try:
        ctypes.CDLL("libnccl.so.2")
    except OSError:
        skip("no libnccl.so.2")
    binary, model, more = sys.argv[1], sys.argv[2], ["--gpu-memory-utilization", "0.3", *sys.argv[3:]]
    # Products in float32 are our own kernels; the algorithms of the library's are chosen by timing, unless told not to be.
    compare(binary, model, 8180, ["--dtype", "float32", *more])
    exact = ["--dtype", "bfloat16", "--batch-invariant", *more]
    compare(binary, model, 8184, exact)
    for victim in (1, 0):
        kill(binary, model, 8188 + 2 * victim, exact, victim)
    finish()


if __name__ == "__main__":
    main()
