"""LLM: a model in this process, for batches."""
from __future__ import annotations

import itertools
from typing import Any, Callable, Iterator, Optional, Union

from ._engine import Engine, Queue
from ._gather import Gathered
from ._library import BusyError
from ._options import engine_options
from ._progress import progress_bar
from ._requests import (Prompt, Request, chat, completion, pooled, split_messages,
                        split_prompts)
from .outputs import ClassificationRequestOutput, EmbeddingRequestOutput, RequestOutput
from .sampling_params import SamplingParams, one_for_each

Params = Union[SamplingParams, "list[SamplingParams]", None]


class LLM:
    """Loads `model`, a folder. Engine arguments are the flags of `skiff serve`, as
    max_model_len=4096 (docs/python.md). Thread-safe; to be closed, or used in a `with`."""

    def __init__(self, model: Any, *, tokenizer: Any = None, **engine_args: Any):
        self._engine = Engine(engine_options(model, {**engine_args, "tokenizer": tokenizer}))
        self._names = itertools.count()  # threads share it

    def __enter__(self) -> "LLM":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def close(self) -> None:
        """Cancels what runs and ends the engine. A later call raises ClosedError."""
        self._engine.close()

    @property
    def info(self) -> dict:
        """What was loaded: max_model_len, device, dtype, num_blocks, defaults of sampling, ..."""
        return dict(self._engine.info)

    def metrics(self) -> str:
        """Counters and histograms in Prometheus' text format, as GET /metrics."""
        return self._engine.metrics()

    def tokenize(self, prompt: Union[str, list], **fields: Any) -> list[int]:
        """The token ids of a text, or of a list of messages by the chat template; `fields` as of
        POST /v1/completions or /v1/chat/completions."""
        return self._engine.tokenize({"prompt" if isinstance(prompt, str) else "messages": prompt,
                                      **fields})

    def detokenize(self, tokens: list[int], skip_special_tokens: bool = True) -> str:
        return self._engine.detokenize({"tokens": list(tokens),
                                        "skip_special_tokens": skip_special_tokens})

    def generate(self, prompts: Union[Prompt, "list[Prompt]"], sampling_params: Params = None,
                 use_tqdm: Union[bool, Callable[..., Any]] = True,
                 stream: bool = False) -> Union[list[RequestOutput], Iterator[RequestOutput]]:
        """Continues prompts: a text, token ids, {"prompt"} or {"prompt_token_ids"}, or a list of
        these. Returns an output for each, in their order; with `stream` an iterator over outputs as
        they grow, of all prompts as they come."""
        asked = split_prompts(prompts)
        params = one_for_each(sampling_params, len(asked))
        return self._run([completion(*both) for both in zip(asked, params)], use_tqdm, stream)

    def chat(self, messages: list, sampling_params: Params = None,
             use_tqdm: Union[bool, Callable[..., Any]] = True,
             chat_template_kwargs: Optional[dict] = None, chat_template: Optional[str] = None,
             tools: Optional[list[dict]] = None, stream: bool = False, *,
             tool_choice: Union[str, dict, None] = None,
             add_generation_prompt: Optional[bool] = None,
             continue_final_message: Optional[bool] = None,
             ) -> Union[list[RequestOutput], Iterator[RequestOutput]]:
        """Answers a conversation, or each of a list of them, by the model's chat template."""
        asked = split_messages(messages)
        params = one_for_each(sampling_params, len(asked))
        fields = dict(chat_template_kwargs=chat_template_kwargs, chat_template=chat_template,
                      tools=tools, tool_choice=tool_choice,
                      add_generation_prompt=add_generation_prompt,
                      continue_final_message=continue_final_message)
        return self._run([chat(*both, **fields) for both in zip(asked, params)], use_tqdm, stream)

    def stream(self, prompts: Union[Prompt, "list[Prompt]"],
               sampling_params: Params = None) -> Iterator[RequestOutput]:
        """generate(..., stream=True)."""
        return self.generate(prompts, sampling_params, use_tqdm=False, stream=True)

    def embed(self, prompts: Union[Prompt, "list[Prompt]"],
              use_tqdm: Union[bool, Callable[..., Any]] = True, *,
              dimensions: Optional[int] = None, normalize: Optional[bool] = None,
              truncate_prompt_tokens: Optional[int] = None) -> list[EmbeddingRequestOutput]:
        """The embedding of each prompt, as POST /v1/embeddings gives it. The model is loaded with
        runner="pooling", and convert="embed" where it was made to generate."""
        fields = dict(dimensions=dimensions, normalize=normalize,
                      truncate_prompt_tokens=truncate_prompt_tokens)
        requests = [pooled("embedding", prompt, **fields) for prompt in split_prompts(prompts)]
        return [gathered.embedded() for gathered in self._all(requests, use_tqdm)]

    def classify(self, prompts: Union[Prompt, "list[Prompt]"],
                 use_tqdm: Union[bool, Callable[..., Any]] = True, *,
                 activation: Optional[bool] = None,
                 truncate_prompt_tokens: Optional[int] = None) -> list[ClassificationRequestOutput]:
        """The scores of the classes of each prompt, as POST /v1/classify gives them. The model has
        classes, and is loaded with runner="pooling"."""
        fields = dict(activation=activation, truncate_prompt_tokens=truncate_prompt_tokens)
        requests = [pooled("classify", prompt, **fields) for prompt in split_prompts(prompts)]
        return [gathered.classified() for gathered in self._all(requests, use_tqdm)]

    def _run(self, requests: list[Request], use_tqdm: Any, stream: bool) -> Any:
        if stream:
            return self._events(requests, stream=True)
        return [gathered.output for gathered in self._all(requests, use_tqdm)]

    def _all(self, requests: list[Request], use_tqdm: Any) -> list[Gathered]:
        bar = progress_bar(use_tqdm, len(requests))
        done: list = [None] * len(requests)
        try:
            for place, output in self._places(requests, stream=False):
                if output.output.finished:
                    done[place] = output
                    bar.update(1)
        finally:
            bar.close()
        return done

    def _events(self, requests: list[Request], stream: bool) -> Iterator[RequestOutput]:
        for _, gathered in self._places(requests, stream):
            yield gathered.snapshot()

    def _places(self, requests: list[Request], stream: bool) -> Iterator[tuple[int, Gathered]]:
        """The place of a request whose output has grown, and that output. Whatever ends the
        iteration, an exception as well as Ctrl-C, cancels what is left. Nobody else is waited for to
        let go of the queue: whoever keeps the exception keeps its traceback, and so this frame."""
        queue = self._engine.open_queue()
        try:
            yield from self._served(queue, requests, stream)
        finally:
            queue.close()

    def _served(self, queue: Queue, requests: list[Request],
                stream: bool) -> Iterator[tuple[int, Gathered]]:
        under_way: dict[int, tuple[int, Gathered]] = {}
        following = 0
        while following < len(requests) or under_way:
            while following < len(requests):
                request = requests[following]
                try:
                    number = queue.submit(request.kind, self._body(request, stream))
                except BusyError:
                    break
                under_way[number] = (following, self._gathered(request))
                following += 1
            for event in queue.wait():
                place, gathered = under_way[event["id"]]
                gathered.add(event)
                if event["last"]:
                    del under_way[event["id"]]
                yield place, gathered

    @staticmethod
    def _body(request: Request, stream: bool) -> dict:
        return {**request.body, "stream": True} if stream else request.body

    def _gathered(self, request: Request) -> Gathered:
        return Gathered(str(next(self._names)), request.prompt, request.n)
