"""A progress bar: tqdm's where it is installed, else one line on a terminal."""
from __future__ import annotations

import sys
import time
from typing import Any, Callable, Union


class _Line:
    """A line on stderr that is drawn over itself; nothing where that is no terminal."""

    def __init__(self, total: int, desc: str):
        self._total, self._desc, self._done = total, desc, 0
        self._start = self._drawn = time.monotonic()
        self._shown = sys.stderr.isatty()

    def update(self, count: int) -> None:
        self._done += count
        now = time.monotonic()
        if not self._shown or (now - self._drawn < 0.1 and self._done < self._total):
            return
        self._drawn = now
        rate = self._done / max(now - self._start, 1e-9)
        sys.stderr.write(f"\r{self._desc}: {self._done}/{self._total} [{rate:.2f} requests/s]\x1b[K")
        sys.stderr.flush()

    def close(self) -> None:
        if self._shown and self._done:
            sys.stderr.write("\n")


class _Silent:
    def update(self, count: int) -> None:
        pass

    def close(self) -> None:
        pass


def progress_bar(wanted: Union[bool, Callable[..., Any]], total: int) -> Any:
    """An object with update(count) and close(). `wanted` may be what makes one, like tqdm."""
    if callable(wanted):
        return wanted(total=total, desc="Processed prompts")
    if not wanted:
        return _Silent()
    try:
        from tqdm.auto import tqdm
    except ImportError:
        return _Line(total, "Processed prompts")
    return tqdm(total=total, desc="Processed prompts", dynamic_ncols=True)
