#!/usr/bin/env python3
"""Writes a checkpoint of the right shapes and random weights, which any engine reads: to measure loading from files, and
to compare engines on the same weights.

    bench/make_weights.py CONFIG FOLDER [--shards N] [--threads N]

CONFIG: config.json of a Llama-like model (Llama, Qwen2, Mistral) or of an ERNIE-4.5 mixture of experts. FOLDER gets
config.json with head_dim in it, N safetensors files and their index. Weights are bfloat16 of 0.008 to 0.03 in size and
of either sign, pieces of one pool that start at random places. Norms are 1 and biases 0. What attention puts out is 16
times smaller: random attention is an average over the prompt, which would make its tokens alike, and a router would then
send them to the same experts.
"""
import argparse
import concurrent.futures
import json
import os
import random
import struct
import time

POOL = 64 << 20
ONE = struct.pack("<H", 0x3F80)


def attention(c, layer):
    hidden, bias = c["hidden_size"], c["model_type"] == "qwen2"
    q, kv = c["head_dim"] * c["num_attention_heads"], c["head_dim"] * c["num_key_value_heads"]
    for norm in "input_layernorm", "post_attention_layernorm":
        yield f"{layer}.{norm}.weight", [hidden]
    for name, rows in ("q", q), ("k", kv), ("v", kv):
        yield f"{layer}.self_attn.{name}_proj.weight", [rows, hidden]
        if bias:
            yield f"{layer}.self_attn.{name}_proj.bias", [rows]
    yield f"{layer}.self_attn.o_proj.weight", [hidden, q]


def dense(c, block, width):
    for name in "gate", "up":
        yield f"{block}.{name}_proj.weight", [width, c["hidden_size"]]
    yield f"{block}.down_proj.weight", [c["hidden_size"], width]


def has_experts(c, i):
    if c["model_type"] != "ernie4_5_moe":
        return False
    end = c.get("moe_layer_end_index", -1)
    last = c["num_hidden_layers"] - 1 if end == -1 else end
    return c.get("moe_layer_start_index", 1) <= i <= last and (i + 1) % c.get("moe_layer_interval", 1) == 0


def experts(c, block):
    count, width = c["moe_num_experts"], c["moe_intermediate_size"]
    yield f"{block}.gate.weight", [count, c["hidden_size"]]
    yield f"{block}.moe_statics.e_score_correction_bias", [1, count]
    for i in range(count):
        yield from dense(c, f"{block}.experts.{i}", width)
    if c.get("moe_num_shared_experts"):
        yield from dense(c, f"{block}.shared_experts", width * c["moe_num_shared_experts"])


def tensors(c):
    """(name, shape) in the order in which they are written."""
    hidden, vocab = c["hidden_size"], c["vocab_size"]
    yield "model.embed_tokens.weight", [vocab, hidden]
    for i in range(c["num_hidden_layers"]):
        layer = f"model.layers.{i}"
        yield from attention(c, layer)
        if has_experts(c, i):
            yield from experts(c, f"{layer}.mlp")
        else:
            yield from dense(c, f"{layer}.mlp", c["intermediate_size"])
    yield "model.norm.weight", [hidden]
    if not c.get("tie_word_embeddings"):
        yield "lm_head.weight", [vocab, hidden]


def num_bytes(shape):
    count = 2
    for n in shape:
        count *= n
    return count


def pieces(name, size, pools, rng):
    """The bytes of one tensor, as pieces of a pool."""
    if name.endswith("norm.weight"):
        yield ONE * (size // 2)
    elif name.endswith("bias"):
        yield bytes(size)
    else:
        pool = pools["small" if name.endswith("o_proj.weight") else "usual"]
        start = 2 * rng.randrange(len(pool) // 2)
        while size > 0:
            piece = pool[start:start + size]
            yield piece
            size, start = size - len(piece), 0


def write_shard(path, shard, pools, seed):
    rng, header, at = random.Random(seed), {}, 0
    for name, shape in shard:
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + num_bytes(shape)]}
        at += num_bytes(shape)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb", buffering=0) as out:
        out.write(struct.pack("<Q", len(text)) + text)
        for name, shape in shard:
            for piece in pieces(name, num_bytes(shape), pools, rng):
                while len(piece) > 0:
                    piece = piece[out.write(piece):]


def make_pools():
    raw = bytearray(random.Random(1).randbytes(POOL))
    high = bytes(raw[1::2])
    pools = {}
    # The upper byte of a bfloat16: its sign, and all of its exponent but the last bit.
    for kind, exponent in ("usual", 0x3C), ("small", 0x3A):
        raw[1::2] = high.translate(bytes(exponent | (b & 0x80) for b in range(256)))
        pools[kind] = memoryview(bytes(raw))
    return pools


def read_config(path):
    with open(path) as file:
        config = json.load(file)
    if config["model_type"] not in ("llama", "mistral", "qwen2", "ernie4_5_moe"):
        raise SystemExit(f"{path}: model_type \"{config['model_type']}\" is not among those that this program knows")
    config.setdefault("head_dim", config["hidden_size"] // config["num_attention_heads"])
    return config


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config")
    parser.add_argument("folder")
    parser.add_argument("--shards", type=int, default=4)
    parser.add_argument("--threads", type=int, default=8)
    args = parser.parse_args()
    begin = time.monotonic()
    config = read_config(args.config)
    everything = list(tensors(config))
    total = sum(num_bytes(shape) for _, shape in everything)
    shards = [[] for _ in range(args.shards)]
    done = 0
    for tensor in everything:
        shards[min(args.shards - 1, done * args.shards // total)].append(tensor)
        done += num_bytes(tensor[1])

    pools = make_pools()
    os.makedirs(args.folder, exist_ok=True)
    where, jobs = {}, []
    with concurrent.futures.ThreadPoolExecutor(args.threads) as threads:
        for i, shard in enumerate(shards):
            name = f"model-{i + 1:05d}-of-{args.shards:05d}.safetensors"
            jobs.append(threads.submit(write_shard, os.path.join(args.folder, name), shard, pools, i))
            where.update({tensor: name for tensor, _ in shard})
    for job in jobs:
        job.result()  # raises what the thread raised
    with open(os.path.join(args.folder, "config.json"), "w") as file:
        json.dump(config, file, indent=1)
    with open(os.path.join(args.folder, "model.safetensors.index.json"), "w") as file:
        json.dump({"metadata": {"total_size": total}, "weight_map": where}, file)
    print(f"{total / 1e9:.2f} GB in {args.shards} files, {time.monotonic() - begin:.1f} s")


if __name__ == "__main__":
    main()
