"""What an attack is, and the scene it is carried out in."""
import concurrent.futures
import dataclasses
import subprocess
import time
from typing import Callable

TRUST = ("--trust-request-chat-template",)
JOB_LIMIT = 2.0  # CPU seconds of one worker, at most


@dataclasses.dataclass(frozen=True)
class Attack:
    name: str
    what: str
    run: Callable  # takes a Scene
    flags: tuple = ()
    env: dict = dataclasses.field(default_factory=dict)
    key: str | None = None
    model: Callable | None = None  # takes a folder to write in, returns the model's folder
    peak: int | None = None  # MiB that resident memory may grow by meanwhile
    ends: bool = False  # the attack ends its server, or leaves it changed
    alone: bool = False  # the attack starts what it needs itself: no server, nothing to measure
    judge_clients: bool = True  # no: what is asked for is honest work, or its clients are trusted
    others: bool = True  # no: nobody else works meanwhile, only the prober asks
    quick: bool = False  # part of the short form

    def server(self):
        """Attacks of which this is equal can share a server."""
        return (self.flags, tuple(sorted(self.env.items())), self.key, self.model, self.others)


class Scene:
    """One attack under way: its server, its time and what went wrong."""

    def __init__(self, skiff, target, seconds, folder, quick):
        self.skiff, self.target, self.folder, self.quick = skiff, target, folder, quick
        self.seconds, self.started = seconds, time.monotonic()
        self.end = self.started + seconds
        self.problems, self.notes = [], []
        self.revive = None  # starts the server anew and returns it

    def wrong(self, text):
        if text not in self.problems:
            self.problems.append(text)

    def note(self, text):
        self.notes.append(text)

    def left(self):
        return max(0.0, self.end - time.monotonic())

    def count(self, full, quick):
        return quick if self.quick else full

    def expect(self, holds, text):
        if not holds:
            self.wrong(text)

    def stand_up(self):
        """A new server if this one is gone; True if it was."""
        if self.target.alive():
            return False
        self.wrong(self.target.last_words())
        self.target = self.revive()
        return True

    def job(self, name, path, body, seconds=6, statuses=(200, 400)):
        """One request that must be answered, within JOB_LIMIT of one worker's time."""
        before = self.target.cpu_by_thread()
        reply = self.target.post(path, body, seconds)
        if self.stand_up():
            return self.wrong(f"{name}: crash")
        used = self.target.longest_job(before)
        if reply.status == 0:
            self.wrong(f"{name}: no answer after {reply.seconds:.1f} s")
            self.unhang()
        elif reply.status not in statuses:
            self.wrong(f"{name}: status {reply.status}")
        elif used > JOB_LIMIT:
            self.wrong(f"{name}: {used:.1f} s of a worker")
        return reply

    def unhang(self):
        """A server whose workers still work for clients that left is replaced."""
        time.sleep(1)
        before = self.target.cpu_by_thread()
        time.sleep(1)
        if self.target.longest_job(before) > 0.5:
            self.wrong("still works for clients that have left")
            self.target.kill()
            self.target = self.revive()

    def together(self, work, count, workers=64):
        """`work(i)` for each i below count, on threads; their results, None where one failed."""
        def safe(i):
            if not self.left():
                return None
            try:
                return work(i)
            except OSError:
                return None
        with concurrent.futures.ThreadPoolExecutor(min(workers, max(1, count))) as pool:
            return list(pool.map(safe, range(count)))

    def command(self, *args, seconds=10, env=None, **options):
        """(exit code or None if it had to be killed, output) of a `skiff` command."""
        try:
            done = subprocess.run([self.skiff, *map(str, args)], stdout=subprocess.PIPE,
                                  stdin=subprocess.DEVNULL, stderr=subprocess.STDOUT, text=True,
                                  errors="replace", timeout=seconds, env=env, **options)
            return done.returncode, done.stdout
        except subprocess.TimeoutExpired:
            return None, ""
