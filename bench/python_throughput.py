"""Tokens per second of skiff.LLM, on the requests of `skiff bench throughput` (random tokens).

    PYTHONPATH=python SKIFF_LIBRARY=build/cpu python bench/python_throughput.py models/demo
    build/cpu/skiff bench throughput models/demo --num-prompts 64
"""
import argparse
import random
import time

from skiff import LLM, SamplingParams


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("--num-prompts", type=int, default=64)
    parser.add_argument("--input-len", type=int, default=512)
    parser.add_argument("--output-len", type=int, default=64)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--stream", action="store_true")
    args = parser.parse_args()
    draw = random.Random(1)
    with LLM(args.model, threads=args.threads, enable_prefix_caching=False) as llm:
        size = llm.info["vocab_size"]
        prompts = [[draw.randrange(size) for _ in range(args.input_len)]
                   for _ in range(args.num_prompts)]
        params = SamplingParams(temperature=0, max_tokens=args.output_len, ignore_eos=True)
        llm.generate(prompts[:2], params, use_tqdm=False)
        start = time.perf_counter()
        if args.stream:
            last = {output.request_id: output for output in llm.stream(prompts, params)}
            outputs = list(last.values())
        else:
            outputs = llm.generate(prompts, params, use_tqdm=False)
        seconds = time.perf_counter() - start
    tokens = sum(len(output.outputs.token_ids) for output in outputs)
    if tokens != args.num_prompts * args.output_len:
        raise SystemExit(f"{tokens} tokens came, {args.num_prompts * args.output_len} were asked for")
    print(f"{args.num_prompts / seconds:.2f} requests/s, {tokens / seconds:.1f} output tokens/s")


if __name__ == "__main__":
    main()
