"""What others build upon: the wheel in a clean environment, and a C program over the library."""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import venv
import zipfile

import pytest

from .conftest import BUILD, DEMO, ROOT


def run(*command, **options):
    done = subprocess.run([str(word) for word in command], text=True, capture_output=True,
                          timeout=120, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The interpreter of a clean environment that has the wheel and nothing else."""
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "pip", "wheel", "--no-index", "--no-deps", "--no-build-isolation",
        "-w", folder, "--config-settings", f"build-folder={BUILD}", ROOT)
    wheel, = folder.glob("skiff-*-py3-none-linux_*.whl")
    venv.create(folder / "venv", with_pip=False)
    python = folder / "venv/bin/python"
    run(sys.executable, "-m", "pip", "--python", python, "install", "--no-index", wheel)
    return python


def clean(**variables):
    kept = {name: value for name, value in os.environ.items()
            if name not in ("PYTHONPATH", "SKIFF_LIBRARY", "SKIFF_BIN")}
    return {**kept, **variables}


def test_the_wheel_in_a_clean_environment(installed, tmp_path):
    text = run(installed, ROOT / "examples/python/offline.py", DEMO, env=clean(), cwd=tmp_path)
    assert "Paris" in text and "Tokyo" in text and text.split()[-1] in ("yes", "no")
    program = pathlib.Path(installed).parent / "skiff"
    assert run(program, "version", env=clean(), cwd=tmp_path) == \
        run(installed, "-m", "skiff", "version", env=clean(), cwd=tmp_path) == \
        run(BUILD / "skiff", "version")
    served = run(installed, "-m", "skiff", "serve", "--help", env=clean(), cwd=tmp_path)
    assert "--max-model-len" in served
    info = run(installed, "-c", "import skiff; print(skiff.version(), skiff.__file__)", env=clean(),
               cwd=tmp_path)
    assert str(ROOT / "python") not in info


def test_a_wheel_is_the_same_each_time(tmp_path):
    backend = "import sys; sys.path.insert(0, sys.argv[1]); import wheel_backend as b; " \
        "print(b.build_wheel(sys.argv[2], {'build-folder': sys.argv[3]}))"
    build = tmp_path / "build"
    build.mkdir()
    for name in ("skiff", "libskiff.so"):
        (build / name).write_text(name)
    made = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        wheel = run(sys.executable, "-c", backend, ROOT / "python", tmp_path / name, build).strip()
        made.append((tmp_path / name / wheel).read_bytes())
    assert made[0] == made[1]
    names = zipfile.ZipFile(tmp_path / "a" / wheel).namelist()
    assert {"skiff/py.typed", "skiff/llm.py", "skiff/native/libskiff.so", "skiff/native/skiff",
            "skiff/native/skiff.h"} <= set(names)


@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")
def test_a_c_program(tmp_path):
    program = tmp_path / "generate"
    run("cc", "-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror",
        ROOT / "examples/c/generate.c", f"-I{ROOT}/src/capi", f"-L{BUILD}", "-lskiff",
        f"-Wl,-rpath,{BUILD}", "-o", program)
    out = run(program, DEMO, "The capital of France is", "Item 3 is")
    assert "Paris" in out and out.count('"last":true') == 2
    failed = subprocess.run([program, "models/nowhere", "A"], text=True, capture_output=True)
    assert failed.returncode == 1 and "no such folder" in failed.stderr


def test_nothing_but_the_interface_is_visible():
    names = run("nm", "-D", "--defined-only", BUILD / "libskiff.so").split("\n")
    found = {line.split()[-1] for line in names if " T " in line or " D " in line or " B " in line}
    header = re.sub(r"/\*.*?\*/", "", (ROOT / "src/capi/skiff.h").read_text(), flags=re.S)
    assert found == {f"{word}@@SKIFF_1" for word in re.findall(r"\b(skiff_\w+)\(", header)}
