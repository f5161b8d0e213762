"""AsyncLLM on an event loop: streams, aborts, cancelled tasks, and the end."""
import asyncio

import pytest

import skiff
from skiff import AsyncLLM, SamplingParams

from .conftest import DEMO
from .test_llm import GREEDY, QUESTION, running

ENDLESS = SamplingParams(max_tokens=1900, ignore_eos=True)


def on_a_loop(scenario, **options):
    """Runs `scenario(model)` with a model of its own."""
    async def main():
        async with await AsyncLLM.load(DEMO, seed=7, **options) as model:
            return await asyncio.wait_for(scenario(model), 60)
    return asyncio.run(main())


async def last_of(outputs):
    last = None
    async for last in outputs:
        pass
    return last


def test_streams_give_what_a_batch_gives(llm):
    prompts = [f"Item {i} is" for i in range(6)]
    whole = [output.outputs.token_ids for output in llm.generate(prompts, GREEDY, use_tqdm=False)]

    async def scenario(model):
        outputs = await asyncio.gather(*(last_of(model.generate(prompt, GREEDY))
                                         for prompt in prompts))
        assert [output.outputs.token_ids for output in outputs] == whole
        assert all(output.finished for output in outputs)
        answer = await last_of(model.chat(QUESTION, GREEDY))
        assert "Paris" in answer.outputs.text
        with pytest.raises(skiff.InvalidError):
            await last_of(model.generate("A", SamplingParams(top_p=2)))

    on_a_loop(scenario)


def test_a_thousand_cancelled_tasks_leave_nothing():
    async def scenario(model):
        async def read(pieces):
            async for _ in model.generate("Once upon a time", ENDLESS):
                pieces.append(1)

        pieces = []
        tasks = [asyncio.create_task(read(pieces)) for _ in range(1000)]
        while not pieces:
            await asyncio.sleep(0.001)
        for place, task in enumerate(tasks):
            task.cancel()
            if place % 100 == 0:
                await asyncio.sleep(0.002)
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(result, asyncio.CancelledError) for result in results)
        assert not model._open and not model._named
        assert (await last_of(model.generate("Item 3 is", GREEDY))).finished
        for _ in range(100):
            if running(model) == 0:
                break
            await asyncio.sleep(0.05)
        assert running(model) == 0 and not model._early

    on_a_loop(scenario)


def test_an_aborted_request_gives_what_there_is():
    async def scenario(model):
        outputs = model.generate("Once", ENDLESS, request_id="mine")
        first = await anext(outputs)
        assert not first.finished and first.request_id == "mine"
        with pytest.raises(ValueError, match="under way"):
            await last_of(model.generate("Twice", ENDLESS, request_id="mine"))
        await model.abort("mine")
        await model.abort("never heard of")
        last = await last_of(outputs)
        assert last.finished and last.outputs.finish_reason == "abort"
        assert last.outputs.token_ids[:1] == first.outputs.token_ids[:1]

    on_a_loop(scenario)


def test_a_name_is_taken_before_its_request_has_begun():
    """While another thread checks and tokenizes, the name can be aborted, and given to no other."""
    async def scenario(model):
        first = asyncio.create_task(last_of(model.generate("Once", ENDLESS, request_id="mine")))
        await asyncio.sleep(0)
        with pytest.raises(ValueError, match="under way"):
            await last_of(model.generate("Twice", GREEDY, request_id="mine"))
        await model.abort("mine")
        output = await first
        assert output.finished and output.outputs.finish_reason == "abort"
        again = await last_of(model.generate("Once", GREEDY, request_id="mine"))
        assert again.outputs.finish_reason != "abort" and not model._open and not model._named

    on_a_loop(scenario)


def test_requests_wait_for_room():
    async def scenario(model):
        outputs = await asyncio.gather(*(last_of(model.generate("Item 3 is", GREEDY))
                                         for _ in range(12)))
        assert len({tuple(output.outputs.token_ids) for output in outputs}) == 1

    on_a_loop(scenario, max_concurrency=2)


def test_closing_ends_iterations():
    async def scenario(model):
        begun = asyncio.Event()

        async def read():
            async for _ in model.generate("Once", ENDLESS):
                begun.set()

        reading = asyncio.create_task(read())
        await begun.wait()
        await model.close()
        with pytest.raises(skiff.ClosedError):
            await reading

    on_a_loop(scenario)


def test_closing_ends_what_has_not_begun():
    """More requests than threads that submit them: close() comes when some have a number that their
    iterations do not know yet."""
    async def main():
        model = await AsyncLLM.load(DEMO, seed=7)
        reading = [asyncio.create_task(last_of(model.generate("Once", ENDLESS))) for _ in range(40)]
        await asyncio.sleep(0)
        await model.close()
        ends = await asyncio.wait_for(asyncio.gather(*reading, return_exceptions=True), 60)
        assert all(isinstance(end, skiff.ClosedError) for end in ends), ends

    asyncio.run(main())
