#!/usr/bin/env python3
"""Writes a checkpoint of the right shapes and random weights, to measure loading from files.

    bench/make_weights.py CONFIG FOLDER [--shards N]

CONFIG: config.json of a dense Llama-like model (Llama, Qwen2, Mistral). FOLDER gets config.json, N safetensors
files and their index. Weights are bfloat16 of 0.004 to 0.03 in size; the same 16 MB of them over and over.
"""
import argparse
import json
import os
import random
import struct


def tensors(c):
    """(name, shape) in the order in which they are written."""
    hidden, inner, vocab = c["hidden_size"], c["intermediate_size"], c["vocab_size"]
    dim = c.get("head_dim") or hidden // c["num_attention_heads"]
    q, kv = dim * c["num_attention_heads"], dim * c["num_key_value_heads"]
    bias = c["model_type"] == "qwen2"
    yield "model.embed_tokens.weight", [vocab, hidden]
    for i in range(c["num_hidden_layers"]):
        layer = f"model.layers.{i}"
        for norm in "input_layernorm", "post_attention_layernorm":
            yield f"{layer}.{norm}.weight", [hidden]
        for name, rows in ("q", q), ("k", kv), ("v", kv):
            yield f"{layer}.self_attn.{name}_proj.weight", [rows, hidden]
            if bias:
                yield f"{layer}.self_attn.{name}_proj.bias", [rows]
        yield f"{layer}.self_attn.o_proj.weight", [hidden, q]
        for name in "gate", "up":
            yield f"{layer}.mlp.{name}_proj.weight", [inner, hidden]
        yield f"{layer}.mlp.down_proj.weight", [hidden, inner]
    yield "model.norm.weight", [hidden]
    if not c.get("tie_word_embeddings"):
        yield "lm_head.weight", [vocab, hidden]


def num_bytes(shape):
    count = 2
    for n in shape:
        count *= n
    return count


def write_shard(path, shard, weights):
    header, at = {}, 0
    for name, shape in shard:
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + num_bytes(shape)]}
        at += num_bytes(shape)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        while at > 0:
            out.write(memoryview(weights)[:at])
            at -= min(at, len(weights))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config")
    parser.add_argument("folder")
    parser.add_argument("--shards", type=int, default=4)
    args = parser.parse_args()
    with open(args.config) as file:
        config = json.load(file)
    everything = list(tensors(config))
    total = sum(num_bytes(shape) for _, shape in everything)
    shards = [[] for _ in range(args.shards)]
    done = 0
    for tensor in everything:
        shards[min(args.shards - 1, done * args.shards // total)].append(tensor)
        done += num_bytes(tensor[1])

    raw = bytearray(random.Random(1).randbytes(16 << 20))
    raw[1::2] = bytes(0x3C | (b & 0x80) for b in raw[1::2])  # sign and exponent
    weights = bytes(raw)
    os.makedirs(args.folder, exist_ok=True)
    where = {}
    for i, shard in enumerate(shards):
        name = f"model-{i + 1:05d}-of-{args.shards:05d}.safetensors"
        write_shard(os.path.join(args.folder, name), shard, weights)
        where.update({tensor: name for tensor, _ in shard})
    with open(os.path.join(args.folder, "config.json"), "w") as file:
        json.dump(config, file, indent=1)
    with open(os.path.join(args.folder, "model.safetensors.index.json"), "w") as file:
        json.dump({"metadata": {"total_size": total}, "weight_map": where}, file)
    print(f"{total / 1e9:.2f} GB in {args.shards} files")


if __name__ == "__main__":
    main()
