#!/usr/bin/env python3
"""Chaos: everything goes wrong at once around a small server, and nothing may be lost.

    tools/chaos/run.py [--minutes 10] [--seed 1] [--skiff build/cpu/skiff] [--model models/demo]

The server has a small pool, host memory and a file for its cache, and small limits. Before anything
goes wrong, it answers each request alone, with the cache off: those are the right tokens. Then
clients that behave and clients that do not (killed, slow, silent, half open, malformed, garbage,
thousands of connects) share it, while bits of the cache's file flip, records swap places, the file is
cut, the disk fills and has room again, the process stands still and the time of day jumps.

Checked: every greedy answer that ends is right, token by token; everybody else gets an error of the
right kind; nobody hangs; at rest all blocks are free, nothing runs or waits, descriptors and threads
are as many as at the start, memory has not grown; SIGTERM lets streams finish within the limit and
the process exits with 0; after that, and after a kill in the middle of work, the next server uses the
same folder and answers right.

Exit code 0 if all held. Needs nothing but Python; a tmpfs is mounted where that is allowed.
"""
import argparse
import asyncio
import pathlib
import random
import signal
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import clients  # noqa: E402
import faults  # noqa: E402
import texts  # noqa: E402
from server import Server, eventually  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
CONTEXT, DRAIN, DISK = 512, 30, 10 << 20
# Growth of resident memory from the end of the first fifth to rest. Measured: below 2 MiB; a leaked
# kilobyte for each connection would be above it within a minute.
RSS_GROWTH = 12  # MiB


def engine_flags(disk, kept_drain):
    return ["--max-model-len", CONTEXT, "--max-num-seqs", 6, "--max-num-batched-tokens", 96,
            "--block-size", 16, "--num-gpu-blocks-override", 44, "--swap-space", 0.002,
            "--kvcache-storage-backend", "file", "--kvcache-storage-path", disk.folder,
            "--kvcache-storage-size", 0.008, "--max-concurrency", 16, "--header-timeout", 2,
            "--body-timeout", 4, "--timeout-keep-alive", 2, "--max-connections", 300,
            "--timeout-graceful-shutdown", kept_drain, "--scheduling-policy", "priority",
            "--priority-ageing", clients.AGEING, "--threads", 2]


class Chaos:
    def __init__(self, args, folder, disk):
        self.args, self.rng = args, random.Random(args.seed)
        self.slow = args.patience
        # In less than a minute, or under a sanitizer, chance decides whether all of it happens.
        self.short = args.minutes < 1 or not args.memory
        self.disk = disk
        self.env = faults.clock_shim(folder) if args.clock else {}
        self.wrong = []
        self.bodies = texts.make_requests(args.seed, args.requests, CONTEXT)
        self.long = texts.long_requests(args.seed, 8, CONTEXT)
        self.answers, self.long_answers = [], []

    def start(self, *more, env=None):
        flags = engine_flags(self.disk, int(DRAIN * self.slow)) if not more else more
        return Server(self.args.skiff, self.args.model, flags, env=env,
                      start_seconds=60 * self.slow)

    def check(self, holds, what):
        print(f"  {'ok  ' if holds else 'FAIL'} {what}", flush=True)
        if not holds:
            self.wrong.append(what)

    def learn_answers(self):
        server = self.start("--max-num-seqs", 1, "--max-model-len", CONTEXT,
                            "--no-enable-prefix-caching")
        try:
            self.answers = texts.answers_alone(server.port, self.bodies, 60 * self.slow)
            self.long_answers = texts.answers_alone(server.port, self.long, 60 * self.slow)
        finally:
            server.kill()
        print(f"{len(self.bodies)} requests answered alone", flush=True)

    def world(self, server):
        return clients.World(server.port, self.bodies, self.answers, self.rng, self.slow)

    def storm(self, server):
        """Clients and faults for the whole time; then rest."""
        world, samples = self.world(server), []

        async def watch(begin, end):
            loop = asyncio.get_running_loop()
            while loop.time() < end:
                samples.append(((loop.time() - begin) / (end - begin), server.rss()))
                await asyncio.sleep(min(1.0, (end - begin) / 30))

        async def all_of_it():
            begin = asyncio.get_running_loop().time()
            until = begin + self.args.minutes * 60
            await asyncio.gather(
                watch(begin, until),
                faults.trouble(server, self.disk, self.rng, world.counts, until, self.slow),
                *(clients.play(world, until) for _ in range(self.args.clients)))

        asyncio.run(all_of_it())
        for name in sorted(world.counts):
            print(f"  {world.counts[name]:8} {name}")
        right = world.counts["client: 200"] + world.counts["slow reader: 200"]
        self.check(not world.wrong, f"{right} greedy answers are those given alone; nobody hung, "
                   "every refusal was of the right kind")
        print("       the longest request took, by priority: " + ", ".join(
            f"{priority}: {seconds:.1f} s" for priority, seconds in sorted(world.longest.items())))
        for complaint in world.wrong[:10]:
            print("       " + complaint)
        self.check(right > self.args.minutes * 20, "enough answers were compared")
        return samples

    def rest(self, server, baseline, samples):
        """Everything that was taken has been given back."""
        names = ("num_requests_running", "num_requests_waiting", "available_gpu_block_num",
                 "max_gpu_block_num")
        still = lambda: (m := server.metrics(*names)) and m[0] == m[1] == 0 and m[2] == m[3]
        self.check(eventually(still, 20 * self.slow),
                   "at rest nothing runs or waits, all blocks are free: "
                   "running {:.0f}, waiting {:.0f}, free {:.0f} of {:.0f}".format(
                       *server.metrics(*names)))
        fds, threads = baseline
        self.check(eventually(lambda: server.fds() <= fds, 20 * self.slow),
                   f"descriptors {fds} at the start, {server.fds()} now")
        self.check(server.threads() <= threads,
                   f"threads {threads} at the start, {server.threads()} now")
        early = max(rss for when, rss in samples if when <= 0.2)
        late, now = max(rss for when, rss in samples if when >= 0.8), server.rss()
        text = (f"resident memory at most {early:.1f} MiB in the first fifth of the time, "
                f"{late:.1f} in the last, {now:.1f} at rest; bound {RSS_GROWTH} more")
        if self.args.memory:
            self.check(max(late, now) <= early + RSS_GROWTH, text)
        else:
            print("       " + text + " (not judged: a sanitizer keeps what is freed)")
        failures, skipped, host, file, preempted = server.metrics(
            "prefix_cache_tier_failures_total", "prefix_cache_tier_skipped_total",
            "prefix_cpu_cache_token_num", "prefix_ssd_cache_token_num", "num_preemptions_total")
        print(f"       tokens from host memory {host:.0f}, from the file {file:.0f}; failures of "
              f"the file {failures:.0f}, skipped {skipped:.0f}; preemptions {preempted:.0f}")
        if self.short:
            self.check(host + file > 0, "tiers were used")
        else:
            self.check(host > 0 and file > 0 and failures > 0 and preempted > 0,
                       "tiers were used, failed, and sequences were preempted")

    def streams(self, server, act, draining):
        """Streams run, then something happens to the process. Returns what act() returned."""
        world = self.world(server)

        async def both():
            loop = asyncio.get_running_loop()
            runs = [asyncio.create_task(clients.play(world, loop.time() + 4))
                    for _ in range(self.args.clients // 2)]
            await asyncio.sleep(1.0 * self.slow)
            world.draining = draining
            result = await loop.run_in_executor(None, act)
            await asyncio.gather(*runs)
            return result

        result = asyncio.run(both())
        return result, world

    def end_politely(self, server):
        """SIGTERM once all of some long streams have begun."""
        limit = DRAIN * self.slow
        world = clients.World(server.port, self.long, self.long_answers, self.rng, self.slow)
        world.draining = True

        async def ending():
            begun = []
            runs = [asyncio.create_task(clients.long_stream(world, i, begun))
                    for i in range(len(self.long))]
            while len(begun) < min(6, len(runs)):
                await asyncio.sleep(0.001)
            loop = asyncio.get_running_loop()
            end = await loop.run_in_executor(
                None, lambda: server.terminate(limit + 20 * self.slow))
            return end, sum(await asyncio.gather(*runs))

        (seconds, code), whole = asyncio.run(ending())
        server.kill()
        self.check(code == 0, f"SIGTERM while {len(self.long)} streams run: exit code {code}")
        self.check(seconds <= limit, f"drained in {seconds:.2f} s of {limit:.0f}")
        self.check(whole == len(self.long), f"{whole} of {len(self.long)} streams came to their end")
        self.check(not world.wrong, f"no wrong token while draining {world.wrong[:3]}")
        self.check_log(server)

    def end_brutally(self, server):
        def kill():
            server.signal(signal.SIGKILL)
            return server.await_end(time.monotonic(), 20)

        _, world = self.streams(server, kill, draining=True)
        server.kill()
        self.check(not world.wrong, f"no wrong token before a kill {world.wrong[:3]}")

    def check_log(self, server):
        bad = [line for line in server.log if "internal error" in line or "Sanitizer" in line]
        self.check(not bad, f"nothing in the log that means a bug {''.join(bad[:5])}")
        if bad:
            print("".join(server.log[-80:]))
        full = sum("cannot be written to" in line for line in server.log)
        self.check(full <= 1, f"{full} warnings of a full disk")

    def answers_again(self, server, what):
        got = texts.answers_alone(server.port, self.bodies, 60 * self.slow)
        wrong = sum(a != b for a, b in zip(got, self.answers))
        file, = server.metrics("prefix_ssd_cache_token_num")
        self.check(wrong == 0, f"{what}: {wrong} of {len(got)} answers are wrong; {file:.0f} tokens "
                   "came from the file")
        return file

    def run(self):
        self.learn_answers()
        server = self.start(env=self.env)
        self.streams(server, lambda: time.sleep(1), draining=False)  # all that is made once, is
        still = lambda: server.metrics("num_requests_running", "num_requests_waiting") == [0, 0]
        eventually(still, 20 * self.slow)
        time.sleep(3)  # connections kept alive end
        baseline = server.fds(), server.threads()
        print(f"chaos for {self.args.minutes * 60:.0f} s, {self.args.clients} clients, seed "
              f"{self.args.seed}, {'tmpfs' if self.disk.mounted else 'bound on file sizes'}, clock "
              f"{'jumps' if self.env else 'as it is'}", flush=True)
        self.rest(server, baseline, self.storm(server))
        self.end_politely(server)

        server = self.start()
        file = self.answers_again(server, "restarted on the same folder")
        server.terminate(60 * self.slow)
        faults.flip_bits(self.disk.file, self.rng)
        faults.copy_around(self.disk.file, self.rng)
        server = self.start()
        file = max(file, self.answers_again(server, "once more, with a damaged file"))
        self.check(file > 0, "the file was of use after a restart")
        self.end_brutally(server)
        server = self.start()
        self.answers_again(server, "restarted after a kill")
        seconds, code = server.terminate(60 * self.slow)
        self.check(code == 0, f"idle: exit code {code} after {seconds:.1f} s")
        self.check_log(server)
        return not self.wrong


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--clients", type=int, default=24, help="at a time")
    parser.add_argument("--requests", type=int, default=80, help="different ones")
    parser.add_argument("--skiff", default=str(ROOT / "build/cpu/skiff"))
    parser.add_argument("--model", default=str(ROOT / "models/demo"))
    parser.add_argument("--patience", type=float, default=1,
                        help="times all bounds on time; 5 or more for sanitizers")
    parser.add_argument("--no-clock", dest="clock", action="store_false",
                        help="no jumps of the clock (sanitizers want to be loaded first)")
    parser.add_argument("--no-mount", dest="mount", action="store_false",
                        help="no tmpfs: a full disk is a bound on the size of files")
    parser.add_argument("--no-memory", dest="memory", action="store_false",
                        help="do not judge resident memory (sanitizers keep what is freed)")
    args = parser.parse_args(argv)
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="skiff_chaos_") as folder:
        disk = faults.Disk(folder, DISK, args.mount)
        try:
            good = Chaos(args, folder, disk).run()
        finally:
            disk.close()
    print(f"{'PASSED' if good else 'FAILED'} in {time.monotonic() - begin:.0f} s")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
