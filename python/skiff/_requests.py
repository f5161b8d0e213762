"""Prompts and messages, in every form that the interfaces take, become bodies of requests."""
from __future__ import annotations

import dataclasses
from typing import Any, Optional, Union

from .sampling_params import SamplingParams

Prompt = Union[str, "list[int]", dict]


@dataclasses.dataclass
class Request:
    kind: str  # skiff_submit()'s
    body: dict
    prompt: Optional[str]  # its text, if that is known
    n: int


def _is_ids(prompt: Any) -> bool:
    return isinstance(prompt, (list, tuple)) and bool(prompt) and all(
        isinstance(one, int) and not isinstance(one, bool) for one in prompt)


def split_prompts(prompts: Any) -> list[Prompt]:
    """One prompt (a text, token ids, a dict) or a list of them as a list."""
    if isinstance(prompts, (str, dict)) or _is_ids(prompts):
        return [prompts]
    if not isinstance(prompts, (list, tuple)):
        raise TypeError(f"prompts is a {type(prompts).__name__}; give a str, a list of token ids, "
                        "a dict, or a list of these")
    return list(prompts)


def split_messages(messages: Any) -> list[list]:
    """One conversation or a list of them as a list."""
    if not isinstance(messages, (list, tuple)) or not messages:
        raise TypeError("messages is a list of {\"role\", \"content\"}, or a list of such lists, and "
                        "not empty")
    return [list(messages)] if isinstance(messages[0], dict) else [list(one) for one in messages]


def completion(prompt: Prompt, params: SamplingParams) -> Request:
    body = params._body(chat=False)
    text = prompt if isinstance(prompt, str) else None
    if isinstance(prompt, dict):
        unknown = prompt.keys() - {"prompt", "prompt_token_ids"}
        if unknown:
            raise ValueError(f"a prompt has \"{sorted(unknown)[0]}\"; only prompt and "
                             "prompt_token_ids are supported")
        text = prompt.get("prompt")
        body["prompt"] = prompt.get("prompt_token_ids", text)
    elif text is None and not _is_ids(prompt):
        raise TypeError("a prompt is a str, a list of token ids that is not empty, or a dict with "
                        f"prompt or prompt_token_ids, not {str(prompt)[:60]}")
    else:
        body["prompt"] = prompt if text is not None else list(prompt)
    return Request("completion", body, text, params.n)


def chat(messages: list, params: SamplingParams, **fields: Any) -> Request:
    """`fields` are members of the body; None stands for an absent one."""
    body = params._body(chat=True)
    body.update({name: value for name, value in fields.items() if value is not None})
    body["messages"] = messages
    return Request("chat", body, None, params.n)


def pooled(kind: str, prompt: Prompt, **fields: Any) -> Request:
    """`kind` is "embedding" or "classify"; `fields` are members of the body; None stands for an
    absent one."""
    made = completion(prompt, SamplingParams())
    body = {name: value for name, value in fields.items() if value is not None}
    return Request(kind, {**body, "input": made.body["prompt"]}, made.prompt, 1)
