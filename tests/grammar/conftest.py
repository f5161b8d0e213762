"""`skiff constrain` for the tests of structured output."""
import json
import os
import pathlib
import subprocess
import tarfile

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
JSONSCHEMA = "jsonschema==4.26.0"


class Constrain:
    """Judges texts by a constraint with the demo model's tokenizer."""

    def __init__(self, binary, folder):
        self.binary, self.folder = binary, folder

    def __call__(self, kind, constraint, texts):
        """The verdicts of the texts, or the refusal of the constraint."""
        path = self.folder / "constraint"
        path.write_text(constraint, encoding="utf-8")
        lines = "".join(json.dumps(text) + "\n" for text in texts)
        done = subprocess.run([self.binary, "constrain", ROOT / "models/demo", f"--{kind}", path],
                              input=lines, text=True, capture_output=True, timeout=120)
        assert done.returncode in (0, 3), f"exit code {done.returncode}: {done.stderr}"
        out = [json.loads(line) for line in done.stdout.splitlines()]
        if done.returncode == 3:
            assert len(out) == 1 and out[0].keys() == {"error", "pointer"}, done.stdout
            return out[0]
        assert len(out) == len(texts), done.stdout
        return out


@pytest.fixture(scope="session")
def constrain(tmp_path_factory):
    binary = os.environ.get("SKIFF_BIN", str(ROOT / "build/cpu/skiff"))
    return Constrain(binary, tmp_path_factory.mktemp("constrain"))


@pytest.fixture(scope="session")
def suite(tmp_path_factory):
    """The folder of the JSON-Schema-Test-Suite, from jsonschema's source package."""
    folder = os.environ.get("JSON_SCHEMA_SUITE")
    if folder:
        return pathlib.Path(folder)
    folder = tmp_path_factory.mktemp("suite")
    pip = pathlib.Path(os.sys.executable).parent / "pip"
    done = subprocess.run([pip, "download", "-q", "--no-deps", "--no-binary", "jsonschema", "-d",
                           folder, JSONSCHEMA], capture_output=True, text=True)
    packages = list(folder.glob("jsonschema-*.tar.gz"))
    if not packages:
        pytest.skip(f"the source package of jsonschema cannot be had: {done.stderr[-300:]}")
    with tarfile.open(packages[0]) as package:
        package.extractall(folder, filter="data")
    return next(folder.glob("jsonschema-*/json/tests/draft2020-12"))
