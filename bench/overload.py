#!/usr/bin/env python3
"""Overload: three times what a server can do, for ten minutes.

    bench/overload.py [--seconds 600] [--factor 3] [--skiff build/cpu/skiff] [--model models/demo]

Starts `skiff serve`, finds its capacity with a closed loop, its peak goodput with open loops (Poisson
arrivals) around that, then offers FACTOR times the capacity, then half of it. A request is good if it
ends with its first token within --slo-ttft and the mean time of the others within --slo-tpot. Prompts
are random, so nothing comes from the cache. Nobody who is refused asks again.

Judged: goodput under overload at least 90 % of the peak, in all and in the median ten seconds;
resident memory flat; a 429 for every refusal, within 50 ms from the first byte sent to the last
received; nobody hung or cut; within 5 s of the fall of the load nobody is refused or late any more.

The client is one thread on the same machine, so its own delays count against the server: it measures
how late its timer is while it waits for answers and prints that beside the refusals. Streams are not
parsed, only timed.
"""
import argparse
import asyncio
import collections
import json
import os
import pathlib
import random
import statistics
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools/chaos"))
from server import Server  # noqa: E402

VOCAB, FIRST = 4096, 16
HUNG = 60  # seconds after which a request counts as such

Outcome = collections.namedtuple("Outcome", "sent status first end error")


class Connection(asyncio.Protocol):
    """One request at a time; kept for the next one."""

    def __init__(self):
        self.transport, self.closed = None, False

    def connection_made(self, transport):
        self.transport = transport

    def ask(self, data):
        self.head, self.tail, self.status = b"", b"", 0
        self.first, self.wanted, self.error = 0.0, None, ""
        self.answer = asyncio.get_running_loop().create_future()
        self.sent = time.perf_counter()
        self.transport.write(data)
        return self.answer

    def data_received(self, data):
        if self.status == 0:
            self.head += data
            head, end, data = self.head.partition(b"\r\n\r\n")
            if not end:
                return
            self.status = int(head[9:12])
            lower = head.lower()
            if b"content-length: " in lower:
                self.wanted = int(lower.split(b"content-length: ")[1].split(b"\r\n")[0])
        if self.status == 200 and data:
            self.first = self.first or time.perf_counter()
            if b'"error":{' in data:
                self.error = "an error in the stream"
        if self.wanted is not None:
            self.wanted -= len(data)
            if self.wanted <= 0:
                self.done()
            return
        self.tail = (self.tail + data)[-40:]
        if self.tail.endswith(b"0\r\n\r\n"):
            if b"[DONE]" not in self.tail:
                self.error = self.error or "no [DONE]"
            self.done()

    def done(self):
        if not self.answer.done():
            self.answer.set_result(Outcome(self.sent, self.status, self.first,
                                           time.perf_counter(), self.error))

    def connection_lost(self, error):
        self.closed, self.error = True, f"cut: {error}"
        if self.transport is not None and getattr(self, "answer", None) is not None:
            self.done()


class Load:
    """Requests against one server."""

    def __init__(self, server, args):
        self.port, self.args, self.rng = server.port, args, random.Random(args.seed)
        self.idle, self.late, self.outcomes, self.open = [], [], [], set()
        self.tokens = [str(t) for t in range(FIRST, VOCAB)]

    def request(self):
        body = (f'{{"max_tokens":{self.args.output},"temperature":0,"ignore_eos":true,"stream":true,'
                f'"prompt":[{",".join(self.rng.choices(self.tokens, k=self.args.input))}]}}')
        return (f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json"
                f"\r\nContent-Length: {len(body)}\r\n\r\n{body}").encode()

    async def one(self):
        """Its outcome; one is appended whatever happens."""
        data = self.request()
        begin = time.perf_counter()
        try:
            connection = None
            while self.idle and (connection is None or connection.closed):
                connection = self.idle.pop()
            if connection is None or connection.closed:
                _, connection = await asyncio.get_running_loop().create_connection(
                    Connection, "127.0.0.1", self.port)
            outcome = await asyncio.wait_for(connection.ask(data), HUNG)
            if not connection.closed:
                self.idle.append(connection)
        except asyncio.TimeoutError:
            outcome = Outcome(begin, 0, 0, time.perf_counter(), "hung")
        except OSError as error:
            outcome = Outcome(begin, 0, 0, time.perf_counter(), str(error))
        self.outcomes.append(outcome)

    async def closed_loop(self, seconds):
        """As many at a time as run in one step; requests per second."""
        end = time.perf_counter() + seconds

        async def again():
            while time.perf_counter() < end:
                await self.one()

        begin, before = time.perf_counter(), len(self.outcomes)
        await asyncio.gather(*(again() for _ in range(self.args.sequences)))
        return (len(self.outcomes) - before) / (time.perf_counter() - begin)

    async def offer(self, rate, seconds):
        """Poisson arrivals; the outcomes of those that were sent, once all have ended."""
        at = begin = time.perf_counter()
        before = len(self.outcomes)
        tasks = set()
        while (at := at + self.rng.expovariate(rate)) < begin + seconds:
            if (wait := at - time.perf_counter()) > 0:
                await asyncio.sleep(wait)
                self.late.append(time.perf_counter() - max(at, begin))
            task = asyncio.create_task(self.one())
            tasks.add(task)
            task.add_done_callback(tasks.discard)
        await asyncio.gather(*tasks)
        return self.outcomes[before:]

    def good(self, o):
        if o.status != 200 or o.error:
            return False
        rest = (o.end - o.first) / max(1, self.args.output - 1)
        return o.first - o.sent <= self.args.slo_ttft and rest <= self.args.slo_tpot


def percentile(values, p):
    values = sorted(values)
    return values[min(len(values) - 1, int(p * len(values)))] if values else 0.0


def ms(values, *ps):
    return ", ".join(f"p{100 * p:g} {percentile(values, p) * 1e3:.1f}" for p in ps) + " ms"


class Report:
    def __init__(self):
        self.good = True

    def say(self, text):
        print(text, flush=True)

    def judge(self, holds, text):
        self.good &= holds
        self.say(f"{'ok  ' if holds else 'FAIL'} {text}")


async def find_peak(load, args, report):
    """Capacity, and the best goodput of loads around it."""
    await load.closed_loop(args.warm)
    capacity = await load.closed_loop(args.probe)
    report.say(f"capacity: {capacity:.2f} requests/s in a closed loop of {args.sequences}")
    peak = 0.0
    for part in (0.7, 0.85, 1.0, 1.2):
        outcomes = await load.offer(part * capacity, args.probe)
        goodput = sum(map(load.good, outcomes)) / args.probe
        peak = max(peak, goodput)
        report.say(f"  offered {part:.2f} x capacity: goodput {goodput:.2f}/s of "
                   f"{len(outcomes) / args.probe:.2f}/s")
    return capacity, peak


async def watch(server, seconds, samples):
    begin = time.perf_counter()
    while (now := time.perf_counter() - begin) < seconds:
        samples.append((now, server.rss()))
        await asyncio.sleep(min(5, seconds / 20))


def judge_overload(load, args, report, begin, outcomes, peak):
    accepted = [o for o in outcomes if o.status == 200]
    refused = [o for o in outcomes if o.status in (429, 503)]
    other = [o for o in outcomes if o.status not in (200, 429, 503) or o.error]
    good = [o for o in outcomes if load.good(o)]
    report.say(f"overload: {len(outcomes)} requests sent, {len(accepted)} answered, {len(good)} of "
               f"them good, {len(refused)} refused, {len(other)} neither")
    report.say("  first token " + ms([o.first - o.sent for o in accepted], .5, .9, .99, 1))
    report.say("  per token after it " + ms(
        [(o.end - o.first) / max(1, args.output - 1) for o in accepted], .5, .9, .99, 1))
    goodput = len(good) / args.seconds
    per_ten = collections.Counter(int((o.end - begin) / 10) for o in good)
    tens = [per_ten[i] / 10 for i in range(1, int(args.seconds / 10))] or [goodput]
    report.judge(goodput >= 0.9 * peak and statistics.median(tens) >= 0.9 * peak,
                 f"goodput {goodput:.2f}/s, {100 * goodput / peak:.1f} % of the peak of {peak:.2f}/s; "
                 f"in ten seconds at least {min(tens):.1f}, median {statistics.median(tens):.1f}")
    times = [o.end - o.sent for o in refused]
    report.say("  the client's own timer was late by " + ms(load.late, .5, .99, .999, 1))
    report.judge(bool(times) and max(times) < 0.05,
                 f"refusals took {ms(times, .5, .9, .99, .999, 1)}; {sum(t >= .05 for t in times)} of "
                 f"{len(times)} took 50 ms or more")
    report.judge(all(o.status == 429 for o in refused), "every refusal was a 429")
    report.judge(not other, f"nobody hung or was cut {collections.Counter(o.error for o in other)}")


def judge_memory(report, samples):
    early = max(rss for when, rss in samples if when <= samples[-1][0] * 0.1 + 5)
    late = max(rss for when, rss in samples if when > samples[-1][0] / 2)
    step = max(1, len(samples) // 12)
    report.say("  resident memory over time, MiB: " +
               " ".join(f"{rss:.1f}" for _, rss in samples[::step]))
    report.judge(late <= early + 8, f"memory at most {early:.1f} MiB in the first tenth, {late:.1f} in "
                 "the second half; bound 8 more")


def judge_recovery(load, report, fell, outcomes):
    bad = [o.sent - fell for o in outcomes if not load.good(o)]
    recovered = max(bad, default=0.0)
    report.judge(recovered <= 5, f"after the fall of the load the last request that was refused or late "
                 f"was sent {recovered:.2f} s later ({len(bad)} of {len(outcomes)} were)")


async def measure(server, args, report):
    load = Load(server, args)
    capacity, peak = await find_peak(load, args, report)
    load.late.clear()
    samples, begin = [], time.perf_counter()
    report.say(f"offering {args.factor:g} x capacity = {args.factor * capacity:.1f} requests/s for "
               f"{args.seconds:g} s")
    watching = asyncio.create_task(watch(server, args.seconds, samples))
    during = asyncio.create_task(load.offer(args.factor * capacity, args.seconds))
    await asyncio.sleep(max(0.0, begin + args.seconds - time.perf_counter()))
    fell = time.perf_counter()
    after = asyncio.create_task(load.offer(0.5 * capacity, args.after))
    sent_after = fell
    await asyncio.gather(during, after, watching)
    # Both collect into one list; who was sent when tells them apart.
    everything = [o for o in load.outcomes if o.sent >= begin]
    judge_overload(load, args, report, begin, [o for o in everything if o.sent < sent_after], peak)
    judge_memory(report, samples)
    judge_recovery(load, report, fell, [o for o in everything if o.sent >= sent_after])


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--skiff", default=str(ROOT / "build/cpu/skiff"))
    parser.add_argument("--model", default=str(ROOT / "models/demo"))
    parser.add_argument("--seconds", type=float, default=600, help="of overload")
    parser.add_argument("--factor", type=float, default=3)
    parser.add_argument("--probe", type=float, default=20, help="seconds of each other load")
    parser.add_argument("--warm", type=float, default=5)
    parser.add_argument("--after", type=float, default=20, help="seconds of half the load")
    parser.add_argument("--input", type=int, default=128)
    parser.add_argument("--output", type=int, default=64)
    parser.add_argument("--sequences", type=int, default=16)
    parser.add_argument("--concurrency", type=int, default=32)
    parser.add_argument("--threads", type=int, default=1, help="the other core is the client's")
    parser.add_argument("--slo-ttft", type=float, default=1)
    parser.add_argument("--slo-tpot", type=float, default=0.05)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--flags", default="", help="more flags of `skiff serve`")
    args = parser.parse_args()
    flags = ["--max-num-seqs", args.sequences, "--max-concurrency", args.concurrency, "--threads",
             args.threads, "--max-model-len", max(512, args.input + args.output + 1),
             "--num-gpu-blocks-override", 400, *args.flags.split()]
    report = Report()
    report.say(f"{time.strftime('%Y-%m-%d %H:%M')}, {os.cpu_count()} cores, load average "
               f"{os.getloadavg()[0]:.1f}; serve {' '.join(map(str, flags))}; prompts of {args.input}, "
               f"answers of {args.output} tokens; good: first token within {args.slo_ttft:g} s, others "
               f"within {args.slo_tpot * 1e3:g} ms each")
    server = Server(args.skiff, args.model, flags)
    try:
        asyncio.run(measure(server, args, report))
        _, code = server.terminate(60)
        report.judge(code == 0, f"exit code {code}")
    finally:
        server.kill()
    report.say("PASSED" if report.good else "FAILED")
    return 0 if report.good else 1


if __name__ == "__main__":
    sys.exit(main())
