"""Makes the wheel of Skiff (PEP 517, PEP 660): the package, libskiff.so and the program skiff.

Config settings, or variables of the environment where pip is not called by hand:
  build-folder=DIR   SKIFF_BUILD_FOLDER  has libskiff.so and skiff already, as build/cpu; nothing is
                                         compiled
  preset=NAME        SKIFF_PRESET        of CMakePresets.json, for what is compiled: cpu, cuda
  jobs=N             SKIFF_JOBS          compilers at a time; default: as many as processors
"""
import base64
import hashlib
import io
import os
import pathlib
import platform
import re
import shutil
import subprocess
import zipfile

try:
    import tomllib
except ImportError:
    import tomli as tomllib

ROOT = pathlib.Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "python" / "skiff"
TAG = f"py3-none-linux_{platform.machine()}"
NATIVE = "skiff/native/"


class UnsupportedOperation(Exception):
    """What PEP 517 wants where there is no sdist."""


def setting(settings, name, fallback=None):
    variable = "SKIFF_" + name.upper().replace("-", "_")
    return (settings or {}).get(name) or os.environ.get(variable) or fallback


def version():
    return re.search(r"project\(skiff VERSION ([0-9.]+)", (ROOT / "CMakeLists.txt").read_text())[1]


def compiled(settings):
    """The folder of libskiff.so and skiff, after CMake has built them."""
    preset = setting(settings, "preset", "cpu")
    folder = ROOT / "build" / preset
    if not (folder / "build.ninja").exists():
        subprocess.run(["cmake", "--preset", preset, "-DSKIFF_TESTS=OFF"], cwd=ROOT, check=True)
    jobs = setting(settings, "jobs", str(os.cpu_count()))
    subprocess.run(["cmake", "--build", str(folder), "--target", "skiff", "libskiff", "-j", jobs],
                   check=True)
    return folder


def native_files(settings):
    """(name in the wheel, file, mode) of what was compiled."""
    given = setting(settings, "build-folder")
    folder = pathlib.Path(given).resolve() if given else compiled(settings)
    for name, mode in (("libskiff.so", 0o755), ("skiff", 0o755)):
        if not (folder / name).exists():
            raise FileNotFoundError(f"{folder / name} is not there: build-folder is to have it, as "
                                    "after `cmake --build build/cpu --target skiff libskiff`")
        yield NATIVE + name, folder / name, mode
    yield NATIVE + "skiff.h", ROOT / "src" / "capi" / "skiff.h", 0o644


def project():
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def metadata():
    about = project()
    lines = ["Metadata-Version: 2.1", f"Name: {about['name']}", f"Version: {version()}",
             f"Summary: {about['description']}", f"Requires-Python: {about['requires-python']}"]
    for extra, needs in about["optional-dependencies"].items():
        lines.append(f"Provides-Extra: {extra}")
        lines += [f"Requires-Dist: {need} ; extra == \"{extra}\"" for need in needs]
    lines += ["Description-Content-Type: text/markdown", "", (ROOT / about["readme"]).read_text()]
    return "\n".join(lines)


def about_wheel():
    """(name, text) of the files of .dist-info, less RECORD."""
    scripts = "".join(f"{name} = {target}\n" for name, target in project()["scripts"].items())
    return [("METADATA", metadata()),
            ("WHEEL", f"Wheel-Version: 1.0\nGenerator: skiff\nRoot-Is-Purelib: false\nTag: {TAG}\n"),
            ("entry_points.txt", f"[console_scripts]\n{scripts}")]


class Wheel:
    """A wheel that is written file by file. Equal files make equal bytes."""

    def __init__(self, folder):
        self.name = f"skiff-{version()}-{TAG}.whl"
        self.info = f"skiff-{version()}.dist-info"
        self.zip = zipfile.ZipFile(pathlib.Path(folder) / self.name, "w", zipfile.ZIP_DEFLATED)
        self.record = io.StringIO()

    def add(self, name, data, mode=0o644):
        entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
        entry.external_attr = (0o100000 | mode) << 16
        entry.compress_type = zipfile.ZIP_DEFLATED
        self.zip.writestr(entry, data)
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        self.record.write(f"{name},sha256={digest},{len(data)}\n")

    def finish(self):
        for name, text in about_wheel():
            self.add(f"{self.info}/{name}", text.encode())
        record = f"{self.info}/RECORD"
        self.record.write(f"{record},,\n")
        self.zip.writestr(zipfile.ZipInfo(record, (1980, 1, 1, 0, 0, 0)), self.record.getvalue())
        self.zip.close()
        return self.name


def get_requires_for_build_wheel(config_settings=None):
    return []


get_requires_for_build_editable = get_requires_for_build_wheel


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    native = list(native_files(config_settings))
    wheel = Wheel(wheel_directory)
    for path in sorted(PACKAGE.iterdir()):
        if path.suffix == ".py" or path.name == "py.typed":
            wheel.add(f"skiff/{path.name}", path.read_bytes())
    for name, path, mode in native:
        wheel.add(name, path.read_bytes(), mode)
    return wheel.finish()


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    """The package stays where it is, and what was compiled is copied beside it."""
    for name, path, mode in native_files(config_settings):
        target = PACKAGE.parent / name
        target.parent.mkdir(exist_ok=True)
        target.unlink(missing_ok=True)
        shutil.copyfile(path, target)
        target.chmod(mode)
    wheel = Wheel(wheel_directory)
    wheel.add("skiff.pth", f"{PACKAGE.parent}\n".encode())
    return wheel.finish()


def build_sdist(sdist_directory, config_settings=None):
    raise UnsupportedOperation("a wheel is made from the checkout; there is no sdist")
