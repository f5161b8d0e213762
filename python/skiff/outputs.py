"""What requests give, under the names of vLLM and of FastDeploy."""
from __future__ import annotations

import dataclasses
from typing import Any, Optional, Union


@dataclasses.dataclass
class Logprob:
    logprob: float
    rank: Optional[int] = None
    decoded_token: Optional[str] = None


@dataclasses.dataclass
class CompletionOutput:
    """One of the n sequences of a request. A chat's text is its content: what the reasoning and the
    tool calls leave."""

    index: int
    text: str = ""
    token_ids: list[int] = dataclasses.field(default_factory=list)
    cumulative_logprob: Optional[float] = None
    logprobs: Optional[list[dict[int, Logprob]]] = None
    # With include_draft_logprobs: by the place of the token that a draft stood for.
    draft_logprobs: Optional[dict[int, dict[int, Logprob]]] = None
    finish_reason: Optional[str] = None  # stop, length, tool_calls, abort, error
    stop_reason: Union[int, str, None] = None  # the stop token or string
    reasoning_content: Optional[str] = None
    tool_calls: list[dict] = dataclasses.field(default_factory=list)
    delta: str = ""  # in a stream, the text that is new in this output
    send_idx: int = 0  # the number of pieces that have come

    def finished(self) -> bool:
        return self.finish_reason is not None


class CompletionOutputs(list):
    """The sequences of a request. Fields of the first are those of the list, too, because FastDeploy
    has one output where vLLM has a list."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or not self:
            raise AttributeError(name)
        return getattr(self[0], name)


@dataclasses.dataclass
class RequestMetrics:
    """Unix seconds; 0 for what has not happened."""

    arrival_time: float = 0.0
    first_token_time: float = 0.0
    finished_time: float = 0.0


@dataclasses.dataclass
class RequestOutput:
    request_id: str
    prompt: Optional[str] = None
    prompt_token_ids: list[int] = dataclasses.field(default_factory=list)
    outputs: CompletionOutputs = dataclasses.field(default_factory=CompletionOutputs)
    finished: bool = False
    prompt_logprobs: Optional[list[Optional[dict[int, Logprob]]]] = None
    metrics: RequestMetrics = dataclasses.field(default_factory=RequestMetrics)
    num_cached_tokens: int = 0
    num_input_image_tokens: int = 0
    num_input_video_tokens: int = 0
    error_code: Optional[str] = None
    error_msg: Optional[str] = None


@dataclasses.dataclass
class EmbeddingOutput:
    embedding: list[float]

    @property
    def hidden_size(self) -> int:
        return len(self.embedding)


@dataclasses.dataclass
class EmbeddingRequestOutput:
    request_id: str
    outputs: EmbeddingOutput
    prompt_token_ids: list[int]
    finished: bool = True
    metrics: RequestMetrics = dataclasses.field(default_factory=RequestMetrics)


@dataclasses.dataclass
class ClassificationOutput:
    probs: list[float]

    @property
    def num_classes(self) -> int:
        return len(self.probs)


@dataclasses.dataclass
class ClassificationRequestOutput:
    request_id: str
    outputs: ClassificationOutput
    prompt_token_ids: list[int]
    finished: bool = True
    metrics: RequestMetrics = dataclasses.field(default_factory=RequestMetrics)
