"""Engine arguments become options of libskiff, which are the flags of `skiff serve`."""
from __future__ import annotations

import os
import warnings
from typing import Any


def engine_options(model: Any, given: dict, **defaults: Any) -> dict:
    """The options for a model, where `defaults` are what the caller prefers to the flags' own."""
    options = {"model": os.fspath(model), "log_level": "warning", **defaults, **given}
    # vLLM's arguments that other flags express, or that ask for what is always so.
    if options.pop("enforce_eager", False):
        options["use_cudagraph"] = False
    if options.pop("trust_remote_code", False):
        warnings.warn("trust_remote_code has no meaning: Skiff runs no code of models", stacklevel=3)
    return {name: os.fspath(value) if isinstance(value, os.PathLike) else value
            for name, value in options.items()}
