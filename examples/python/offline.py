"""Text without a server: a batch, a chat as it is written, and a reply of a given form.

    pip install . && python examples/python/offline.py models/demo
"""
import sys

from skiff import LLM, SamplingParams, StructuredOutputsParams


def main(model):
    with LLM(model) as llm:
        prompts = ["The capital of France is", "Water boils at"]
        greedy = SamplingParams(temperature=0, max_tokens=12)
        for output in llm.generate(prompts, greedy, use_tqdm=False):
            print(repr(output.prompt), "->", repr(output.outputs[0].text))

        question = [{"role": "user", "content": "What is the capital of Japan?"}]
        for output in llm.chat(question, greedy, stream=True):
            print(output.outputs.delta, end="", flush=True)
        print()

        form = SamplingParams(structured_outputs=StructuredOutputsParams(choice=["yes", "no"]))
        print(llm.generate("Is water wet?", form, use_tqdm=False)[0].outputs.text)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "models/demo")
