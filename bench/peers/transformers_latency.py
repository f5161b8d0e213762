#!/usr/bin/env python3
"""Time to first token and decode speed of Hugging Face transformers on the CPU, random weights.

    python3 bench/peers/transformers_latency.py bench/configs/qwen2.5-0.5b 256 32 bfloat16

The same shapes as `skiff bench latency FOLDER --load-format dummy --input-len 256 --output-len 32`.
"""
import sys
import time

import torch
from transformers import AutoConfig, AutoModelForCausalLM


def main():
    folder, input_len, output_len, dtype = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    torch.manual_seed(0)
    config = AutoConfig.from_pretrained(folder)
    model = AutoModelForCausalLM.from_config(config, dtype=getattr(torch, dtype)).eval()
    prompt = torch.randint(0, config.vocab_size, (1, input_len))
    with torch.inference_mode():
        for timed in (False, True):
            start = time.perf_counter()
            out = model(prompt, use_cache=True, logits_to_keep=1)
            first = time.perf_counter() - start
            for _ in range(output_len - 1):
                token = out.logits[:, -1:].argmax(-1)
                out = model(token, past_key_values=out.past_key_values, use_cache=True)
            decode = time.perf_counter() - start - first
    print(f"transformers {dtype}, torch {torch.__version__}, {torch.get_num_threads()} threads")
    print(f"time to first    {first * 1e3:.2f} ms for {input_len} tokens: {input_len / first:.0f} tokens/s")
    print(f"decode           {decode * 1e3 / (output_len - 1):.2f} ms a token: "
          f"{(output_len - 1) / decode:.1f} tokens/s")


if __name__ == "__main__":
    main()
