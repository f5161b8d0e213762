"""Embeddings and classes of models that are pooled, in a batch and on an event loop."""
import asyncio
import math
import sys

import pytest

import skiff
from skiff import AsyncLLM, LLM

from .conftest import DEMO, ROOT

sys.path.append(str(ROOT / "tests/api"))
from tiny_models import write_model  # noqa: E402  the tests of the API have it

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


def test_classes(llm, tmp_path):
    write_model(tmp_path / "classes", "LlamaForSequenceClassification", classes=3,
                id2label={str(i): f"c{i}" for i in range(3)})
    with LLM(tmp_path / "classes", runner="pooling") as model:
        outputs = model.classify(["yes", "no", "yes"], use_tqdm=False)
        yes, no, again = (output.outputs.probs for output in outputs)
        assert yes == again != no and outputs[0].outputs.num_classes == 3
        assert sum(yes) == pytest.approx(1, abs=1e-6)
        raw = model.classify("yes", use_tqdm=False, activation=False)[0].outputs.probs
        powers = [math.exp(x - max(raw)) for x in raw]
        assert [x / sum(powers) for x in powers] == pytest.approx(yes, abs=1e-6)
        with pytest.raises(skiff.InvalidError, match="gives no embeddings"):
            model.embed("yes")

    async def main():
        async with await AsyncLLM.load(tmp_path / "classes", runner="pooling") as model:
            return await model.classify("yes")

    assert asyncio.run(main()).outputs.probs == yes
    with pytest.raises(skiff.InvalidError, match="has no classes"):
        llm.classify("yes")
