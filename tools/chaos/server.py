"""One `skiff serve` process: how it is started, looked into and ended."""
import os
import re
import signal
import subprocess
import threading
import time
import urllib.request


class Server:
    """A server on a free port. `log` grows while it runs; `baseline` is what it holds when idle."""

    def __init__(self, skiff, model, flags, env=None, start_seconds=60):
        self.process = subprocess.Popen(
            [skiff, "serve", str(model), "--host", "127.0.0.1", "--port", "0",
             "--access-log", "off", *map(str, flags)],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
            env={**os.environ, **(env or {})})
        self.log, self.port, self.ready = [], None, threading.Event()
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()
        if not self.ready.wait(start_seconds) or self.process.poll() is not None:
            self.kill()
            raise RuntimeError("the server did not start:\n" + "".join(self.log))

    def _read(self):
        for line in self.process.stdout:
            self.log.append(line)
            if found := re.search(r"Serving .* on http://127\.0\.0\.1:(\d+)", line):
                self.port = int(found[1])
                self.ready.set()
        self.ready.set()

    @property
    def pid(self):
        return self.process.pid

    def get(self, path, timeout=30):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=timeout) as reply:
            return reply.read().decode()

    def metrics(self, *names, timeout=30):
        """Values of fastdeploy:NAME."""
        text = self.get("/metrics", timeout)
        found = [re.search(rf"^fastdeploy:{name}{{.*}} (\S+)$", text, re.M) for name in names]
        return [float(match[1]) for match in found]

    def rss(self):
        """Resident memory in MiB."""
        with open(f"/proc/{self.pid}/status") as status:
            return int(re.search(r"VmRSS:\s+(\d+)", status.read())[1]) / 1024

    def fds(self):
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def threads(self):
        return len(os.listdir(f"/proc/{self.pid}/task"))

    def signal(self, number):
        self.process.send_signal(number)

    def terminate(self, seconds):
        """SIGTERM: seconds until the end, and the exit code; None if it did not end."""
        start = time.monotonic()
        self.signal(signal.SIGTERM)
        return self.await_end(start, seconds)

    def await_end(self, start, seconds):
        try:
            code = self.process.wait(max(0.1, start + seconds - time.monotonic()))
        except subprocess.TimeoutExpired:
            code = None
        return time.monotonic() - start, code

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.reader.join(10)


def eventually(holds, seconds):
    """Whether `holds()` came true in that time."""
    end = time.monotonic() + seconds
    while not (true := holds()) and time.monotonic() < end:
        time.sleep(0.05)
    return true
