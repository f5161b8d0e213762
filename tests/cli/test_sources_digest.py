"""The digest of the arithmetic that a build computes with (cmake/sources_digest.cmake): cached
blocks of another digest are not used."""
import pathlib
import re
import shutil
import subprocess

import pytest

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "cmake/sources_digest.cmake"


def digest(source, flags="GNU 12 -O3"):
    output = source.parent / "digest.cc"
    subprocess.run(["cmake", f"-DSOURCE={source}", f"-DFLAGS={flags}", f"-DOUTPUT={output}", "-P",
                    SCRIPT], check=True, capture_output=True)
    return re.search(r'"([0-9a-f]{64})"', output.read_text()).group(1)


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.fixture
def source(tmp_path):
    if shutil.which("cmake") is None:
        pytest.skip("cmake is not there")
    for name in ("ops/cpu/isa/a.cc", "ops/cuda/b.cu", "ops/cuda/c.cuh", "model/d.h", "arch/e.cc",
                 "tensor/f.cc", "weights/g.h"):
        write(tmp_path / "one/src" / name, f"// {name}\n")
    return tmp_path / "one/src"


def test_it_changes_with_whatever_changes_arithmetic(source):
    seen = {digest(source)}
    for path in [p for p in source.rglob("*") if p.is_file()]:
        path.write_text(path.read_text() + "int x;\n")
        seen.add(digest(source))
    write(source / "ops/cuda/new.cu", "")
    seen.add(digest(source))
    (source / "ops/cuda/new.cu").rename(source / "ops/cuda/renamed.cu")
    seen.add(digest(source))
    seen.add(digest(source, "GNU 13 -O3"))
    assert len(seen) == 1 + 7 + 3


def test_it_is_the_same_for_the_same_sources(source, tmp_path):
    before = digest(source)
    shutil.copytree(source, tmp_path / "two/src")
    assert digest(tmp_path / "two/src") == before
    write(source / "ops/a_test.cc", "")
    write(source / "ops/suite/suite.h", "")
    write(source / "serve/server.cc", "")
    assert digest(source) == before


def test_an_unchanged_output_is_not_written_again(source):
    digest(source)
    output = source.parent / "digest.cc"
    time = output.stat().st_mtime_ns
    digest(source)
    assert output.stat().st_mtime_ns == time
