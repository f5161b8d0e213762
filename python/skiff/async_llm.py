"""AsyncLLM: a model in this process, for asyncio."""
from __future__ import annotations

import asyncio
import functools
import itertools
from typing import Any, AsyncGenerator, AsyncIterator, Optional, Union

from ._engine import Engine, Queue
from ._gather import Gathered
from ._library import BusyError, ClosedError, SkiffError
from ._options import engine_options
from ._requests import Prompt, Request, chat, completion, pooled
from .outputs import ClassificationRequestOutput, EmbeddingRequestOutput, RequestOutput
from .sampling_params import SamplingParams, one_for_each

_RETRY_SECONDS = 0.01  # between two attempts at a request for which there is no room


class _Open:
    """A request under way. Outputs grow, so a consumer that is late sees the newest alone."""

    def __init__(self, gathered: Gathered):
        self.gathered = gathered
        self.number: Optional[int] = None  # until submit() has given one
        self.changed = asyncio.Event()
        self.failure: Optional[SkiffError] = None


class AsyncLLM:
    """Loads `model` in its constructor; `await AsyncLLM.load(...)` leaves the loop free meanwhile.
    Belongs to the event loop that first asks it for something, and is used there alone."""

    def __init__(self, model: Any, *, tokenizer: Any = None, **engine_args: Any):
        # Somebody waits for the tokens of a stream: steps are kept short (--step-time).
        options = engine_options(model, {**engine_args, "tokenizer": tokenizer}, step_time=0)
        self._engine = Engine(options)
        self._queue: Optional[Queue] = None
        self._loop: Optional[asyncio.AbstractEventLoop] = None
        self._open: dict[int, _Open] = {}
        self._named: dict[str, _Open] = {}  # also those that have no number yet
        self._failure: Optional[SkiffError] = None  # what ended all requests
        self._early: dict[int, list[dict]] = {}  # events of requests that submit() has not named yet
        self._names = itertools.count()

    @classmethod
    async def load(cls, model: Any, **engine_args: Any) -> "AsyncLLM":
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(None, functools.partial(cls, model, **engine_args))

    async def __aenter__(self) -> "AsyncLLM":
        return self

    async def __aexit__(self, *_: Any) -> None:
        await self.close()

    async def close(self) -> None:
        """Cancels what runs and ends the engine; iterations under way raise ClosedError."""
        if self._loop and self._queue:
            self._loop.remove_reader(self._queue.fileno())
        self._fail_all(ClosedError("the engine has been closed", code="closed"))
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, self._engine.close)

    @property
    def info(self) -> dict:
        return dict(self._engine.info)

    def metrics(self) -> str:
        return self._engine.metrics()

    def generate(self, prompt: Prompt, sampling_params: Optional[SamplingParams] = None,
                 request_id: Optional[str] = None) -> AsyncIterator[RequestOutput]:
        """Outputs as they grow. Leaving the iteration cancels the request."""
        params = one_for_each(sampling_params, 1)[0]
        return self._run(completion(prompt, params), request_id)

    def chat(self, messages: list, sampling_params: Optional[SamplingParams] = None,
             request_id: Optional[str] = None, *, tools: Optional[list[dict]] = None,
             tool_choice: Union[str, dict, None] = None,
             chat_template_kwargs: Optional[dict] = None, chat_template: Optional[str] = None,
             ) -> AsyncIterator[RequestOutput]:
        """The same for a conversation."""
        params = one_for_each(sampling_params, 1)[0]
        return self._run(chat(messages, params, tools=tools, tool_choice=tool_choice,
                              chat_template_kwargs=chat_template_kwargs,
                              chat_template=chat_template), request_id)

    async def embed(self, prompt: Prompt, request_id: Optional[str] = None, *,
                    dimensions: Optional[int] = None,
                    normalize: Optional[bool] = None) -> EmbeddingRequestOutput:
        """See LLM.embed()."""
        request = pooled("embedding", prompt, dimensions=dimensions, normalize=normalize)
        return (await self._last(request, request_id)).embedded()

    async def classify(self, prompt: Prompt, request_id: Optional[str] = None, *,
                       activation: Optional[bool] = None) -> ClassificationRequestOutput:
        """See LLM.classify()."""
        request = pooled("classify", prompt, activation=activation)
        return (await self._last(request, request_id)).classified()

    async def _last(self, request: Request, request_id: Optional[str]) -> Gathered:
        last = None
        async for last in self._grow(request, request_id):
            pass
        assert last is not None
        return last

    async def abort(self, request_id: str) -> None:
        """Ends a request: its iteration gives what there is, with the finish reason abort. A name
        that is not under way is ignored."""
        one = self._named.get(request_id)
        if one is None:
            return
        if one.number is not None:
            self._bound_queue().cancel(one.number)
        for output in one.gathered.output.outputs:
            output.finish_reason = output.finish_reason or "abort"
        one.gathered.output.finished = True
        one.changed.set()

    def _bound_queue(self) -> Queue:
        loop = asyncio.get_running_loop()
        if self._queue is None:
            self._queue, self._loop = self._engine.open_queue(), loop
            loop.add_reader(self._queue.fileno(), self._collect)
        if loop is not self._loop:
            raise RuntimeError("this AsyncLLM belongs to another event loop")
        return self._queue

    def _collect(self) -> None:
        """Called by the loop when there are events."""
        assert self._queue is not None and self._loop is not None
        try:
            events = self._queue.wait(0)
        except SkiffError as failure:
            self._loop.remove_reader(self._queue.fileno())
            self._fail_all(failure)
            return
        for event in events:
            one = self._open.get(event["id"])
            if one is None:
                self._early.setdefault(event["id"], []).append(event)
            else:
                one.gathered.add(event)
                one.changed.set()

    def _fail_all(self, failure: SkiffError) -> None:
        self._failure = failure  # also that of a request whose number is still to come
        for one in self._open.values():
            one.failure = failure
            one.changed.set()

    async def _submit(self, queue: Queue, request: Request, one: _Open) -> None:
        """Checks and tokenizes on another thread, because a long prompt takes milliseconds. The
        request may be aborted meanwhile."""
        streams = request.kind in ("completion", "chat")
        body = {**request.body, "stream": True} if streams else request.body
        loop = asyncio.get_running_loop()
        while not one.gathered.output.finished:
            submitted = loop.run_in_executor(None, queue.submit, request.kind, body)
            try:
                return self._begin(queue, await asyncio.shield(submitted), one)
            except BusyError:
                await asyncio.sleep(_RETRY_SECONDS)
            except asyncio.CancelledError:
                submitted.add_done_callback(functools.partial(self._forget, queue))
                raise

    def _begin(self, queue: Queue, number: int, one: _Open) -> None:
        """The request has its number; what came before that is taken over."""
        early = self._early.pop(number, [])
        if one.gathered.output.finished:
            queue.cancel(number)
            return
        self._open[number], one.number, one.failure = one, number, self._failure
        for event in early:
            one.gathered.add(event)
        if early or one.failure:
            one.changed.set()

    def _forget(self, queue: Queue, submitted: "asyncio.Future[int]") -> None:
        """The request was submitted for somebody who has left meanwhile."""
        if not submitted.cancelled() and submitted.exception() is None:
            queue.cancel(submitted.result())
            self._early.pop(submitted.result(), None)

    async def _run(self, request: Request,
                   request_id: Optional[str]) -> AsyncIterator[RequestOutput]:
        growing = self._grow(request, request_id)
        try:
            async for gathered in growing:
                yield gathered.snapshot()
        finally:
            await growing.aclose()

    async def _grow(self, request: Request,
                    request_id: Optional[str]) -> AsyncGenerator[Gathered, None]:
        """What has come of a request, whenever that has grown."""
        queue = self._bound_queue()
        name = request_id if request_id is not None else f"request-{next(self._names)}"
        if name in self._named:
            raise ValueError(f"a request named \"{name}\" is under way")
        one = self._named[name] = _Open(Gathered(name, request.prompt, request.n))
        try:
            await self._submit(queue, request, one)
            finished = False
            while not finished:
                await one.changed.wait()
                one.changed.clear()
                if one.failure:
                    raise one.failure
                finished = one.gathered.output.finished
                yield one.gathered
        finally:
            del self._named[name]
            if one.number is not None:
                del self._open[one.number]
                if not one.gathered.output.finished and one.failure is None:
                    queue.cancel(one.number)
