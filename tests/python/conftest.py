"""The package of this checkout over the libskiff.so that lies beside $SKIFF_BIN."""
import os
import pathlib
import signal
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("SKIFF_BIN", ROOT / "build/cpu/skiff")).resolve().parent
DEMO = ROOT / "models/demo"

sys.path.insert(0, str(ROOT / "python"))
os.environ["SKIFF_LIBRARY"] = str(BUILD)

import skiff  # noqa: E402


@pytest.fixture(scope="package")
def llm():
    with skiff.LLM(DEMO, seed=7) as model:
        yield model


def start_script(text, **options):
    """A Python process of its own that runs `text`, with the package. It hears SIGINT even where
    the tests run in a shell's background, which ignores it."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "python"), "SKIFF_LIBRARY": str(BUILD)}
    return subprocess.Popen([sys.executable, "-u", "-c", text], text=True, env=environment,
                            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)
