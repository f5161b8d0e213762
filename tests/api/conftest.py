"""Real servers as fixtures, and the official client of one."""
import os
import pathlib

import pytest

from api_server import Server
from edge import ROOT, demo_model, long_demo


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
