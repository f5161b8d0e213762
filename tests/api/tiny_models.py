"""Tiny checkpoints with a tokenizer of bytes, written with nothing but the standard library."""
import json
import math
import random
import struct

WIDTH = 32
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
MERGES = [("y", "e"), ("ye", "s"), ("n", "o")]


def byte_letters():
    """The letters in which byte-level tokenizers write bytes, in the order of the bytes."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = iter(range(256, 512))
    return [chr(b) if b in shown else chr(next(hidden)) for b in range(256)]


VOCAB = byte_letters() + [a + b for a, b in MERGES] + SPECIAL
END = VOCAB.index("<|endoftext|>")


def tokenizer_json(appends_end=True):
    """A byte is a token; "yes" and "no" are tokens; <|endoftext|> follows every text."""
    frame = [{"Sequence": {"id": "A", "type_id": 0}}]
    if appends_end:
        frame.append({"SpecialToken": {"id": "<|endoftext|>", "type_id": 0}})
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True,
                  "use_regex": False}
    return {
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [{"id": VOCAB.index(token), "content": token, "single_word": False,
                          "lstrip": False, "rstrip": False, "normalized": False, "special": True}
                         for token in SPECIAL],
        "normalizer": None, "pre_tokenizer": byte_level, "decoder": byte_level,
        "post_processor": {
            "type": "TemplateProcessing", "single": frame,
            "pair": [*frame, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {"<|endoftext|>": {"id": "<|endoftext|>", "ids": [END],
                                                 "tokens": ["<|endoftext|>"]}}},
        "model": {"type": "BPE", "dropout": None, "unk_token": None,
                  "continuing_subword_prefix": None, "end_of_word_suffix": None,
                  "fuse_unk": False, "byte_fallback": False,
                  "vocab": {token: i for i, token in enumerate(VOCAB)},
                  "merges": [list(pair) for pair in MERGES]}}


def tensors_of(mixes, classes, seed):
    """Llama's tensors. Without `mixes` no layer changes anything, so that a row behind the last
    norm is that of its token's embedding."""
    draw = random.Random(seed)

    def matrix(rows, columns, deviation):
        return [rows, columns], [draw.gauss(0, deviation) for _ in range(rows * columns)]

    out = {"model.embed_tokens.weight": matrix(len(VOCAB), WIDTH, 1),
           "model.norm.weight": ([WIDTH], [1.0] * WIDTH)}
    if classes:
        out["score.weight"] = matrix(classes, WIDTH, 0.3)
    else:
        out["lm_head.weight"] = matrix(len(VOCAB), WIDTH, 0.3)
    for layer in ("model.layers.0.", "model.layers.1."):
        for norm in ("input_layernorm", "post_attention_layernorm"):
            out[layer + norm + ".weight"] = [WIDTH], [1.0] * WIDTH
        for name, rows, columns in (("q", 32, 32), ("k", 16, 32), ("v", 16, 32)):
            out[f"{layer}self_attn.{name}_proj.weight"] = matrix(rows, columns, 0.2)
        out[layer + "self_attn.o_proj.weight"] = matrix(32, 32, 0.3 if mixes else 0)
        for name in ("gate", "up"):
            out[f"{layer}mlp.{name}_proj.weight"] = matrix(48, 32, 0.2)
        out[layer + "mlp.down_proj.weight"] = matrix(32, 48, 0.3 if mixes else 0)
    return out


def write_safetensors(path, tensors):
    header, data = {}, b""
    for name, (shape, values) in tensors.items():
        piece = struct.pack(f"<{len(values)}f", *values)
        header[name] = {"dtype": "F32", "shape": shape,
                        "data_offsets": [len(data), len(data) + len(piece)]}
        data += piece
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def write_model(folder, arch="LlamaForCausalLM", mixes=True, classes=0, seed=1, **config):
    """Writes a model folder and returns its tensors as {name: (shape, values)}."""
    folder.mkdir(parents=True, exist_ok=True)
    whole = {"architectures": [arch], "hidden_size": WIDTH, "intermediate_size": 48,
             "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
             "vocab_size": len(VOCAB), "max_position_embeddings": 512, "rms_norm_eps": 1e-6,
             "torch_dtype": "float32", "eos_token_id": END, **config}
    tensors = tensors_of(mixes, classes, seed)
    if arch.startswith("Qwen3"):
        whole["head_dim"] = 8
        for layer in ("model.layers.0.", "model.layers.1."):
            for norm in ("q_norm", "k_norm"):
                tensors[f"{layer}self_attn.{norm}.weight"] = [8], [1.0] * 8
    (folder / "config.json").write_text(json.dumps(whole))
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer_json()))
    (folder / "tokenizer_config.json").write_text(json.dumps({
        "eos_token": "<|endoftext|>",
        "chat_template": "{% for m in messages %}{{ m.content }}{% endfor %}"}))
    write_safetensors(folder / "model.safetensors", tensors)
    return tensors


def row_of(tensors, token):
    """The row behind the last norm of a model that does not mix."""
    values = tensors["model.embed_tokens.weight"][1][token * WIDTH:(token + 1) * WIDTH]
    values = struct.unpack(f"<{WIDTH}f", struct.pack(f"<{WIDTH}f", *values))
    size = math.sqrt(sum(x * x for x in values) / WIDTH + 1e-6)
    return [x / size for x in values]
