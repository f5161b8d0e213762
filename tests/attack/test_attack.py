"""The short form of run.py: a bounded part of every kind of attack."""
import os
import pathlib
import subprocess
import sys

import pytest

FOLDER = pathlib.Path(__file__).resolve().parent
ROOT = FOLDER.parents[1]


def test_the_server_holds_against_hostile_clients():
    if not (ROOT / "models/demo/model.safetensors").exists():
        pytest.skip("models/demo is not there")
    skiff = os.environ.get("SKIFF_BIN", str(ROOT / "build/cpu/skiff"))
    run = subprocess.run([sys.executable, str(FOLDER / "run.py"), "--quick", "--skiff", skiff],
                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=400)
    assert run.returncode == 0, run.stdout
