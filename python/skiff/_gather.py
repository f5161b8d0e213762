"""Events of one request become its RequestOutput."""
from __future__ import annotations

import copy
from typing import Optional

from ._library import SkiffError
from .outputs import (ClassificationOutput, ClassificationRequestOutput, CompletionOutput,
                      CompletionOutputs, EmbeddingOutput, EmbeddingRequestOutput, Logprob,
                      RequestMetrics, RequestOutput)


def _position(one: dict) -> dict[int, Logprob]:
    """vLLM's form of a position: the likeliest tokens, and the one that is there."""
    entries = {top["token_id"]: Logprob(top["logprob"], rank, top["decoded_token"])
               for rank, top in enumerate(one["top"], 1)}
    entries.setdefault(one["token_id"], Logprob(one["logprob"], one["rank"], one["decoded_token"]))
    return entries


def _add_call(calls: list[dict], delta: dict) -> None:
    if delta["index"] == len(calls):
        calls.append({"id": delta["id"], "type": "function",
                      "function": {"name": delta["function"]["name"], "arguments": ""}})
    calls[delta["index"]]["function"]["arguments"] += delta["function"].get("arguments", "")


class Gathered:
    """The state of one request. Only one thread uses it at a time."""

    def __init__(self, request_id: str, prompt: Optional[str], n: int):
        self.output = RequestOutput(
            request_id, prompt, outputs=CompletionOutputs(CompletionOutput(i) for i in range(n)))
        self.vector: Optional[list[float]] = None  # an embedding, or the scores of classes

    def add(self, event: dict) -> None:
        request = self.output
        out = request.outputs[event["index"]]
        if "prompt_token_ids" in event:
            request.prompt_token_ids = event["prompt_token_ids"]
        if "token_ids" in event:
            out.token_ids += event["token_ids"]
            self._add_text(out, event)
            self._add_logprobs(out, event)
        self.vector = event.get("embedding", event.get("probs"))
        out.send_idx += 1
        if "finish_reason" in event:
            self._end(out, event)
        request.finished = event["last"]

    def _add_text(self, out: CompletionOutput, event: dict) -> None:
        if "message" in event:
            deltas = [event["message"]]
        else:
            deltas = event.get("deltas", [{"content": event["text"]}])
        for delta in deltas:
            new = delta.get("content") or ""
            out.delta += new
            out.text += new
            if delta.get("reasoning_content"):
                out.reasoning_content = (out.reasoning_content or "") + delta["reasoning_content"]
            for call in delta.get("tool_calls", []):
                if "index" in call:
                    _add_call(out.tool_calls, call)
                else:
                    out.tool_calls.append(call)

    def _add_logprobs(self, out: CompletionOutput, event: dict) -> None:
        for one in event.get("logprobs", []):
            out.logprobs = out.logprobs or []
            out.logprobs.append(_position(one))
            out.cumulative_logprob = (out.cumulative_logprob or 0.0) + one["logprob"]
        for one in event.get("draft_logprobs", []):
            out.draft_logprobs = out.draft_logprobs or {}
            out.draft_logprobs[one["position"]] = _position(one)
        if "prompt_logprobs" in event:
            positions = [_position(one) for one in event["prompt_logprobs"]]
            self.output.prompt_logprobs = [None, *positions]

    def _end(self, out: CompletionOutput, event: dict) -> None:
        request = self.output
        out.finish_reason = event["finish_reason"]
        out.stop_reason = event.get("stop_reason")
        if "usage" in event:
            request.num_cached_tokens = event["usage"]["cached_tokens"]
        if "metrics" in event:
            request.metrics = RequestMetrics(**event["metrics"])
        if "error" in event:
            request.error_code = event["error"]["code"]
            request.error_msg = event["error"]["message"]

    def snapshot(self) -> RequestOutput:
        """The output as it is now, which later events leave as it is. From here on the text that is
        new begins anew."""
        now = copy.copy(self.output)
        now.outputs = CompletionOutputs(copy.copy(one) for one in self.output.outputs)
        for one in now.outputs:
            one.token_ids = list(one.token_ids)
            one.logprobs = list(one.logprobs) if one.logprobs is not None else None
            one.draft_logprobs = dict(one.draft_logprobs) if one.draft_logprobs else None
            one.tool_calls = copy.deepcopy(one.tool_calls)
        for one in self.output.outputs:
            one.delta = ""
        return now

    def embedded(self) -> EmbeddingRequestOutput:
        """The output of a request that embeds, when it has ended."""
        out = self.output
        return EmbeddingRequestOutput(out.request_id, EmbeddingOutput(self._pooled("embedding")),
                                      out.prompt_token_ids, metrics=out.metrics)

    def classified(self) -> ClassificationRequestOutput:
        """The output of a request that classifies, when it has ended."""
        out = self.output
        return ClassificationRequestOutput(out.request_id,
                                           ClassificationOutput(self._pooled("score")),
                                           out.prompt_token_ids, metrics=out.metrics)

    def _pooled(self, what: str) -> list[float]:
        if self.vector is None:
            raise SkiffError(self.output.error_msg or f"the engine gave no {what}",
                             code=self.output.error_code or "internal")
        return self.vector
