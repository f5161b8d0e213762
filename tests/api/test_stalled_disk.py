"""A disk that stops answering under the cache's file: the server computes what it cannot read, and
ends when it is told to. A preloaded library (stalled_disk.c) is the disk."""
import json
import pathlib
import shutil
import signal
import subprocess
import time

import pytest

from edge import Edge, demo_model

SOURCE = pathlib.Path(__file__).with_name("stalled_disk.c")
PROMPT = "The quick brown fox jumps over the lazy dog, and then it does so again. " * 8
ASK = {"model": "default", "prompt": PROMPT, "max_tokens": 8, "temperature": 0}


@pytest.fixture(scope="module")
def disk(tmp_path_factory):
    if shutil.which("gcc") is None:
        pytest.skip("gcc is not there")
    library = tmp_path_factory.mktemp("disk") / "stalled_disk.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, SOURCE, "-ldl"], check=True)
    return library


def serve(folder, disk, stall, watchdog=8):
    return Edge(demo_model(), "--device", "cpu", "--kvcache-storage-backend", "file",
                "--kvcache-storage-path", folder, "--kvcache-storage-size", "0.1",
                "--watchdog-timeout", watchdog, "--timeout-graceful-shutdown", "3",
                env={"LD_PRELOAD": str(disk), "STALL": stall})


def ask(server, body):
    reply = server.request("POST", "/v1/completions", {"Content-Type": "application/json"}, body)
    assert reply.status == 200
    return json.loads(reply.body)["choices"][0]["text"]


def stop(server):
    """Seconds from SIGTERM to the end."""
    begin = time.monotonic()
    server.process.send_signal(signal.SIGTERM)
    server.process.wait(30)
    return time.monotonic() - begin


def test_a_stalled_write_does_not_outlive_sigterm(tmp_path, disk):
    server = serve(tmp_path / "kv", disk, "write")
    try:
        ask(server, ASK)
        assert stop(server) < 15
        assert server.process.returncode == 0
    finally:
        server.close()


def test_a_block_on_a_stalled_disk_is_computed(tmp_path, disk):
    first = serve(tmp_path / "kv", disk, "no")
    try:
        before = ask(first, ASK)
        assert stop(first) < 15
    finally:
        first.close()
    second = serve(tmp_path / "kv", disk, "read")
    try:
        begin = time.monotonic()
        assert ask(second, ASK) == before
        assert time.monotonic() - begin < 6  # a quarter of the watchdog's time, and the step
        ask(second, {**ASK, "prompt": "Once more. " + PROMPT})
        warnings = [line for line in second.log if "out of use" in line]
        assert len(warnings) == 1
        assert stop(second) < 15
        assert second.process.returncode == 0
    finally:
        second.close()
