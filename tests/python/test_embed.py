"""Embeddings of a model that is pooled, in a batch and on an event loop."""
import asyncio
import math

import pytest

import skiff
from skiff import AsyncLLM, LLM

from .conftest import DEMO

POOLED = dict(runner="pooling", convert="embed", max_model_len=256)


def length(vector):
    return math.sqrt(sum(x * x for x in vector))


def test_embeddings(llm):
    with LLM(DEMO, **POOLED) as pooled:
        texts = ["Paris", "Bread", "Paris"]
        outputs = pooled.embed(texts, use_tqdm=False)
        paris, bread, again = (output.outputs.embedding for output in outputs)
        assert paris == again != bread and len(paris) == outputs[0].outputs.hidden_size
        assert length(paris) == pytest.approx(1, abs=1e-5)
        assert outputs[0].prompt_token_ids == pooled.tokenize("Paris")
        plain = pooled.embed(pooled.tokenize("Paris"), use_tqdm=False, normalize=False)[0]
        scale = length(plain.outputs.embedding)
        assert [x / scale for x in plain.outputs.embedding] == pytest.approx(paris, abs=1e-5)
        with pytest.raises(skiff.InvalidError, match="dimensions"):
            pooled.embed("Paris", dimensions=3)
        with pytest.raises(skiff.SkiffError):
            pooled.generate("Paris", use_tqdm=False)
    with pytest.raises(skiff.InvalidError, match="gives no embeddings"):
        llm.embed("Paris")


def test_embeddings_on_a_loop():
    async def main():
        async with await AsyncLLM.load(DEMO, **POOLED) as pooled:
            return await asyncio.gather(*(pooled.embed(text) for text in ("Paris", "Paris", "Bread")))

    first, second, other = asyncio.run(main())
    assert first.outputs.embedding == second.outputs.embedding != other.outputs.embedding
