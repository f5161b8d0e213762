"""Makes tests/golden_eagle: tiny random heads of EAGLE and EAGLE 3, and what they compute, in float64
with numpy alone.

    python tools/golden/make_eagle.py [--out tests/golden_eagle]

Each case is a folder with config.json, model.safetensors, which has the head's tensors in the
published names, and expected.st:

    embed   [vocab, hidden]    f32  of the model that the head drafts for, and so are
    head    [vocab, hidden]    f32
    hidden  [T, n * hidden]    f32  random rows in place of those behind that model's last norm, or in
                                    place of its taps (n = 3)
    tokens  [T + 1]            i32  the text: row p is joined with token p + 1
    logits  [T + k, rows]      f32  of rows 0..T-1, then of k further drafts
    drafts  [k + 1]            i32  the most likely tokens of the last 1 + k rows of logits

A draft is the token of the next row, and the residual that the head ends with is that row's hidden
row. The margins of all drafts are far above what rounding to float32 changes, and every mutant of
the head moves logits by far more than a test allows.
"""
import argparse
import json
import pathlib

import numpy as np

from make_mtp import MARGIN, MORE, MUTANT, ROWS, attend, norm, save, silu

COMMON = {
    "hidden_size": 32, "vocab_size": 112, "num_hidden_layers": 1, "intermediate_size": 56, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 12, "hidden_act": "silu", "rope_theta": 10000.0, "rms_norm_eps": 1e-5,
    "max_position_embeddings": 256, "tie_word_embeddings": False, "torch_dtype": "float32"}
FIRST = COMMON | {"architectures": ["LlamaForCausalLM"], "bias": True}
THIRD = COMMON | {"architectures": ["LlamaForCausalLMEagle3"], "draft_vocab_size": 40,
                  "eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 2, 4], "use_aux_hidden_state": True}}


def rotate(x, position, theta):
    """Turns dimension i with i + dim / 2; x is [rows, heads, dim]."""
    half = x.shape[-1] // 2
    angle = position[:, None, None] * theta ** (-np.arange(half) / half)
    a, b = x[..., :half], x[..., half:]
    return np.concatenate((a * np.cos(angle) - b * np.sin(angle), a * np.sin(angle) + b * np.cos(angle)), -1)


class Head:
    """One head with its cache; `wrong` names a mistake that it makes."""

    def __init__(self, config, weights, embed, head, wrong):
        self.c, self.w, self.embed, self.head, self.wrong = config, weights, embed, head, wrong
        self.k = self.v = None

    def layer(self, mixed, x, at, p):
        """Adds a decoder layer to the residual x, whose mixer takes `mixed`."""
        c, w = self.c, self.w
        q, k, v = ((mixed @ w[f"{p}.self_attn.{n}_proj.weight"].T).reshape(len(x), -1, c["head_dim"]) for n in "qkv")
        k = rotate(k, at, c["rope_theta"])
        self.k = k if self.k is None else np.concatenate((self.k, k))
        self.v = v if self.v is None else np.concatenate((self.v, v))
        k, v = (np.repeat(t, c["num_attention_heads"] // t.shape[1], 1) for t in (self.k, self.v))
        seen = attend(rotate(q, at, c["rope_theta"]), k, v, c["head_dim"] ** -0.5)
        x = x + seen @ w[p + ".self_attn.o_proj.weight"].T
        y = norm(x, w[p + ".post_attention_layernorm.weight"], c["rms_norm_eps"])
        gate, up = (y @ w[f"{p}.mlp.{n}_proj.weight"].T for n in ("gate", "up"))
        return x + (silu(gate) * up) @ w[p + ".mlp.down_proj.weight"].T

    def forward(self, tokens, hidden, first):
        at = np.arange(first, first + len(tokens), dtype=np.float64)
        return self.step(self.embed[tokens], hidden, at)


class First(Head):
    def step(self, token, hidden, at):
        both = (hidden, token) if self.wrong == "hidden first" else (token, hidden)
        x = np.concatenate(both, -1) @ self.w["fc.weight"].T
        if self.wrong != "no bias":
            x = x + self.w["fc.bias"]
        mixed = norm(x, np.ones(x.shape[-1]), self.c["rms_norm_eps"]) if self.wrong == "first norm" else x
        x = self.layer(mixed, x, at, "layers.0")
        last = norm(x, np.ones(x.shape[-1]), self.c["rms_norm_eps"]) if self.wrong == "last norm" else x
        return x, last @ self.head.T

    def token(self, row):
        return row


class Third(Head):
    def step(self, token, hidden, at):
        w, eps = self.w, self.c["rms_norm_eps"]
        if hidden.shape[-1] != token.shape[-1]:
            hidden = hidden @ w["fc.weight"].T
        left = norm(token, w["midlayer.input_layernorm.weight"], eps)
        right = hidden if self.wrong == "no hidden norm" else norm(hidden, w["midlayer.hidden_norm.weight"], eps)
        both = (right, left) if self.wrong == "hidden first" else (left, right)
        x = self.layer(np.concatenate(both, -1), right if self.wrong == "residual behind the norm" else hidden, at, "midlayer")
        last = norm(x, w["norm.weight"], eps)
        return (last if self.wrong == "recycles behind the norm" else x), last @ w["lm_head.weight"].T

    def token(self, row):
        return row if self.wrong == "no map" else row + int(self.w["d2t"][row])


def shapes(c, p, mixed):
    h, d, w = c["hidden_size"], c["head_dim"], c["intermediate_size"]
    q, kv = c["num_attention_heads"] * d, c["num_key_value_heads"] * d
    return {p + ".self_attn.q_proj.weight": (q, mixed), p + ".self_attn.k_proj.weight": (kv, mixed),
            p + ".self_attn.v_proj.weight": (kv, mixed), p + ".self_attn.o_proj.weight": (h, q),
            p + ".post_attention_layernorm.weight": (h,), p + ".mlp.gate_proj.weight": (w, h),
            p + ".mlp.up_proj.weight": (w, h), p + ".mlp.down_proj.weight": (h, w)}


def shapes_first(c):
    h = c["hidden_size"]
    return {"fc.weight": (h, 2 * h), "fc.bias": (h,)} | shapes(c, "layers.0", h)


def shapes_third(c):
    h = c["hidden_size"]
    return {"fc.weight": (h, 3 * h), "midlayer.input_layernorm.weight": (h,), "midlayer.hidden_norm.weight": (h,),
            "norm.weight": (h,), "lm_head.weight": (c["draft_vocab_size"], h)} | shapes(c, "midlayer", 2 * h)


def draw(name, shape, random):
    if "norm" in name:
        x = random.normal(1, 0.25, shape)
    elif len(shape) == 1:
        x = random.normal(0, 0.5, shape)
    else:
        x = random.normal(0, 1.3 / shape[-1] ** 0.5, shape)
    return x.astype(np.float32)


def evaluate(kind, config, weights, given, wrong=""):
    wide = {n: x if x.dtype == np.int64 else x.astype(np.float64) for n, x in weights.items()}
    head = kind(config, wide, given["embed"].astype(np.float64), given["head"].astype(np.float64), wrong)
    out, logits = head.forward(given["tokens"][1:], given["hidden"].astype(np.float64), 0)
    drafts = [head.token(int(logits[-1].argmax()))]
    for step in range(MORE):
        out, more = head.forward(np.array(drafts[-1:]), out[-1:], ROWS + step)
        logits = np.concatenate((logits, more))
        drafts.append(head.token(int(more[-1].argmax())))
    return logits, drafts


def save_integers(path, tensors, integers):
    """Writes a safetensors file in which those tensors are I64 or BOOL."""
    save(path, tensors)
    size = int.from_bytes(path.read_bytes()[:8], "little")
    header, body = json.loads(path.read_bytes()[8:8 + size]), path.read_bytes()[8 + size:]
    for name, x in integers.items():
        header[name] = {"dtype": "BOOL" if x.dtype == bool else "I64", "shape": x.shape,
                        "data_offsets": [len(body), len(body) + x.nbytes]}
        body += x.tobytes()
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(len(text).to_bytes(8, "little") + text + body)


def make(kind, config, shapes_of, mutants, sources, out):
    for seed in range(200):
        random = np.random.default_rng(seed)
        weights = {n: draw(n, s, random) for n, s in shapes_of(config).items()}
        h, vocab = config["hidden_size"], config["vocab_size"]
        given = {"embed": random.normal(0, 0.5, (vocab, h)).astype(np.float32), "head": draw("head", (vocab, h), random),
                 "hidden": random.normal(0, 1, (ROWS, sources * h)).astype(np.float32),
                 "tokens": random.integers(3, vocab, ROWS + 1).astype(np.int32)}
        integers = {}
        if "draft_vocab_size" in config:
            rows = config["draft_vocab_size"]
            known = np.sort(random.choice(vocab, rows, replace=False))
            integers = {"d2t": known - np.arange(rows), "t2d": np.isin(np.arange(vocab), known)}
        logits, drafts = evaluate(kind, config, weights | integers, given)
        best = np.sort(logits[-1 - MORE:], -1)
        if (best[:, -1] - best[:, -2]).min() > MARGIN and len(set(drafts)) == len(drafts):
            break
    else:
        raise SystemExit("no seed has margins")
    for wrong in mutants:
        moved = np.abs(evaluate(kind, config, weights | integers, given, wrong)[0] - logits).max()
        assert moved > MUTANT, f"{wrong} moves logits by {moved} only"
    out.mkdir(parents=True, exist_ok=True)
    (out / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    # Published heads have a copy of the served model's embedding.
    save_integers(out / "model.safetensors", weights | {"embed_tokens.weight": given["embed"]}, integers)
    save(out / "expected.st", given | {"logits": logits.astype(np.float32), "drafts": np.array(drafts, np.int32)})
    print(f"{out}: seed {seed}, drafts {drafts}, logits up to {np.abs(logits).max():.2f}")


def main():
    parser = argparse.ArgumentParser(description="Makes tests/golden_eagle.")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path(__file__).parents[2] / "tests/golden_eagle")
    out = parser.parse_args().out
    make(First, FIRST, shapes_first, ["hidden first", "no bias", "first norm", "last norm"], 1, out / "eagle")
    make(Third, THIRD, shapes_third,
         ["hidden first", "no hidden norm", "residual behind the norm", "recycles behind the norm", "no map"], 3, out / "eagle3")


if __name__ == "__main__":
    main()
