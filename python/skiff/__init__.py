"""Skiff: language models in this process, without a server.

    from skiff import LLM, SamplingParams

    with LLM("models/demo") as llm:
        outputs = llm.generate(["The capital of France is"], SamplingParams(max_tokens=8))
        print(outputs[0].outputs[0].text)
"""
from ._library import (BusyError, ClosedError, ForkedError, InvalidError, LoadError, SkiffError,
                       library)
from .async_llm import AsyncLLM
from .llm import LLM
from .outputs import (ClassificationOutput, ClassificationRequestOutput, CompletionOutput,
                      CompletionOutputs, EmbeddingOutput, EmbeddingRequestOutput, Logprob,
                      RequestMetrics, RequestOutput)
from .sampling_params import GuidedDecodingParams, SamplingParams, StructuredOutputsParams

__all__ = [
    "AsyncLLM", "BusyError", "ClassificationOutput", "ClassificationRequestOutput", "ClosedError",
    "CompletionOutput", "CompletionOutputs", "EmbeddingOutput",
    "EmbeddingRequestOutput", "ForkedError",
    "GuidedDecodingParams", "InvalidError", "LLM", "LoadError", "Logprob", "RequestMetrics",
    "RequestOutput", "SamplingParams", "SkiffError", "StructuredOutputsParams", "version",
]


def version() -> str:
    """The version of libskiff.so."""
    return library().skiff_version().decode()
