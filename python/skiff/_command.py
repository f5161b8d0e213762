"""The program `skiff` that the package carries."""
from __future__ import annotations

import os
import sys

from ._library import native_file


def main() -> None:
    """Becomes the program, with this process's arguments."""
    try:
        program = str(native_file("skiff"))
    except FileNotFoundError as error:
        sys.exit(f"skiff: error: {error}")
    os.execv(program, ["skiff", *sys.argv[1:]])
