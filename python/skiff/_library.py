"""libskiff.so: where it lies, its functions, and its failures as exceptions."""
from __future__ import annotations

import ctypes
import functools
import os
import pathlib

ABI = 1


class SkiffError(Exception):
    """A request or an engine failed. The text names the field, the value and the way out."""

    def __init__(self, message: str, field: str = "", code: str = "internal"):
        super().__init__(message)
        self.field = field
        self.code = code


class InvalidError(SkiffError, ValueError):
    """An option or a field of a request is wrong, missing, or asks for what Skiff does not do."""


class BusyError(SkiffError):
    """Too much is under way; the same request may be admitted when another has ended."""


class ClosedError(SkiffError):
    """The engine was closed, or its device is lost."""


class ForkedError(SkiffError):
    """This process is a child, made by fork(), of the one that opened the engine."""


class LoadError(SkiffError):
    """The model could not be loaded."""


OK, BUSY, LOADING, INTERRUPTED = 0, 4, 6, 9
_FAILURES = {
    1: ("invalid", InvalidError), 2: ("not_found", InvalidError), 3: ("unsupported", InvalidError),
    BUSY: ("busy", BusyError), 7: ("closed", ClosedError), 8: ("forked", ForkedError),
    10: ("load_failed", LoadError),
}

_FUNCTIONS = {
    "skiff_abi": (ctypes.c_int, []),
    "skiff_version": (ctypes.c_char_p, []),
    "skiff_last_error": (ctypes.c_char_p, []),
    "skiff_last_error_field": (ctypes.c_char_p, []),
    "skiff_release": (None, [ctypes.c_void_p]),
    "skiff_open": (ctypes.c_int, [ctypes.c_char_p, ctypes.c_size_t,
                                  ctypes.POINTER(ctypes.c_void_p)]),
    "skiff_ready": (ctypes.c_int, [ctypes.c_void_p, ctypes.c_int, ctypes.POINTER(ctypes.c_double)]),
    "skiff_info": (ctypes.c_int, [ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p)]),
    "skiff_metrics": (ctypes.c_int, [ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p)]),
    "skiff_tokenize": (ctypes.c_int, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t,
                                      ctypes.POINTER(ctypes.c_void_p)]),
    "skiff_detokenize": (ctypes.c_int, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t,
                                        ctypes.POINTER(ctypes.c_void_p)]),
    "skiff_stop": (ctypes.c_int, [ctypes.c_void_p]),
    "skiff_engine_free": (None, [ctypes.c_void_p]),
    "skiff_queue_open": (ctypes.c_int, [ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p)]),
    "skiff_queue_free": (None, [ctypes.c_void_p]),
    "skiff_queue_fd": (ctypes.c_int, [ctypes.c_void_p]),
    "skiff_submit": (ctypes.c_int, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p,
                                    ctypes.c_size_t, ctypes.POINTER(ctypes.c_uint64)]),
    "skiff_wait": (ctypes.c_int, [ctypes.c_void_p, ctypes.c_int, ctypes.POINTER(ctypes.c_void_p)]),
    "skiff_cancel": (ctypes.c_int, [ctypes.c_void_p, ctypes.c_uint64]),
}


def native_file(name: str) -> pathlib.Path:
    """A file that was built: of this package, or of $SKIFF_LIBRARY, which is libskiff.so or its
    folder, as build/cpu."""
    chosen = os.environ.get("SKIFF_LIBRARY")
    if chosen:
        path = pathlib.Path(chosen)
        folder = path if path.is_dir() else path.parent
        found = path if name == "libskiff.so" and path.is_file() else folder / name
    else:
        found = pathlib.Path(__file__).parent / "native" / name
    if not found.exists():
        raise FileNotFoundError(
            f"{found} is not there. Install the package with `pip install .` in Skiff's checkout, "
            "or set SKIFF_LIBRARY to a build folder, as build/cpu")
    return found


@functools.lru_cache(maxsize=None)
def library() -> ctypes.CDLL:
    """The library, loaded once in a process. Calls release the GIL until they return."""
    path = native_file("libskiff.so")
    loaded = ctypes.CDLL(str(path))
    for name, (result, arguments) in _FUNCTIONS.items():
        function = getattr(loaded, name)
        function.restype, function.argtypes = result, arguments
    if loaded.skiff_abi() != ABI:
        raise ImportError(f"{path} has the interface {loaded.skiff_abi()}, this package needs {ABI};"
                          " install both from one version of Skiff")
    return loaded


def check(status: int) -> None:
    """Raises what a status other than OK stands for."""
    if status == OK:
        return
    skiff = library()
    message = skiff.skiff_last_error().decode("utf-8", "replace")
    field = skiff.skiff_last_error_field().decode("utf-8", "replace")
    code, kind = _FAILURES.get(status, ("internal", SkiffError))
    raise kind(message or f"skiff_status {status}", field, code)


def take_text(pointer: ctypes.c_void_p) -> bytes:
    """The bytes of a text of the library's, which is released."""
    try:
        return ctypes.string_at(pointer.value)
    finally:
        library().skiff_release(pointer)
