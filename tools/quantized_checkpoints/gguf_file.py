"""The gguf package writes its own format and dequantizes it."""
import gguf
import numpy as np

NAMES = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight",
         "lm_head.weight": "output.weight"}
PARTS = {"input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm", "self_attn.q_proj": "attn_q",
         "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
         "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
         "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm", "mlp.gate": "ffn_gate_inp",
         "mlp.experts.gate_proj": "ffn_gate_exps", "mlp.experts.up_proj": "ffn_up_exps",
         "mlp.experts.down_proj": "ffn_down_exps"}


def file_name(name):
    if name in NAMES:
        return NAMES[name]
    layer, part = name[len("model.layers."):-len(".weight")].split(".", 1)
    return f"blk.{layer}.{PARTS[part]}.weight"


def paired(w, heads):
    """Llama's rows of q and k as llama.cpp wants them: the halves of a head take turns."""
    return w.reshape(heads, 2, w.shape[0] // heads // 2, w.shape[1]).swapaxes(1, 2).reshape(w.shape)


def unpaired(w, heads):
    return w.reshape(heads, w.shape[0] // heads // 2, 2, w.shape[1]).swapaxes(1, 2).reshape(w.shape)


def rope_factors(dim, theta, s):
    """Llama 3.1's scaling as a factor for each pair of dimensions."""
    speed = theta ** -(np.arange(0, dim, 2, dtype=np.float64) / dim)
    turns = s["original_max_position_embeddings"] * speed / (2 * np.pi)
    smooth = np.clip((turns - s["low_freq_factor"]) / (s["high_freq_factor"] - s["low_freq_factor"]), 0, 1)
    return (1 / ((1 - smooth) / s["factor"] + smooth)).astype(np.float32)


def stacked(weights):
    """The matrices of a layer's experts as one tensor, with the names of their parts."""
    out = {}
    for name, w in weights.items():
        at = name.find(".experts.")
        if at < 0:
            out[name] = [(name, w)]
            continue
        part = name[at + len(".experts."):].split(".", 1)[1]
        out.setdefault(f"{name[:at]}.experts.{part}", []).append((name, w))
    return out


def write(model, path, kind, stored_names, fnv, scaling=None):
    config = model.config
    mixture = hasattr(config, "num_experts")
    writer = gguf.GGUFWriter(path, "qwen3moe" if mixture else "llama")
    if mixture:
        writer.add_key_length(config.head_dim)
        writer.add_expert_count(config.num_experts)
        writer.add_expert_used_count(config.num_experts_per_tok)
        writer.add_expert_feed_forward_length(config.moe_intermediate_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(10000.0)
    writer.add_vocab_size(config.vocab_size)
    tokens = ["<unk>", "<s>", "</s>"] + [chr(c) for c in range(33, 33 + config.vocab_size - 3)]
    writer.add_tokenizer_model("llama")
    writer.add_token_list(tokens)
    writer.add_token_scores([0.0] * 3 + [-float(i) for i in range(config.vocab_size - 3)])
    writer.add_token_types([2, 3, 3] + [1] * (config.vocab_size - 3))
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    if scaling:
        dim = config.hidden_size // config.num_attention_heads
        writer.add_tensor("rope_freqs.weight", rope_factors(dim, 10000.0, scaling))
    values, digests = {}, {}
    kind = gguf.GGMLQuantizationType[kind]
    weights = {name: p.detach().float().numpy() for name, p in stored_names(model).items()}
    for name, parts in stacked(weights).items():
        w = parts[0][1] if len(parts) == 1 else np.stack([part for _, part in parts])
        if w.ndim == 1 or name.endswith("mlp.gate.weight"):  # routers stay as they are
            writer.add_tensor(file_name(name), w)
            continue
        heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
        turn = next((n for part, n in heads.items() if part in name), None) if not mixture else None
        data = gguf.quantize(paired(w, turn) if turn else w, kind)
        writer.add_tensor(file_name(name), data, raw_dtype=kind)
        exact = exact_values(data, kind)
        digests[file_name(name)] = fnv(exact)
        exact = (unpaired(exact, turn) if turn else exact).astype(np.float64)
        for i, (part, _) in enumerate(parts):
            values[part] = exact[i] if len(parts) > 1 else exact
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return values, digests


def exact_values(data, kind):
    return gguf.dequantize(data, kind)
