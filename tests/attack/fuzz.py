#!/usr/bin/env python3
"""Mutation fuzzing from outside: templates, bodies and model folders, for some minutes on one core.

  tests/attack/fuzz.py --minutes 20 --seed 1
  tests/attack/fuzz.py --minutes 2 --only templates --skiff build/asan/skiff --job-seconds 20

Templates and bodies go to `skiff serve models/demo --trust-request-chat-template` on loopback, one at
a time; folders through `skiff inspect`, `tokenize` and a short `predict`, under limits of time and
memory. A finding is: the server or a command ended by a signal, no answer, a status 500, a job above
2 s of CPU of one worker, a server that has grown by more than a gigabyte. Each finding is written to
--out as a file that makes it again, and the fuzzing goes on. The exit code is 1 if there were any.
The same seed gives the same cases, whatever the time."""
import argparse
import os
import pathlib
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time

from attack import TRUST
from fuzz_bodies import Bodies, always_served
from fuzz_folders import Folders
from fuzz_templates import Templates
from target import ROOT, Target

GROWTH = 1024  # MiB
ADDRESS_SPACE = 6 << 30
PATIENCE = 12


class Findings:
    def __init__(self, folder):
        self.folder, self.count, self.kinds = pathlib.Path(folder), 0, {}
        self.folder.mkdir(parents=True, exist_ok=True)

    def add(self, kind, what, data=None, source=None):
        self.count += 1
        self.kinds[kind] = self.kinds.get(kind, 0) + 1
        path = self.folder / f"{kind}-{self.count:03d}"
        if source:
            shutil.copytree(source, path, symlinks=True, dirs_exist_ok=True,
                            ignore=lambda at, names: [n for n in names if
                                                      not (pathlib.Path(at, n).is_file()
                                                           or pathlib.Path(at, n).is_symlink()
                                                           or pathlib.Path(at, n).is_dir())])
            (self.folder / f"{path.name}.txt").write_text(what + "\n")
        else:
            path.with_suffix(".http").write_bytes(data)
            path.with_suffix(".txt").write_text(what + "\n")
        print(f"FOUND {kind}: {what.splitlines()[0]} -> {path}", flush=True)


class ServerFuzz:
    """One request after the other, on one connection each, to a server that is otherwise idle."""

    def __init__(self, options, findings):
        self.options, self.findings = options, findings
        said = subprocess.run([options.skiff, "serve", "--help"], capture_output=True, text=True).stdout
        # A chat's deadline in this server, so that a case that generates ends by itself.
        self.flags = ["--workers", "1", "--request-timeout", "1.5"]
        self.flags += [flag for flag in TRUST if flag in said]
        self.target, self.statuses = None, {}
        self.start()

    def start(self):
        if self.target:
            self.target.kill()
        self.target = Target(self.options.skiff, self.flags)
        if not self.options.no_memory:
            self.target.limit(resource.RLIMIT_AS, self.target.virtual() + ADDRESS_SPACE)
        self.target.post(*always_served()[1:], 60)
        self.base = self.target.rss()

    def one(self, name, case):
        method, path, body = case
        target = self.target
        request = target.head(method, path, len(body)) + body
        before = target.cpu_by_thread()
        reply = target.raw(request, PATIENCE * self.options.slow)
        time.sleep(0 if reply.status else 1)
        if not target.alive():
            said = "".join(target.log[-30:])
            self.findings.add(f"crash-{name}", f"code {target.process.returncode}\n{said}", request)
            return self.start()
        used = target.longest_job(before)
        self.statuses[reply.status] = self.statuses.get(reply.status, 0) + 1
        if reply.status == 0:
            self.findings.add(f"silent-{name}", f"no answer after {reply.seconds:.1f} s", request)
            return self.start()
        if used > self.options.job_seconds:
            self.findings.add(f"slow-{name}", f"{used:.2f} s of a worker, status {reply.status}", request)
        if reply.status == 500:
            self.findings.add(f"error-{name}", reply.body[:500].decode(errors="replace"), request)
        if not self.options.no_memory and target.rss() > self.base + GROWTH:
            self.findings.add(f"memory-{name}", f"{target.rss():.0f} MiB, {self.base:.0f} at first",
                              request)
            self.start()

    def close(self):
        self.target.kill()


def run_command(options, findings, folder, command):
    def limits():
        if not options.no_memory:
            resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
        seconds = int(PATIENCE * options.slow)
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
    said = " ".join(map(str, command))
    try:
        done = subprocess.run([options.skiff, *map(str, command)], input=b'{"messages": []}',
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, preexec_fn=limits,
                              timeout=2 * PATIENCE * options.slow)
    except subprocess.TimeoutExpired:
        return findings.add("hang-folder", f"skiff {said}: no end", source=folder)
    if done.returncode not in (0, 1, 2):
        findings.add("crash-folder", f"skiff {said}: code {done.returncode}\n"
                     + done.stdout[-2000:].decode(errors="replace"), source=folder)
    elif done.returncode == 1 and done.stdout.strip().count(b"\n") > 60:
        findings.add("wordy-folder", f"skiff {said}: a refusal of many lines\n"
                     + done.stdout[-2000:].decode(errors="replace"), source=folder)
    return None


def fuzz(options, findings):
    work = tempfile.mkdtemp(prefix="skiff-fuzz-")
    kinds = options.only.split(",")
    makers = {"templates": Templates, "bodies": Bodies, "folders": lambda rng: Folders(rng, work)}
    makers = {kind: makers[kind](random.Random(f"{options.seed} {kind}")) for kind in kinds}
    server = ServerFuzz(options, findings) if {"templates", "bodies"} & set(kinds) else None
    counts, start = dict.fromkeys(kinds, 0), time.monotonic()
    next_line, end = start + 20, start + 60 * options.minutes
    try:
        while time.monotonic() < end:
            for kind, maker in makers.items():  # folders cost most: one for ten of the others
                for _ in range(1 if kind == "folders" else 10):
                    case = maker.case()
                    if kind == "folders":
                        for command in case[1]:
                            run_command(options, findings, case[0], command)
                    else:
                        server.one(kind, case)
                    counts[kind] += 1
            if time.monotonic() > next_line:
                next_line += 20
                print(f"{time.monotonic() - start:5.0f} s  {counts}  findings {findings.count}"
                      + (f"  statuses {server.statuses}  {server.target.rss():.0f} MiB" if server else ""),
                      flush=True)
    finally:
        if server:
            server.close()
        shutil.rmtree(work, ignore_errors=True)
    return counts


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="templates,bodies,folders")
    parser.add_argument("--skiff", default=os.environ.get("SKIFF_BIN", str(ROOT / "build/cpu/skiff")))
    parser.add_argument("--out", default="build/attack-findings")
    parser.add_argument("--core", type=int, default=0, help="the one core that is used")
    parser.add_argument("--job-seconds", type=float, default=2.0, help="most CPU of one worker's job")
    parser.add_argument("--slow", type=float, default=1.0, help="patience for builds with sanitizers")
    parser.add_argument("--no-memory", action="store_true", help="no limits of memory: sanitizers")
    options = parser.parse_args()
    os.sched_setaffinity(0, {options.core})
    findings = Findings(options.out)
    counts = fuzz(options, findings)
    print(f"{counts} cases in {options.minutes} minutes with seed {options.seed}: "
          f"{findings.count} findings {findings.kinds or ''}")
    return 1 if findings.count else 0


if __name__ == "__main__":
    sys.exit(main())
