"""`skiff start` and `skiff stop`: a server in the background, and what is said when something is in
the way."""
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/api"))
from edge import demo_model, long_demo  # noqa: E402


class Place:
    """A folder with the files of one server."""

    def __init__(self, folder):
        self.folder, self.pid_file, self.log = folder, folder / "run/pid", folder / "run/log"

    def skiff(self, *words):
        binary = os.environ.get("SKIFF_BIN", str(ROOT / "build/cpu/skiff"))
        return subprocess.run([binary, *map(str, words)], cwd=self.folder, capture_output=True,
                              text=True, timeout=120)

    def start(self, *flags, model=None, port=0):
        return self.skiff("start", model or demo_model(), "--host", "127.0.0.1", "--port", port,
                          "--device", "cpu", "--pid-file", self.pid_file, "--log-file", self.log,
                          *flags)

    def stop(self, *words):
        return self.skiff("stop", *words, "--pid-file", self.pid_file)

    def pid(self):
        return int(self.pid_file.read_text().split()[0])

    def kill(self):
        pid = self.pid()
        os.kill(pid, signal.SIGKILL)
        while True:
            try:
                if pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z":
                    return
            except (FileNotFoundError, ProcessLookupError):
                return


@pytest.fixture
def place(tmp_path):
    place = Place(tmp_path)
    yield place
    if place.pid_file.exists():
        place.stop(0)


def url_of(started):
    assert started.returncode == 0, started.stderr
    return re.search(r"http://[0-9.:]+", started.stdout).group(0)


def healthy(url):
    try:
        with urllib.request.urlopen(url + "/health", timeout=10) as response:
            return response.status == 200
    except urllib.error.URLError:
        return False


def test_a_server_starts_once_and_stops(place):
    started = place.start()
    url = url_of(started)
    assert healthy(url) and f"process {place.pid()}" in started.stdout
    assert "loading weights" in started.stderr
    again = place.start()
    assert again.returncode == 1 and f"runs already: process {place.pid()}" in again.stderr
    assert healthy(url)
    stopped = place.stop()
    assert stopped.returncode == 0 and "stopped" in stopped.stdout
    assert not healthy(url) and not place.pid_file.exists()
    assert "stopped" in place.log.read_text()
    none = place.stop()
    assert none.returncode == 1 and "no server was started here" in none.stderr


def test_a_pid_file_of_a_dead_server_is_no_obstacle(place):
    url_of(place.start())
    place.kill()
    started = place.start()
    assert "ended without skiff stop" in started.stderr
    assert healthy(url_of(started))
    place.kill()
    stopped = place.stop()
    assert stopped.returncode == 0 and "had ended already" in stopped.stdout
    assert not place.pid_file.exists()
    # The number of another process is no server of ours.
    place.pid_file.write_text(f"{os.getpid()} 1\n")
    assert "had ended already" in place.stop().stdout


def test_a_server_that_dies_says_why(place):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        busy = place.start(port=port)
    assert busy.returncode == 1 and str(port) in busy.stderr and "did not start" in busy.stderr
    assert not place.pid_file.exists()
    broken = place.folder / "broken"
    broken.mkdir()
    for file in demo_model().iterdir():
        if file.is_file():
            (broken / file.name).symlink_to(file)
    (broken / "model.safetensors").unlink()
    (broken / "model.safetensors").write_bytes(b"no checkpoint")
    dead = place.start(model=broken)
    assert dead.returncode == 1 and "model.safetensors" in dead.stderr
    usage = place.start("--max-num-seqs", "many")
    assert usage.returncode == 2 and "--max-num-seqs" in usage.stderr
    unnamed = place.skiff("start", demo_model(), "--port", "0")
    assert unnamed.returncode == 2 and "--pid-file" in unnamed.stderr


def test_what_takes_too_long_is_cut_off(place):
    url = url_of(place.start(model=long_demo()))
    begun, ends = threading.Event(), []

    def stream():
        body = {"model": "default", "prompt": "Count:", "max_tokens": 60000, "stream": True,
                "ignore_eos": True}
        request = urllib.request.Request(url + "/v1/completions", json.dumps(body).encode(),
                                         {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as response:
            for line in response:
                begun.set()
                ends.append(line)

    client = threading.Thread(target=stream, daemon=True)
    client.start()
    assert begun.wait(30)
    stopped = place.stop(0.1)
    assert stopped.returncode == 3 and "cut off" in stopped.stdout
    client.join(30)
    assert not client.is_alive() and not healthy(url)
