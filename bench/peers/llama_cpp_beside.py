#!/usr/bin/env python3
"""Prompts and decoding on the CPU beside llama.cpp, the same shape, random weights, by turns.

    python3 bench/peers/llama_cpp_beside.py build/cpu/skiff CONFIG.json FOLDER [--rounds 3] [--threads 2]

CONFIG.json is the config.json of a Llama. FOLDER, outside the project, takes the files of weights, which are made once.
Needs llama-cpp-python and gguf. Each round measures every variant once; the table has the best of each, and ratios. Both
sides have their head in the format of the other layers.
"""
import argparse
import json
import os
import re
import subprocess
import sys
import time

import numpy as np

PROMPT, OUTPUT, TOGETHER = 512, 33, 8
OURS = {
    "bf16": [],
    "wint8": ["--quantization", "wint8", "--quantization-config", '{"head": "wint8"}'],
    "int4": ["--quantization", "int4", "--quantization-config", '{"head": "int4"}'],
    "wint4": ["--quantization", "wint4", "--quantization-config", '{"head": "wint4"}'],
    "a8w8": ["--quantization", "a8w8", "--quantization-config", '{"head": "a8w8"}'],
    "w4a8": ["--quantization", "w4a8", "--quantization-config", '{"head": "w4a8"}'],
    "fp8": ["--quantization", "block_wise_fp8", "--quantization-config", '{"head": "block_wise_fp8"}'],
}
BLOCK_BYTES = {"Q8_0": 34, "Q4_0": 18}  # for 32 elements: a scale in float16, then codes


def random_blocks(rng, rows, cols, kind):
    """A matrix [rows, bytes] of blocks whose scales make values of about 0.02."""
    blocks = rng.integers(0, 256, (rows, cols // 32, BLOCK_BYTES[kind]), dtype=np.uint8)
    scale = np.float16(0.02 / (64 if kind == "Q8_0" else 4))
    blocks[:, :, :2] = np.frombuffer(scale.tobytes(), np.uint8)
    return blocks.reshape(rows, -1)


def write_gguf(path, config, kind):
    import gguf

    rng = np.random.default_rng(0)
    hidden, heads, kv = config["hidden_size"], config["num_attention_heads"], config["num_key_value_heads"]
    dim, width, vocab = config.get("head_dim", hidden // heads), config["intermediate_size"], config["vocab_size"]
    out = gguf.GGUFWriter(path, "llama")
    out.add_block_count(config["num_hidden_layers"])
    out.add_context_length(4096)
    out.add_embedding_length(hidden)
    out.add_feed_forward_length(width)
    out.add_head_count(heads)
    out.add_head_count_kv(kv)
    out.add_key_length(dim)
    out.add_value_length(dim)
    out.add_rope_dimension_count(dim)
    out.add_rope_freq_base(config.get("rope_theta", 10000.0))
    out.add_layer_norm_rms_eps(config["rms_norm_eps"])
    out.add_vocab_size(vocab)
    out.add_tokenizer_model("no_vocab")

    def matrix(name, rows, cols):
        out.add_tensor(name, random_blocks(rng, rows, cols, kind), raw_dtype=gguf.GGMLQuantizationType[kind])

    def norm(name):
        out.add_tensor(name, np.ones(hidden, np.float32))

    matrix("token_embd.weight", vocab, hidden)
    norm("output_norm.weight")
    for i in range(config["num_hidden_layers"]):
        at = f"blk.{i}."
        norm(at + "attn_norm.weight")
        matrix(at + "attn_q.weight", heads * dim, hidden)
        matrix(at + "attn_k.weight", kv * dim, hidden)
        matrix(at + "attn_v.weight", kv * dim, hidden)
        matrix(at + "attn_output.weight", hidden, heads * dim)
        norm(at + "ffn_norm.weight")
        matrix(at + "ffn_gate.weight", width, hidden)
        matrix(at + "ffn_up.weight", width, hidden)
        matrix(at + "ffn_down.weight", hidden, width)
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()


class Peer:
    """llama.cpp through its C interface. Every call makes and frees its own context."""

    def __init__(self, path, threads):
        import llama_cpp

        self.lib, self.threads = llama_cpp, threads
        self.silence = llama_cpp.llama_log_callback(lambda level, text, data: None)
        llama_cpp.llama_log_set(self.silence, None)
        self.model = llama_cpp.llama_model_load_from_file(path.encode(), llama_cpp.llama_model_default_params())
        if not self.model:
            sys.exit(f"llama.cpp does not load {path}")

    def context(self, together):
        params = self.lib.llama_context_default_params()
        params.n_ctx, params.n_batch, params.n_ubatch = together * 1024, PROMPT, PROMPT
        params.n_seq_max = together
        params.n_threads = params.n_threads_batch = self.threads
        return self.lib.llama_init_from_model(self.model, params)

    def decode(self, context, rows):
        """rows: (token, position, sequence); only the last one of each sequence has logits."""
        batch = self.lib.llama_batch_init(len(rows), 0, 1)
        last = {seq: i for i, (_, _, seq) in enumerate(rows)}
        for i, (token, position, seq) in enumerate(rows):
            batch.token[i], batch.pos[i], batch.n_seq_id[i] = token, position, 1
            batch.seq_id[i][0] = seq
            batch.logits[i] = last[seq] == i
        batch.n_tokens = len(rows)
        if self.lib.llama_decode(context, batch) != 0:
            sys.exit("llama_decode failed")
        self.lib.llama_synchronize(context)
        self.lib.llama_batch_free(batch)

    def measure(self, together):
        """Returns the seconds of a prompt and the mean seconds of a step that decodes `together` sequences."""
        context = self.context(together)
        self.decode(context, [(1, 0, 0)])
        self.lib.llama_memory_clear(self.lib.llama_get_memory(context), True)
        begin = time.perf_counter()
        for seq in range(together):
            self.decode(context, [(i % 1000 + 1, i, seq) for i in range(PROMPT)])
        prompt = (time.perf_counter() - begin) / together
        steps = []
        for step in range(OUTPUT - 1):
            begin = time.perf_counter()
            self.decode(context, [(step + 1, PROMPT + step, seq) for seq in range(together)])
            steps.append(time.perf_counter() - begin)
        self.lib.llama_free(context)
        return prompt, float(np.mean(steps))


def ours(skiff, folder, flags, threads, together):
    """The same of `skiff bench latency`, which refuses to print times of tokens that differ when asked again."""
    command = [skiff, "bench", "latency", folder, "--load-format", "dummy", "--dtype", "bfloat16", "--device", "cpu",
               "--threads", str(threads), "--input-len", str(PROMPT), "--output-len", str(OUTPUT),
               "--batch-size", str(together), "--max-num-batched-tokens", str(PROMPT)] + flags
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(done.stderr[-2000:])
    prompt = float(re.search(r"tokens: (\d+) tokens/s", done.stdout)[1])
    return prompt, float(re.search(r"^decode .*: ([\d.]+) tokens/s", done.stdout, re.M)[1])


def theirs(path, threads, together):
    """Tokens of prompts and of answers a second, of a process of its own."""
    command = [sys.executable, __file__, "--only", path, "--threads", str(threads), "--together", str(together)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(done.stderr[-2000:])
    return tuple(json.loads(done.stdout))


def variants(args):
    """Names, and functions that measure them."""
    with open(args.config) as file:
        config = json.load(file)
    folder = os.path.join(args.folder, "shape")
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "config.json"), "w") as file:
        json.dump(config, file)
    for kind in BLOCK_BYTES:
        path = os.path.join(args.folder, kind + ".gguf")
        if not os.path.exists(path):
            write_gguf(path, config, kind)
        for together in (1, TOGETHER):
            yield ("llama.cpp " + kind, together), lambda path=path, n=together: theirs(path, args.threads, n)
    for name, flags in OURS.items():
        for together in (1, TOGETHER):
            yield ("skiff " + name, together), lambda f=flags, n=together: ours(args.skiff, folder, f, args.threads, n)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("skiff", nargs="?")
    parser.add_argument("config", nargs="?")
    parser.add_argument("folder", nargs="?")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--names", default="", help="words; only variants that contain one of them, as in Q8_0,wint8")
    parser.add_argument("--only", help=argparse.SUPPRESS)
    parser.add_argument("--together", type=int, default=1, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.only:
        prompt, step = Peer(args.only, args.threads).measure(args.together)
        return print(json.dumps([PROMPT / prompt, args.together / step]))
    if not args.folder:
        parser.error("SKIFF CONFIG.json FOLDER are needed")
    wanted = [(key, run) for key, run in variants(args) if any(word in key[0] for word in args.names.split(","))]
    best = {}
    for _ in range(args.rounds):
        for key, run in wanted:
            best[key] = tuple(map(max, run(), best.get(key, (0, 0))))
            print(f"{key[0]:<16} {key[1]} together: prompt {best[key][0]:7.1f} tokens/s, decode {best[key][1]:7.1f}",
                  flush=True)
    peers = [name for (name, together) in best if together == 1 and name.startswith("llama.cpp")]
    print(f"best of {args.rounds}, load {os.getloadavg()[0]:.1f}; ratios to " + ", ".join(peers) + ", one sequence")
    for (name, together), rates in best.items():
        ratios = [" / ".join(f"{rates[i] / best[peer, 1][i]:.2f}" for peer in peers) for i in (0, 1)]
        print(f"{name:<16} x{together}  prompt {rates[0]:7.1f} ({ratios[0]})  decode {rates[1]:7.1f} ({ratios[1]})")


if __name__ == "__main__":
    main()
