"""Makes tests/golden_mtp: tiny random modules that predict the token after the next (MTP), and what
they compute, in float64 with numpy alone.

    python tools/golden/make_mtp.py [--out tests/golden_mtp]

Each case is a folder with config.json, model.safetensors, which has the module's tensors in the
published names, and expected.st:

    embed, head  [vocab, hidden]  f32  of the model that the module drafts for
    norm         [hidden]         f32  its last norm
    hidden       [T, hidden]      f32  random rows in place of those behind that norm
    tokens       [T + 1]          i32  the text: row p is joined with token p + 1
    logits       [T + k, vocab]   f32  of rows 0..T-1, then of k further drafts
    drafts       [k + 1]          i32  the most likely tokens of the last 1 + k rows of logits

A draft is the token of the next row, and what the module gave behind its last norm that row's
hidden row. The margins of all drafts are far above what rounding to float32 changes, and every
mutant of the module moves logits by far more than a test allows.
"""
import argparse
import json
import pathlib
import struct

import numpy as np

ROWS, MORE, MARGIN, MUTANT = 21, 3, 0.02, 0.05
DEEPSEEK = {
    "architectures": ["DeepseekV3ForCausalLM"], "hidden_size": 48, "vocab_size": 112, "num_hidden_layers": 3,
    "intermediate_size": 56, "num_attention_heads": 4, "num_key_value_heads": 4, "q_lora_rank": 16, "kv_lora_rank": 20,
    "qk_nope_head_dim": 12, "qk_rope_head_dim": 8, "v_head_dim": 10, "rope_theta": 10000.0, "moe_intermediate_size": 20,
    "n_routed_experts": 16, "n_shared_experts": 2, "num_experts_per_tok": 4, "n_group": 4, "topk_group": 2,
    "first_k_dense_replace": 1, "routed_scaling_factor": 2.5, "norm_topk_prob": True, "scoring_func": "sigmoid",
    "topk_method": "noaux_tc", "num_nextn_predict_layers": 1, "rms_norm_eps": 1e-5, "max_position_embeddings": 256,
    "tie_word_embeddings": False, "torch_dtype": "float32"}
ERNIE = {
    "architectures": ["Ernie4_5_MTPForCausalLM"], "hidden_size": 32, "vocab_size": 112, "num_hidden_layers": 1,
    "intermediate_size": 56, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 12, "rope_theta": 10000.0,
    "rms_norm_eps": 1e-5, "max_position_embeddings": 256, "tie_word_embeddings": True, "torch_dtype": "float32"}


def norm(x, weight, eps):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * weight


def silu(x):
    return x / (1 + np.exp(-x))


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def rotate(x, position, theta):
    """Turns neighbouring pairs of the last axis; x is [rows, heads, dim]."""
    dim = x.shape[-1]
    angle = position[:, None, None] * theta ** (-np.arange(0, dim, 2) / dim)
    a, b = x[..., 0::2], x[..., 1::2]
    out = np.empty_like(x)
    out[..., 0::2], out[..., 1::2] = a * np.cos(angle) - b * np.sin(angle), a * np.sin(angle) + b * np.cos(angle)
    return out


def attend(q, k, v, scale):
    """q [rows, heads, d], k and v [positions, heads, ...]; the last row is the last position."""
    score = np.einsum("rhd,phd->hrp", q, k) * scale
    rows, positions = q.shape[0], k.shape[0]
    hidden = np.arange(positions)[None] > np.arange(rows)[:, None] + positions - rows
    return np.einsum("hrp,phd->rhd", softmax(np.where(hidden[None], -np.inf, score)), v).reshape(rows, -1)


class Module:
    """One module with its cache; `wrong` names a mistake that it makes."""

    def __init__(self, config, weights, embed, head, last_norm, wrong=""):
        self.c, self.w, self.embed, self.head, self.last_norm, self.wrong = config, weights, embed, head, last_norm, wrong
        self.k = self.v = None

    def cached(self, k, v):
        self.k = k if self.k is None else np.concatenate((self.k, k))
        self.v = v if self.v is None else np.concatenate((self.v, v))
        return self.k, self.v

    def forward(self, tokens, hidden, first):
        eps, names = self.c["rms_norm_eps"], self.names()
        token = norm(self.embed[tokens], self.w[names["token"]], eps)
        before = hidden if self.wrong == "no hidden norm" else norm(hidden, self.w[names["hidden"]], eps)
        both = (before, token) if self.wrong == "hidden first" else (token, before)
        x = np.concatenate(both, -1) @ self.w[names["join"]].T
        at = np.arange(first, first + len(tokens), dtype=np.float64)
        layer = names["layer"]
        x = x + self.mix(norm(x, self.w[layer + "input_layernorm.weight"], eps), at)
        x = x + self.feed(norm(x, self.w[layer + "post_attention_layernorm.weight"], eps))
        last = self.w[names["norm"]] if names["norm"] and self.wrong != "served norm" else self.last_norm
        out = norm(x, last, eps)
        return (x if self.wrong == "recycles before the norm" else out), out @ self.head.T


class Ernie(Module):
    def names(self):
        return {"token": "model.mtp_emb_norm.0.weight", "hidden": "model.mtp_hidden_norm.0.weight",
                "join": "model.mtp_linear_proj.0.weight", "layer": "model.mtp_block.0.", "norm": None}

    def mix(self, x, at):
        c, p = self.c, "model.mtp_block.0.self_attn."
        heads, dim = c["num_attention_heads"], c["head_dim"]
        q, k, v = ((x @ self.w[p + n + "_proj.weight"].T).reshape(len(x), -1, dim) for n in "qkv")
        k, v = self.cached(rotate(k, at, c["rope_theta"]), v)
        k, v = (np.repeat(t, heads // t.shape[1], 1) for t in (k, v))
        return attend(rotate(q, at, c["rope_theta"]), k, v, dim ** -0.5) @ self.w[p + "o_proj.weight"].T

    def feed(self, x):
        p = "model.mtp_block.0.mlp."
        return (silu(x @ self.w[p + "gate_proj.weight"].T) * (x @ self.w[p + "up_proj.weight"].T)) @ self.w[p + "down_proj.weight"].T


class Deepseek(Module):
    PREFIX = "model.layers.3."

    def names(self):
        return {"token": self.PREFIX + "enorm.weight", "hidden": self.PREFIX + "hnorm.weight",
                "join": self.PREFIX + "eh_proj.weight", "layer": self.PREFIX, "norm": self.PREFIX + "shared_head.norm.weight"}

    def mix(self, x, at):
        c, w, p = self.c, self.w, self.PREFIX + "self_attn."
        heads, nope, rope, rank = c["num_attention_heads"], c["qk_nope_head_dim"], c["qk_rope_head_dim"], c["kv_lora_rank"]
        q = norm(x @ w[p + "q_a_proj.weight"].T, w[p + "q_a_layernorm.weight"], 1e-6) @ w[p + "q_b_proj.weight"].T
        q = q.reshape(len(x), heads, nope + rope)
        q = np.concatenate((q[..., :nope], rotate(q[..., nope:], at, c["rope_theta"])), -1)
        latent = x @ w[p + "kv_a_proj_with_mqa.weight"].T
        key = rotate(latent[:, None, rank:], at, c["rope_theta"])
        both = norm(latent[:, :rank], w[p + "kv_a_layernorm.weight"], 1e-6) @ w[p + "kv_b_proj.weight"].T
        both = both.reshape(len(x), heads, -1)
        k, v = self.cached(np.concatenate((both[..., :nope], np.repeat(key, heads, 1)), -1), both[..., nope:])
        return attend(q, k, v, (nope + rope) ** -0.5) @ w[p + "o_proj.weight"].T

    def mlp(self, x, p):
        return (silu(x @ self.w[p + "gate_proj.weight"].T) * (x @ self.w[p + "up_proj.weight"].T)) @ self.w[p + "down_proj.weight"].T

    def feed(self, x):
        c, p = self.c, self.PREFIX + "mlp."
        score = 1 / (1 + np.exp(-(x @ self.w[p + "gate.weight"].T)))
        choice = score + self.w[p + "gate.e_score_correction_bias"]
        groups = choice.reshape(len(x), c["n_group"], -1)
        worth = np.sort(groups, -1)[..., -2:].sum(-1)
        kept = worth >= np.sort(worth, -1)[:, -c["topk_group"], None]
        choice = np.where(kept[..., None], groups, -np.inf).reshape(len(x), -1)
        out = self.mlp(x, p + "shared_experts.")
        for row in range(len(x)):
            chosen = np.argsort(-choice[row])[:c["num_experts_per_tok"]]
            weight = score[row, chosen] / score[row, chosen].sum() * c["routed_scaling_factor"]
            for e, share in zip(chosen, weight):
                out[row] += share * self.mlp(x[row:row + 1], f"{p}experts.{e}.")[0]
        return out


def shapes_ernie(c):
    h, d, w, p = c["hidden_size"], c["head_dim"], c["intermediate_size"], "model.mtp_block.0."
    q, kv = c["num_attention_heads"] * d, c["num_key_value_heads"] * d
    return {"model.mtp_emb_norm.0.weight": (h,), "model.mtp_hidden_norm.0.weight": (h,),
            "model.mtp_linear_proj.0.weight": (h, 2 * h), p + "input_layernorm.weight": (h,),
            p + "post_attention_layernorm.weight": (h,), p + "self_attn.q_proj.weight": (q, h),
            p + "self_attn.k_proj.weight": (kv, h), p + "self_attn.v_proj.weight": (kv, h),
            p + "self_attn.o_proj.weight": (h, q), p + "mlp.gate_proj.weight": (w, h), p + "mlp.up_proj.weight": (w, h),
            p + "mlp.down_proj.weight": (h, w)}


def shapes_deepseek(c):
    h, heads, rank, q_rank = c["hidden_size"], c["num_attention_heads"], c["kv_lora_rank"], c["q_lora_rank"]
    nope, rope, v, w = c["qk_nope_head_dim"], c["qk_rope_head_dim"], c["v_head_dim"], c["moe_intermediate_size"]
    p, a, m = Deepseek.PREFIX, Deepseek.PREFIX + "self_attn.", Deepseek.PREFIX + "mlp."
    out = {p + "enorm.weight": (h,), p + "hnorm.weight": (h,), p + "eh_proj.weight": (h, 2 * h),
           p + "shared_head.norm.weight": (h,), p + "input_layernorm.weight": (h,), p + "post_attention_layernorm.weight": (h,),
           a + "q_a_proj.weight": (q_rank, h), a + "q_a_layernorm.weight": (q_rank,),
           a + "q_b_proj.weight": (heads * (nope + rope), q_rank), a + "kv_a_proj_with_mqa.weight": (rank + rope, h),
           a + "kv_a_layernorm.weight": (rank,), a + "kv_b_proj.weight": (heads * (nope + v), rank),
           a + "o_proj.weight": (h, heads * v), m + "gate.weight": (c["n_routed_experts"], h),
           m + "gate.e_score_correction_bias": (c["n_routed_experts"],)}
    blocks = [(f"{m}experts.{e}.", w) for e in range(c["n_routed_experts"])] + [(m + "shared_experts.", w * c["n_shared_experts"])]
    for prefix, width in blocks:
        out |= {prefix + "gate_proj.weight": (width, h), prefix + "up_proj.weight": (width, h), prefix + "down_proj.weight": (h, width)}
    return out


def draw(name, shape, random):
    if "norm" in name:
        x = random.normal(1, 0.25, shape)
    elif len(shape) == 1:
        x = random.normal(0, 0.15, shape)
    else:
        x = random.normal(0, (2.0 if ".gate." in name or name == "head" else 1.3) / shape[-1] ** 0.5, shape)
    return x.astype(np.float32)


def save(path, tensors):
    """Writes a safetensors file."""
    header, at = {}, 0
    for name, x in tensors.items():
        header[name] = {"dtype": {"f": "F32", "i": "I32"}[x.dtype.kind], "shape": x.shape, "data_offsets": [at, at + x.nbytes]}
        at += x.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(x.tobytes() for x in tensors.values()))


def evaluate(kind, config, weights, given, wrong=""):
    wide = {n: x.astype(np.float64) for n, x in weights.items()}
    module = kind(config, wide, *(given[n].astype(np.float64) for n in ("embed", "head", "norm")), wrong)
    out, logits = module.forward(given["tokens"][1:], given["hidden"].astype(np.float64), 0)
    drafts = [int(logits[-1].argmax())]
    for step in range(MORE):
        out, more = module.forward(np.array(drafts[-1:]), out[-1:], ROWS + step)
        logits = np.concatenate((logits, more))
        drafts.append(int(more[-1].argmax()))
    return logits, drafts


def make(kind, config, shapes, mutants, out):
    for seed in range(100):
        random = np.random.default_rng(seed)
        weights = {n: draw(n, s, random) for n, s in shapes(config).items()}
        h, vocab = config["hidden_size"], config["vocab_size"]
        given = {"embed": random.normal(0, 0.5, (vocab, h)).astype(np.float32), "head": draw("head", (vocab, h), random),
                 "norm": draw("norm", (h,), random), "hidden": random.normal(0, 1, (ROWS, h)).astype(np.float32),
                 "tokens": random.integers(3, vocab, ROWS + 1).astype(np.int32)}
        logits, drafts = evaluate(kind, config, weights, given)
        best = np.sort(logits[-1 - MORE:], -1)
        if (best[:, -1] - best[:, -2]).min() > MARGIN and len(set(drafts)) == len(drafts):
            break
    else:
        raise SystemExit("no seed has margins")
    for wrong in mutants:
        moved = np.abs(evaluate(kind, config, weights, given, wrong)[0] - logits).max()
        assert moved > MUTANT, f"{wrong} moves logits by {moved} only"
    out.mkdir(parents=True, exist_ok=True)
    (out / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    save(out / "model.safetensors", weights)
    save(out / "expected.st", given | {"logits": logits.astype(np.float32), "drafts": np.array(drafts, np.int32)})
    print(f"{out}: seed {seed}, drafts {drafts}, logits up to {np.abs(logits).max():.2f}")


def main():
    parser = argparse.ArgumentParser(description="Makes tests/golden_mtp.")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path(__file__).parents[2] / "tests/golden_mtp")
    out = parser.parse_args().out
    common = ["hidden first", "no hidden norm", "recycles before the norm"]
    make(Ernie, ERNIE, shapes_ernie, common, out / "ernie45")
    make(Deepseek, DEEPSEEK, shapes_deepseek, common + ["served norm"], out / "deepseek_v3")


if __name__ == "__main__":
    main()
