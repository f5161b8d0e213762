"""Starts the watchers of watch.py and judges what they saw."""
import json
import os
import pathlib
import subprocess
import sys
import threading
import time

WATCH = pathlib.Path(__file__).with_name("watch.py")
PROBE_LIMIT = 50.0  # milliseconds
UNENDED = 5.0  # seconds that a request of the ordinary client is waited for


def percentile(values, part):
    values = sorted(values)
    return values[min(len(values) - 1, int(part * len(values)))] if values else float("nan")


class Watcher:
    """A watch.py process, and all that it has said."""

    def __init__(self, *args, key=None):
        env = {**os.environ, **({"ATTACK_KEY": key} if key else {})}
        self.process = subprocess.Popen([sys.executable, str(WATCH), *map(str, args)], env=env,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.seen = []
        self.reader = None

    def read_on(self):
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()
        return self

    def _read(self):
        for line in self.process.stdout:
            self.seen.append(json.loads(line))

    def between(self, start, end):
        return [one for one in list(self.seen) if start <= one["at"] <= end]

    def past(self, end, seconds):
        """Waits until something that began after `end` is known; false where that takes longer."""
        deadline = time.monotonic() + seconds
        while not (self.seen and self.seen[-1]["at"] > end):
            if time.monotonic() > deadline:
                return False
            time.sleep(0.02)
        return True

    def close(self):
        self.process.stdin.close()
        try:
            self.process.wait(2)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class Watch:
    """The prober and the ordinary client of one server."""

    def __init__(self, target, others=True):
        self.trivial = Watcher("trivial")
        port = int(self.trivial.process.stdout.readline())
        self.probe = Watcher("probe", target.port, port).read_on()
        self.client = Watcher("client", target.port, key=target.key).read_on() if others else None

    def close(self):
        for watcher in (self.client, self.probe, self.trivial):
            if watcher:
                watcher.close()

    def probes(self, start, end):
        return Probes(self.probe.between(start, end))

    def p99(self, start, end):
        """p99 in milliseconds of what began between: of a short chat, and of the longest silence of a
        stream. A request without an end counts as long as it was waited for."""
        ended = self.client is None or self.client.past(end, UNENDED)
        seen = self.client.between(start, end) if self.client else []
        if not ended:
            seen += [{"kind": kind, "status": 200, "ms": 1e3 * UNENDED} for kind in ("chat", "gap")]
        good = [one for one in seen if one["status"] == 200]
        return {kind: percentile([one["ms"] for one in good if one["kind"] == kind], 0.99)
                for kind in ("chat", "gap")}


class Probes:
    """Answers of /live and /health. `noise` is what a server that does nothing took at about the same
    time: how late the operating system lets any process of this machine be."""

    def __init__(self, seen):
        self.ms = [one["ms"] for one in seen]
        self.noise = [one["noise"] for one in seen]
        self.bad = sum(one["status"] != 200 for one in seen)
        self.over = sum(ms > PROBE_LIMIT for ms in self.ms)
        self.late = sum(one["ms"] > PROBE_LIMIT + self._noise_near(seen, i)
                        for i, one in enumerate(seen))

    @staticmethod
    def _noise_near(seen, i):
        """Three times the worst of the trivial server within five probes: it is one thread, the server
        under attack needs a turn of its accepting thread and one of the connection's."""
        return 3 * max(one["noise"] for one in seen[max(0, i - 5):i + 6])

    def is_machine_busy(self):
        return bool(self.noise) and percentile(self.noise, 0.9) >= 20

    def line(self):
        if not self.ms:
            return "no probes"
        p50, p99 = percentile(self.ms, 0.5), percentile(self.ms, 0.99)
        return (f"{p50:.0f}/{p99:.0f}/{max(self.ms):.0f} noise {percentile(self.noise, 0.99):.0f}")


def now():
    return time.monotonic()
