"""The server under attack: one `skiff serve` process, what it uses, and bytes sent to it by hand."""
import json
import os
import pathlib
import re
import resource
import socket
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools/chaos"))
from server import Server  # noqa: E402

MODEL = ROOT / "models/demo"
FLAGS = ["--threads", "1", "--num-gpu-blocks-override", "600"]
TICKS = os.sysconf("SC_CLK_TCK")
# Threads that serve all requests at once; every other thread works on one request at a time.
SHARED_THREADS = {"engine", "output", "watchdog"}


class Reply:
    def __init__(self, status, head, body, seconds):
        self.status, self.head, self.body, self.seconds = status, head, body, seconds

    def json(self):
        return json.loads(self.body)


class Target(Server):
    """A server with the flags of the attack, and its key if it has one."""

    def __init__(self, skiff, flags=(), env=None, model=MODEL, key=None):
        super().__init__(skiff, model, [*FLAGS, *flags], env)
        self.key, self.computing = key, set()
        self.computing = self.who_computes()

    def who_computes(self):
        """The unnamed threads that work for all requests: what computes while tokens are generated."""
        before = self.cpu_by_thread()
        self.post("/v1/completions", {"prompt": "a", "max_tokens": 400, "ignore_eos": True}, 30)
        return {thread for thread, used in self.cpu_by_thread().items()
                if used - before.get(thread, 0.0) > 0.1}

    def alive(self):
        """A process that has crashed loses its memory some time before its parent hears of it."""
        try:
            self.rss()
        except (OSError, TypeError):
            self.process.wait(10)
        return self.process.poll() is None

    def last_words(self):
        """The exit code, and the last lines that say more than where the server listens."""
        self.reader.join(2)
        said = [line.strip() for line in self.log[-4:] if not line.startswith("curl") and line.strip()]
        return f"the server ended, code {self.process.returncode}: {' | '.join(said)[-160:]}"

    def limit(self, what, value):
        """The soft limit, so that it can be lifted again."""
        resource.prlimit(self.pid, what, (value, resource.prlimit(self.pid, what)[1]))

    def virtual(self):
        """Address space in bytes."""
        with open(f"/proc/{self.pid}/statm") as statm:
            return int(statm.read().split()[0]) * resource.getpagesize()

    def writable(self):
        """Bytes of private writable memory: what RLIMIT_DATA bounds, arenas that are reserved left out."""
        with open(f"/proc/{self.pid}/status") as status:
            return int(re.search(r"VmData:\s+(\d+)", status.read())[1]) << 10

    def peak(self):
        """The most that was resident since reset_peak(), in MiB."""
        with open(f"/proc/{self.pid}/status") as status:
            return int(re.search(r"VmHWM:\s+(\d+)", status.read())[1]) / 1024

    def reset_peak(self):
        try:
            with open(f"/proc/{self.pid}/clear_refs", "w") as clear:
                clear.write("5")
        except OSError:
            pass  # then the peak is that of the whole life

    def cpu_by_thread(self):
        """CPU seconds of each thread that works on one request at a time."""
        out = {}
        for task in pathlib.Path(f"/proc/{self.pid}/task").iterdir():
            try:
                name, fields = (task / "stat").read_text().rsplit(")", 1)
            except OSError:
                continue  # it has just ended
            if name.split("(", 1)[1] not in SHARED_THREADS and task.name not in self.computing:
                user, system = fields.split()[11:13]
                out[task.name] = (int(user) + int(system)) / TICKS
        return out

    def longest_job(self, before):
        """The most CPU seconds that one such thread has used since `before`."""
        if not self.alive():
            return 0.0
        now = self.cpu_by_thread()
        return max((used - before.get(thread, 0.0) for thread, used in now.items()), default=0.0)

    def connect(self, seconds=10, window=None):
        plain = socket.socket()
        plain.settimeout(seconds)
        if window:
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, window)
        plain.connect(("127.0.0.1", self.port))
        return plain

    def head(self, method, path, length=None, headers=None):
        lines = [f"{method} {path} HTTP/1.1"]
        headers = {"Host": "localhost", "Connection": "close", **(headers or {})}
        if self.key and "Authorization" not in headers:
            headers["Authorization"] = f"Bearer {self.key}"
        if length is not None:
            headers = {"Content-Type": "application/json", "Content-Length": length, **headers}
        lines += [f"{name}: {value}" for name, value in headers.items() if value is not None]
        return "\r\n".join(lines).encode() + b"\r\n\r\n"

    def raw(self, data, seconds=10):
        """What comes back until the server closes or `seconds` are over; status 0: nothing did."""
        start = time.monotonic()
        got = b""
        try:
            with self.connect(seconds) as plain:
                try:
                    plain.sendall(data)
                except OSError:
                    pass  # it was refused early; the answer may still be there
                while time.monotonic() < start + seconds:
                    plain.settimeout(max(0.01, start + seconds - time.monotonic()))
                    more = plain.recv(1 << 20)
                    if not more:
                        break
                    got += more
        except OSError:
            pass
        head, _, body = got.partition(b"\r\n\r\n")
        words = head.split(b" ", 2)
        status = int(words[1]) if len(words) > 1 and words[1].isdigit() else 0
        return Reply(status, head.decode("latin-1"), unchunked(head, body),
                     time.monotonic() - start)

    def post_bytes(self, path, body, headers=None):
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self.head("POST", path, len(data), headers) + data

    def post(self, path, body, seconds=10, headers=None):
        return self.raw(self.post_bytes(path, body, headers), seconds)

    def fetch(self, path, seconds=10, headers=None):
        return self.raw(self.head("GET", path, headers=headers), seconds)


def unchunked(head, body):
    if b"transfer-encoding: chunked" not in head.lower():
        return body
    out = []
    while body:
        size, _, rest = body.partition(b"\r\n")
        try:
            count = int(size, 16)
        except ValueError:
            break
        out.append(rest[:count])
        body = rest[count + 2:]
    return b"".join(out)


def user(text):
    return [{"role": "user", "content": text}]


def chat(text="Hi", **fields):
    return {"messages": user(text), "max_tokens": 8, "temperature": 0, **fields}
