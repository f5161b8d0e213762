"""An engine of libskiff.so and its queues, as objects. Nothing here knows what requests mean."""
from __future__ import annotations

import atexit
import ctypes
import json
import weakref
from typing import Any, Callable, Optional

from . import _library
from ._library import check, library, take_text

# While a thread waits in C, Python runs no handlers of signals in it; it looks again this often.
SLICE_MS = 200

_open_engines: "weakref.WeakSet[Engine]" = weakref.WeakSet()


def _close_all() -> None:
    for engine in list(_open_engines):
        engine.close()


atexit.register(_close_all)


def _encoded(value: Any) -> bytes:
    return json.dumps(value, allow_nan=False, separators=(",", ":")).encode()


class Engine:
    """Loads in its constructor, which Ctrl-C ends. All methods are safe from any thread."""

    def __init__(self, options: dict, progress: Optional[Callable[[float], None]] = None):
        self._handle = ctypes.c_void_p()
        text = _encoded(options)
        check(library().skiff_open(text, len(text), ctypes.byref(self._handle)))
        _open_engines.add(self)
        part = ctypes.c_double()
        try:
            while True:
                status = library().skiff_ready(self._handle, SLICE_MS, ctypes.byref(part))
                if progress:
                    progress(part.value)
                if status not in (_library.LOADING, _library.INTERRUPTED):
                    break
            check(status)
        except BaseException:
            self.close()
            raise
        self.info: dict = json.loads(self._text(library().skiff_info))

    def __del__(self) -> None:
        # No other reference is left, so no thread is inside a call.
        if getattr(self, "_handle", None):
            library().skiff_engine_free(self._handle)

    def _text(self, function: Callable[..., int], *arguments: Any) -> bytes:
        out = ctypes.c_void_p()
        check(function(self._handle, *arguments, ctypes.byref(out)))
        return take_text(out)

    def metrics(self) -> str:
        return self._text(library().skiff_metrics).decode()

    def tokenize(self, body: dict) -> list[int]:
        text = _encoded(body)
        return json.loads(self._text(library().skiff_tokenize, text, len(text)))["tokens"]

    def detokenize(self, body: dict) -> str:
        text = _encoded(body)
        return json.loads(self._text(library().skiff_detokenize, text, len(text)))["text"]

    def open_queue(self) -> "Queue":
        return Queue(self)

    def close(self) -> None:
        """Cancels what runs and ends the engine's threads. Waits end with ClosedError."""
        library().skiff_stop(self._handle)


class Queue:
    """The requests of one part of a program, and their events."""

    def __init__(self, engine: Engine):
        self._handle = ctypes.c_void_p()
        check(library().skiff_queue_open(engine._handle, ctypes.byref(self._handle)))

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            self.close()

    def close(self) -> None:
        """Cancels what is under way. Nothing may use the queue meanwhile or afterwards."""
        handle, self._handle = self._handle, ctypes.c_void_p()
        library().skiff_queue_free(handle)

    def fileno(self) -> int:
        return library().skiff_queue_fd(self._handle)

    def submit(self, kind: str, body: dict) -> int:
        text = _encoded(body)
        number = ctypes.c_uint64()
        check(library().skiff_submit(self._handle, kind.encode(), text, len(text),
                                     ctypes.byref(number)))
        return number.value

    def wait(self, timeout_ms: int = SLICE_MS) -> list[dict]:
        """What has come; nothing at the end of the time, or after a signal."""
        out = ctypes.c_void_p()
        status = library().skiff_wait(self._handle, timeout_ms, ctypes.byref(out))
        if status == _library.INTERRUPTED:
            return []
        check(status)
        return json.loads(take_text(out))

    def cancel(self, number: int) -> None:
        check(library().skiff_cancel(self._handle, number))
