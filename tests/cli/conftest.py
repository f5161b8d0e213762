"""Fixtures shared by the tests that run the `skiff` program."""
import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tests/api"))
import edge  # noqa: E402  the tests of the API have it


class Skiff:
    """Runs the program and keeps what it printed."""

    def __init__(self, binary):
        self.binary = binary

    def __call__(self, *args, stdin="", timeout=120):
        return subprocess.run([self.binary, *map(str, args)], input=stdin, text=True,
                              capture_output=True, timeout=timeout)

    def ok(self, *args, **kwargs):
        done = self(*args, **kwargs)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def refused(self, *args, **kwargs):
        """The one-line error of a run that must fail without crashing."""
        done = self(*args, **kwargs)
        assert done.returncode in (1, 2), f"exit code {done.returncode}: {done.stderr}"
        last = [line for line in done.stderr.splitlines() if line][-1]
        assert last.startswith("skiff: "), done.stderr
        return last


@pytest.fixture(scope="session")
def skiff():
    return Skiff(os.environ.get("SKIFF_BIN", str(ROOT / "build/cpu/skiff")))


@pytest.fixture(scope="session")
def demo():
    return ROOT / "models/demo"


@pytest.fixture(scope="session")
def long_demo():
    """The demo model with room for answers that outlast any test."""
    return edge.long_demo()


@pytest.fixture(scope="session")
def shared():
    """Reference data beside the project; tests that need it skip without it."""
    path = pathlib.Path(os.environ.get("SKIFF_SHARED_DIR", ROOT.parent / "shared"))
    if not path.is_dir():
        pytest.skip(f"no reference data at {path}")
    return path
