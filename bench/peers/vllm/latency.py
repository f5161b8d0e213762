#!/usr/bin/env python3
"""What `skiff bench latency` measures, measured on vLLM: one JSON line for each figure.

    latency.py MODEL [--batches 1,32,128] [--load-format dummy] [--budget SECONDS]

MODEL: folder with config.json; --load-format auto reads its safetensors. Prompts are random ids, sampling is greedy,
stop tokens are ignored; everything else is vLLM's own default (torch.compile, CUDA graphs, an engine process of its own).
  decode_bB     B prompts of 1,024 tokens at once, 129 tokens each: tokens/s from the moment when every request has its
                first token until one has its last, the median of three. At batch 1 also as the difference between
                generating 129 tokens and one; the better of the two counts.
  prefill_8192  wall time of a prompt of 8,192 tokens and one token, the median of five
"""
import argparse
import json
import os
import random
import statistics
import time

BEGIN = time.monotonic()
PROMPT, TOKENS = 1024, 129
for key, value in {"VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1", "VLLM_USE_FLASHINFER_SAMPLER": "0", "TOKENIZERS_PARALLELISM": "false",
                   "VLLM_HOST_IP": "127.0.0.1"}.items():
    os.environ.setdefault(key, value)


def emit(metric, **values):
    rounded = {key: round(value, 3) if isinstance(value, float) else value for key, value in values.items()}
    print(json.dumps({"engine": "vllm", "metric": metric, **rounded, "at": round(time.monotonic() - BEGIN, 1)}), flush=True)


class Bench:
    def __init__(self, args, vocab):
        from vllm import LLM
        self.llm = LLM(model=args.model, skip_tokenizer_init=True, load_format=args.load_format, dtype="bfloat16", seed=0,
                       max_model_len=8448, max_num_seqs=max(128, *args.batches), enable_prefix_caching=False, disable_log_stats=True,
                       generation_config="vllm")
        self.engine, self.vocab, self.rng, self.number = self.llm.llm_engine, vocab, random.Random(1), 0

    def prompts(self, count, length=PROMPT):
        return [{"prompt_token_ids": [self.rng.randrange(1000, self.vocab - 1000) for _ in range(length)]} for _ in range(count)]

    @staticmethod
    def params(tokens, **more):
        from vllm import SamplingParams
        return SamplingParams(temperature=0.0, max_tokens=tokens, ignore_eos=True, detokenize=False, **more)

    def seconds(self, prompts, tokens):
        begin = time.perf_counter()
        outputs = self.llm.generate(prompts, self.params(tokens), use_tqdm=False)
        taken = time.perf_counter() - begin
        assert all(len(output.outputs[0].token_ids) == tokens for output in outputs)
        return taken

    def steady(self, batch):
        """Tokens per second while all requests decode."""
        from vllm.sampling_params import RequestOutputKind
        params = self.params(TOKENS, output_kind=RequestOutputKind.DELTA)
        for prompt in self.prompts(batch):
            self.number += 1
            self.engine.add_request(str(self.number), prompt, params)
        started, begin, end, tokens, finished = set(), None, None, 0, 0
        while finished < batch:
            outputs = self.engine.step()
            now = time.perf_counter()
            fresh = sum(len(output.outputs[0].token_ids) for output in outputs)
            started.update(output.request_id for output in outputs if output.outputs[0].token_ids)
            if begin is not None and finished == 0:
                tokens, end = tokens + fresh, now
            elif begin is None and len(started) == batch:
                begin = now
            finished += sum(output.finished for output in outputs)
        return tokens / (end - begin)

    def decode(self, batch):
        self.steady(batch)
        steady = statistics.median(self.steady(batch) for _ in range(3))
        values = {"steady": steady}
        if batch == 1:
            whole = statistics.median(self.seconds(self.prompts(1), TOKENS) for _ in range(3))
            first = statistics.median(self.seconds(self.prompts(1), 1) for _ in range(3))
            values["difference"] = (TOKENS - 1) / (whole - first)
        emit(f"decode_b{batch}", tok_s=max(values.values()), **values)

    def prefill(self, length=8192):
        times = [self.seconds(self.prompts(1, length), 1) for _ in range(6)][1:]
        emit(f"prefill_{length}", ms=1e3 * statistics.median(times))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--batches", type=lambda text: [int(word) for word in text.split(",")], default=[1, 32, 128])
    parser.add_argument("--load-format", default="dummy")
    parser.add_argument("--budget", type=float, default=1e9, help="no figure is begun after so many seconds")
    args = parser.parse_args()
    with open(os.path.join(args.model, "config.json")) as file:
        vocab = json.load(file)["vocab_size"]
    bench = Bench(args, vocab)
    config = bench.engine.vllm_config
    emit("start", seconds=time.monotonic() - BEGIN, max_num_batched_tokens=config.scheduler_config.max_num_batched_tokens)
    bench.seconds(bench.prompts(2), 8)
    for work in [bench.prefill, *(lambda batch=batch: bench.decode(batch) for batch in args.batches)]:
        if time.monotonic() - BEGIN < args.budget:
            work()


if __name__ == "__main__":  # the engine's process imports this file, too
    main()
