"""The real server as a fixture, and the official client against it."""
import json
import os
import pathlib
import signal
import time
import urllib.request

import openai
import pytest

from edge import ROOT, Edge, demo_model, long_demo, metric_of


class Server(Edge):
    """A `skiff serve` process on a free port, and the official client of it."""

    def client(self, **options):
        return openai.OpenAI(base_url=self.url + "/v1", api_key="none", max_retries=0,
                             timeout=60, **options)

    def get(self, path):
        with urllib.request.urlopen(self.url + path, timeout=10) as response:
            return response.read().decode()

    def metric(self, name):
        return metric_of(self.get("/metrics"), name)

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

    def terminate(self, seconds=60):
        """SIGTERM, and the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(seconds)


@pytest.fixture(scope="session")
def server():
    running = Server(demo_model(), "--enable-logprob", "--trust-request-chat-template",
                     "--scheduling-policy", "priority")
    yield running
    running.close()


@pytest.fixture(scope="session")
def long_server():
    """The demo model with room for answers that outlast any test."""
    running = Server(long_demo(), "--served-model-name", "demo")
    yield running
    running.close()


@pytest.fixture(scope="session")
def narrow_server():
    """One that takes a single request at a time, which may outlast any test."""
    running = Server(long_demo(), "--served-model-name", "demo", "--max-concurrency", "1")
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
    """One that a test may stop, with room for answers that outlast any test."""
    running = Server(long_demo(), "--served-model-name", "demo")
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
