#!/usr/bin/env python3
"""Attacks a small server as hostile clients would, and reports whether it survived.

  tests/attack/run.py                        every attack, about 15 minutes
  tests/attack/run.py --only t02,t07         these, --list names them all
  tests/attack/run.py --quick                the short form, below a minute: a part of `make test`

It starts `skiff serve models/demo` on loopback, carries out each attack while an ordinary client
streams and chats and a prober asks /live and /health every 100 ms, and judges after each:

  - the server is alive and answers;
  - its resident memory is back within 10 % of what it was before;
  - every probe was answered 200, within 50 ms (plus three times what a server that does nothing took at
    about that moment; where that is 20 ms and more the machine is busy with other work, and one in twenty
    may be late, as in the short form);
  - the p99 of the others' chats, and of the longest silence in their streams, has at most doubled
    (below 100 ms it is not judged, in the short form below 300; not at all where the attack itself is honest work in the same queue);
  - what the attack itself asks for, such as: no request takes more than 2 s of a worker.

A server that crashes or hangs is replaced, and the next attack goes on. The address space of each is
limited, so that one that fails does not take the machine with it. The exit code is 1 if any failed."""
import argparse
import os
import pathlib
import resource
import shutil
import sys
import tempfile
import time

import attacks_bodies
import attacks_constraints
import attacks_http
import attacks_life
import attacks_templates
from attack import TRUST, Scene
from measure import Watch, now
from target import ROOT, Target, chat

ATTACKS = [*attacks_templates.ATTACKS, *attacks_bodies.ATTACKS, *attacks_constraints.ATTACKS,
           *attacks_http.ATTACKS, *attacks_life.ATTACKS]
MOST_LINES = 12
WINDOW = 0.6  # seconds that are looked at, at least: what an attack leaves behind counts too
BUSY_SHARE = 0.05  # the share of probes that may be late where other work keeps the machine busy
ADDRESS_SPACE = 4 << 30  # bytes beyond what an idle server has


class Arena:
    """One server after the other, and the watchers of the one that runs."""

    def __init__(self, options):
        self.options, self.target, self.watch, self.kind = options, None, None, None
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="skiff-attack-"))
        said = os.popen(f"'{options.skiff}' serve --help").read()
        self.can_trust = TRUST[0] in said

    def flags(self, attack):
        key = ["--api-key", attack.key] if attack.key else []
        return key + [flag for flag in attack.flags if flag not in TRUST or self.can_trust]

    def start(self, attack):
        self.stop()
        model = attack.model(self.folder) if attack.model else ROOT / "models/demo"
        self.target = Target(self.options.skiff, self.flags(attack), attack.env, model, attack.key)
        self.target.limit(resource.RLIMIT_AS, self.target.virtual() + ADDRESS_SPACE)
        self.kind = attack.server()
        # The heap has grown to what ordinary work needs before anything is compared with it.
        for fields in ({"n": 8, "max_tokens": 30}, {"logprobs": True, "top_logprobs": 5}, {}):
            self.target.post("/v1/chat/completions", chat("Tell me a story.", **fields), 30)
        self.target.post("/tokenize", {"prompt": "one two three " * 20000}, 30)
        # All of the KV pool is touched: what sequences leave in it is planned, and stays.
        prompts = [[10 + (37 * i + 11 * k) % 900 for k in range(1900)] for i in range(20)]
        self.target.post("/v1/completions", {"prompt": prompts, "max_tokens": 1}, 60)
        self.watch = Watch(self.target, attack.others)
        start = now()
        time.sleep(self.options.baseline)
        self.baseline = self.watch.p99(start, now())
        return self.target

    def stop(self):
        if self.watch:
            self.watch.close()
        if self.target:
            self.target.kill()
        self.target = self.watch = self.kind = None

    def attack(self, attack):
        if attack.alone:
            self.stop()
            return self.alone(attack)
        if self.kind != attack.server() or not self.target.alive():
            self.start(attack)
        target, before = self.target, self.target.rss()
        target.reset_peak()
        scene = Scene(self.options.skiff, target, self.options.seconds, self.folder,
                      self.options.quick)
        scene.revive = lambda: self.start(attack)
        start = now()
        try:
            attack.run(scene)
        except OSError as error:
            scene.wrong(f"no connection: {error}")
        time.sleep(max(0.0, start + WINDOW - now()))
        end = now()
        row = {"seconds": end - start, "before": before, "probes": "", "clients": ""}
        if self.target is target and target.alive():
            row |= self.judge(attack, scene, before, start, end)
        elif not attack.ends:
            scene.wrong("the server was replaced")
        if attack.ends or row.get("after", before) > 1.1 * before:
            self.stop()  # the next attack is compared with a server that has not been attacked
        return scene, row

    def judge(self, attack, scene, before, start, end):
        target = self.target
        peak = target.peak()
        probes, p99 = self.watch.probes(start, end), self.watch.p99(start, end)
        after = self.settled(target, before)
        if attack.ends:
            return {"peak": peak, "after": after, "probes": probes.line()}
        scene.expect(after <= 1.1 * before, f"{after:.0f} MiB stay resident, {before:.0f} before")
        if attack.peak:
            scene.expect(peak - before <= attack.peak,
                         f"{peak:.0f} MiB resident meanwhile, at most {before + attack.peak:.0f}")
        scene.expect(probes.bad == 0, f"{probes.bad} of {len(probes.ms)} probes not answered 200")
        allowed = BUSY_SHARE if self.options.quick or probes.is_machine_busy() else 0.0
        scene.expect(probes.late <= allowed * len(probes.ms),
                     f"{probes.late} of {len(probes.ms)} probes late")
        if attack.judge_clients:
            for kind, limit in self.baseline.items():
                if p99[kind] > max(2 * limit, self.options.floor):
                    scene.wrong(f"p99 of others' {kind}s {p99[kind]:.0f} ms, {limit:.0f} before")
                elif p99[kind] != p99[kind] and end - start > 3:
                    scene.wrong(f"none of the others' {kind}s was answered")
        good = target.post("/v1/chat/completions", chat(), 20)
        scene.expect(good.status == 200, f"a chat afterwards: {good.status or 'no answer'}")
        return {"peak": peak, "after": after, "probes": probes.line(), "clients": " ".join(
            f"{kind} {self.baseline[kind]:.0f}>{p99[kind]:.0f}" for kind in p99)}

    def settled(self, target, before):
        """Resident MiB, once it is back or has had its time."""
        until = now() + self.options.settle
        while target.rss() > 1.1 * before and now() < until:
            time.sleep(0.2)
        return target.rss()

    def alone(self, attack):
        scene = Scene(self.options.skiff, None, self.options.seconds, self.folder, self.options.quick)
        start = now()
        try:
            attack.run(scene)
        except (OSError, RuntimeError) as error:
            scene.wrong(f"{error}")
        return scene, {"seconds": now() - start, "probes": "", "clients": ""}

    def close(self):
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)


def line(attack, scene, row):
    memory = "/".join(f"{row[key]:.0f}" for key in ("before", "peak", "after") if key in row)
    verdict = "held" if not scene.problems else "FAILED"
    return (f"{attack.name:5} {attack.what:34} {verdict:7} {row['seconds']:5.1f} s  "
            f"MiB {memory or '-':15} probes {row['probes'] or '-':26} {row['clients']}")


def parsed():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--skiff", default=os.environ.get("SKIFF_BIN", str(ROOT / "build/cpu/skiff")))
    parser.add_argument("--only", help="names of attacks, with commas between them")
    parser.add_argument("--quick", action="store_true", help="the short form")
    parser.add_argument("--seconds", type=float, help="most seconds of one attack (40; quick: 8)")
    parser.add_argument("--list", action="store_true", help="names the attacks and ends")
    options = parser.parse_args()
    options.seconds = options.seconds or (8 if options.quick else 40)
    options.baseline = 1 if options.quick else 4
    options.settle = 6 if options.quick else 15
    # Below `floor` milliseconds a p99 that has doubled says nothing: where others use the cores too, one
    # late turn of the operating system's scheduler is as long. The short form runs beside other tests.
    options.floor = 300 if options.quick else 100
    return options


def main():
    options = parsed()
    names = options.only.split(",") if options.only else None
    known = {attack.name for attack in ATTACKS}
    if names and not known.issuperset(names):
        sys.exit(f"no attack is named {', '.join(sorted(set(names) - known))}; see --list")
    chosen = [attack for attack in ATTACKS
              if (attack.name in names if names else attack.quick or not options.quick)]
    if options.list:
        for attack in chosen:
            print(f"{attack.name:5} {attack.what}{'  (quick)' if attack.quick else ''}")
        return 0
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, resource.getrlimit(
        resource.RLIMIT_NOFILE)[1]),) + resource.getrlimit(resource.RLIMIT_NOFILE)[1:])
    # Attacks on one kind of server follow each other, so that few servers have to start.
    order = {attack.server(): i for i, attack in reversed(list(enumerate(chosen)))}
    chosen.sort(key=lambda attack: (attack.ends, attack.alone, order[attack.server()]))
    arena, failed = Arena(options), []
    print(f"{len(chosen)} attacks on {options.skiff}; the table says: MiB resident before/peak/after, "
          "probes p50/p99/max ms, p99 of others before>meanwhile", flush=True)
    if not arena.can_trust:
        print(f"this skiff has no {TRUST[0]}: its servers run without it", flush=True)
    try:
        for attack in chosen:
            scene, row = arena.attack(attack)
            print(line(attack, scene, row), flush=True)
            for note in scene.notes:
                print(f"      {note}", flush=True)
            for problem in scene.problems[:MOST_LINES]:
                print(f"      FAILED: {problem[:200]}", flush=True)
            if len(scene.problems) > MOST_LINES:
                print(f"      and {len(scene.problems) - MOST_LINES} more", flush=True)
            failed += [attack.name] if scene.problems else []
    finally:
        arena.close()
    print(f"{len(chosen) - len(failed)} of {len(chosen)} held"
          + (f"; failed: {' '.join(failed)}" if failed else ""))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
