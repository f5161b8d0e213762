"""How tokens are drawn and where a reply ends, under the names of vLLM and of FastDeploy."""
from __future__ import annotations

import dataclasses
from typing import Any, Optional, Union


@dataclasses.dataclass
class StructuredOutputsParams:
    """The form of a reply: one of the first six (docs/structured_output.md)."""

    json: Union[str, dict, None] = None
    regex: Optional[str] = None
    choice: Optional[list[str]] = None
    grammar: Optional[str] = None
    json_object: Optional[bool] = None
    structural_tag: Union[str, dict, None] = None
    disable_any_whitespace: Optional[bool] = None
    whitespace_pattern: Optional[str] = None

    def _body(self) -> dict:
        return {field.name: value for field in dataclasses.fields(self)
                if (value := getattr(self, field.name)) is not None}


class GuidedDecodingParams(StructuredOutputsParams):
    """The older name of StructuredOutputsParams."""


@dataclasses.dataclass
class SamplingParams:
    """None stands for the model's recommendation, or else for the default of OpenAI's API;
    max_tokens None: as many as the model's recommendation or the context allows."""

    n: int = 1
    temperature: Optional[float] = None
    top_p: Optional[float] = None
    top_k: Optional[int] = None
    min_p: Optional[float] = None
    repetition_penalty: Optional[float] = None
    presence_penalty: Optional[float] = None
    frequency_penalty: Optional[float] = None
    seed: Optional[int] = None
    max_tokens: Optional[int] = None
    min_tokens: Optional[int] = None
    stop: Union[str, list[str], None] = None
    stop_token_ids: Optional[list[int]] = None
    include_stop_str_in_output: Optional[bool] = None
    ignore_eos: Optional[bool] = None
    skip_special_tokens: Optional[bool] = None
    bad_words: Optional[list[str]] = None
    bad_words_token_ids: Optional[list] = None
    logit_bias: Optional[dict] = None
    logits_processors_args: Optional[dict] = None
    logprobs: Optional[int] = None
    prompt_logprobs: Optional[int] = None
    include_draft_logprobs: Optional[bool] = None
    truncate_prompt_tokens: Optional[int] = None
    reasoning_max_tokens: Optional[int] = None  # for a chat
    structured_outputs: Union[StructuredOutputsParams, dict, None] = None
    guided_decoding: Union[StructuredOutputsParams, dict, None] = None
    guided_json: Union[str, dict, None] = None
    guided_regex: Optional[str] = None
    guided_choice: Optional[list[str]] = None
    guided_grammar: Optional[str] = None
    guided_json_object: Optional[bool] = None
    structural_tag: Union[str, dict, None] = None
    timeout: Optional[float] = None  # seconds from end to end
    extra_args: Optional[dict] = None  # further fields of a request, as docs/api.md lists them

    def _body(self, chat: bool) -> dict:
        """The fields of a request."""
        body = {field.name: value for field in dataclasses.fields(self)
                if (value := getattr(self, field.name)) is not None}
        body.update(body.pop("extra_args", {}))
        guided = body.pop("guided_decoding", None)
        if guided is not None:
            if "structured_outputs" in body:
                raise ValueError("guided_decoding is the older name of structured_outputs; give one")
            body["structured_outputs"] = guided
        form = body.get("structured_outputs")
        if isinstance(form, StructuredOutputsParams):
            body["structured_outputs"] = form._body()
        if chat and "logprobs" in body:
            count = body["logprobs"]
            body.update(logprobs=True, top_logprobs=count)
        return body


def one_for_each(params: Any, count: int) -> list[SamplingParams]:
    """The parameters of each of `count` prompts: one for all, or a list of that length."""
    if params is None or isinstance(params, (SamplingParams, dict)):
        params = [params] * count
    params = [SamplingParams() if one is None else one for one in params]
    params = [SamplingParams(**one) if isinstance(one, dict) else one for one in params]
    if len(params) != count:
        raise ValueError(f"there are {len(params)} SamplingParams for {count} prompts; give one "
                         "for each, or one for all")
    for one in params:
        if not isinstance(one, SamplingParams):
            raise TypeError(f"sampling_params holds a {type(one).__name__}, not SamplingParams")
    return params
