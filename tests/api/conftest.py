"""The real server as a fixture, and the official client against it."""
import json
import os
import pathlib
import re
import signal
import subprocess
import threading
import time
import urllib.request

import openai
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
START_SECONDS = 120


class Server:
    """A `skiff serve` process on a free port. `log` grows while it runs."""

    def __init__(self, model, *flags):
        binary = os.environ.get("SKIFF_BIN", str(ROOT / "build/cpu/skiff"))
        self.process = subprocess.Popen(
            [binary, "serve", str(model), "--host", "127.0.0.1", "--port", "0", *flags],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.log = []
        self.port = None
        self.ready = threading.Event()
        threading.Thread(target=self._read, daemon=True).start()
        if not self.ready.wait(START_SECONDS) or self.port is None:
            self.process.kill()
            raise AssertionError("the server did not start:\n" + "".join(self.log))

    def _read(self):
        for line in self.process.stdout:
            self.log.append(line)
            found = re.search(r"http://127\.0\.0\.1:(\d+)", line)
            if found and self.port is None:
                self.port = int(found.group(1))
                self.ready.set()
        self.ready.set()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def client(self, **options):
        return openai.OpenAI(base_url=self.url + "/v1", api_key="none", max_retries=0,
                             timeout=60, **options)

    def get(self, path):
        with urllib.request.urlopen(self.url + path, timeout=10) as response:
            return response.read().decode()

    def metric(self, name):
        """The sum over labels of a metric, 0 if it is not there yet."""
        lines = [line for line in self.get("/metrics").splitlines()
                 if re.match(re.escape(name) + r"[{ ]", line)]
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines)

    def load(self):
        """Sequences that run or wait."""
        return json.loads(self.get("/load"))["server_load"]

    def seconds_until(self, holds, seconds=10):
        """How long it took until `holds()`; None if it never did. Asks every millisecond."""
        start = time.monotonic()
        while time.monotonic() < start + seconds:
            if holds():
                return time.monotonic() - start
            time.sleep(0.001)
        return None

    def eventually(self, holds, seconds=10):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if holds():
                return True
            time.sleep(0.05)
        return False

    def terminate(self, seconds=60):
        """SIGTERM, and the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(seconds)

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


def demo_model():
    model = ROOT / "models/demo"
    if not (model / "model.safetensors").exists():
        pytest.skip("models/demo is not there")
    return model


@pytest.fixture(scope="session")
def server():
    running = Server(demo_model(), "--enable-logprob", "--trust-request-chat-template",
                     "--scheduling-policy", "priority")
    yield running
    running.close()


@pytest.fixture(scope="session")
def narrow_server():
    """One that takes a single request at a time."""
    running = Server(demo_model(), "--max-concurrency", "1")
    yield running
    running.close()


@pytest.fixture
def start_server():
    """Starts servers with any flags, of the demo model if none is named, and ends them."""
    started = []

    def start(*flags, model=None):
        started.append(Server(str(model or demo_model()), *flags))
        return started[-1]

    yield start
    for running in started:
        running.close()


@pytest.fixture
def own_server():
    """One that a test may stop."""
    running = Server(demo_model())
    yield running
    running.close()


@pytest.fixture(scope="session")
def client(server):
    return server.client()


@pytest.fixture(scope="session")
def stories():
    """The stories260K model's folder and its server."""
    shared = pathlib.Path(os.environ.get("SKIFF_SHARED_DIR", ROOT.parent / "shared"))
    folder = shared / "data/models/stories260K-hf"
    if not folder.is_dir():
        pytest.skip(f"no reference data at {folder}")
    running = Server(folder, "--enable-logprob")
    yield folder, running
    running.close()
