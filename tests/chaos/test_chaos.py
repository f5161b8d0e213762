"""The bounded form of tools/chaos/run.py: the same checks, a shorter storm."""
import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def test_nothing_is_lost_in_chaos():
    if not (ROOT / "models/demo/model.safetensors").exists():
        pytest.skip("models/demo is not there")
    skiff = os.environ.get("SKIFF_BIN", str(ROOT / "build/cpu/skiff"))
    run = subprocess.run(
        [sys.executable, str(ROOT / "tools/chaos/run.py"), "--skiff", skiff, "--minutes", "0.15",
         "--requests", "20", "--patience", "2"],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=400)
    assert run.returncode == 0, run.stdout
