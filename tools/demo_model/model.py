"""The model: ERNIE 4.5 MoE in compact PyTorch, made for fast training of a small model.

All routed experts are computed for every token and weighted by the router (zero for those not
chosen).  With experts this small that is two large matrix products per layer: fast and exact.
"""
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclass
class Config:
    vocab_size: int = 4096
    hidden_size: int = 256
    num_hidden_layers: int = 6
    num_attention_heads: int = 8
    num_key_value_heads: int = 2
    head_dim: int = 64
    intermediate_size: int = 768
    moe_num_experts: int = 16
    moe_k: int = 4
    moe_intermediate_size: int = 128
    moe_num_shared_experts: int = 1
    moe_layer_start_index: int = 1
    rope_theta: float = 10000.0
    rms_norm_eps: float = 1e-5
    max_position_embeddings: int = 2048


class RMSNorm(nn.Module):
    def __init__(self, dim, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))
        self.eps = eps

    def forward(self, x):
        y = x.float()
        y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + self.eps)
        return (y * self.weight.float()).to(x.dtype)


def rope_table(c, positions):
    """cos and sin of shape [..., head_dim / 2], fp32."""
    freq = c.rope_theta ** (-torch.arange(0, c.head_dim, 2, device=positions.device).float() / c.head_dim)
    angle = positions.float()[..., None] * freq
    return angle.cos(), angle.sin()


def rotate(x, cos, sin):
    """Interleaved rotary embedding of x [batch, heads, tokens, head_dim]: pairs (2i, 2i + 1)."""
    a, b = x.float().unflatten(-1, (-1, 2)).unbind(-1)
    cos, sin = cos[:, None], sin[:, None]
    return torch.stack((a * cos - b * sin, b * cos + a * sin), -1).flatten(-2).to(x.dtype)


class Attention(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c = c
        q, kv = c.num_attention_heads * c.head_dim, c.num_key_value_heads * c.head_dim
        self.q_proj = nn.Linear(c.hidden_size, q, bias=False)
        self.k_proj = nn.Linear(c.hidden_size, kv, bias=False)
        self.v_proj = nn.Linear(c.hidden_size, kv, bias=False)
        self.o_proj = nn.Linear(q, c.hidden_size, bias=False)

    def forward(self, x, rope, attend):
        heads = [p(x).unflatten(-1, (-1, self.c.head_dim)).transpose(1, 2) for p in (self.q_proj, self.k_proj, self.v_proj)]
        q, k = rotate(heads[0], *rope), rotate(heads[1], *rope)
        return self.o_proj(attend(self, q, k, heads[2]).transpose(1, 2).flatten(-2))


class MLP(nn.Module):
    def __init__(self, hidden, inner):
        super().__init__()
        self.gate_proj = nn.Linear(hidden, inner, bias=False)
        self.up_proj = nn.Linear(hidden, inner, bias=False)
        self.down_proj = nn.Linear(inner, hidden, bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class MoE(nn.Module):
    """Softmax router in fp32; the correction bias only takes part in the choice of experts."""

    def __init__(self, c):
        super().__init__()
        self.c = c
        e, h, i = c.moe_num_experts, c.hidden_size, c.moe_intermediate_size
        self.gate = nn.Linear(h, e, bias=False)
        self.experts_gate = nn.Parameter(torch.empty(e * i, h))
        self.experts_up = nn.Parameter(torch.empty(e * i, h))
        self.experts_down = nn.Parameter(torch.empty(h, e * i))
        self.shared_experts = MLP(h, i * c.moe_num_shared_experts)
        self.register_buffer("bias", torch.zeros(e))
        self.register_buffer("load", torch.zeros(e), persistent=False)

    def forward(self, x, valid=None):
        with torch.autocast(x.device.type, enabled=False):
            probs = F.linear(x.float(), self.gate.weight.float()).softmax(-1)
            chosen = torch.topk(probs.detach() + self.bias, self.c.moe_k, -1).indices
            picked = torch.zeros_like(probs).scatter_(-1, chosen, 1.0)
            weight = probs * picked
            weight = weight / weight.sum(-1, keepdim=True).clamp_min(1e-12)
        if valid is not None:
            self.load.copy_((picked.detach() * valid[..., None]).sum((0, 1)))
        y = F.silu(F.linear(x, self.experts_gate.to(x.dtype))) * F.linear(x, self.experts_up.to(x.dtype))
        y = (y.unflatten(-1, (self.c.moe_num_experts, -1)) * weight[..., None].to(y.dtype)).flatten(-2)
        return F.linear(y, self.experts_down.to(y.dtype)) + self.shared_experts(x)

    @torch.no_grad()
    def balance(self, rate):
        """Balancing without an auxiliary loss: lifts the bias of experts that got too few tokens."""
        self.bias += rate * torch.sign(self.load.mean() - self.load)


class Block(nn.Module):
    def __init__(self, c, moe):
        super().__init__()
        self.input_layernorm = RMSNorm(c.hidden_size, c.rms_norm_eps)
        self.self_attn = Attention(c)
        self.post_attention_layernorm = RMSNorm(c.hidden_size, c.rms_norm_eps)
        self.mlp = MoE(c) if moe else MLP(c.hidden_size, c.intermediate_size)

    def forward(self, x, rope, attend, valid=None):
        x = x + self.self_attn(self.input_layernorm(x), rope, attend)
        h = self.post_attention_layernorm(x)
        return x + (self.mlp(h, valid) if isinstance(self.mlp, MoE) else self.mlp(h))


class Model(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c = c
        self.embed_tokens = nn.Embedding(c.vocab_size, c.hidden_size)
        self.layers = nn.ModuleList(Block(c, i >= c.moe_layer_start_index) for i in range(c.num_hidden_layers))
        self.norm = RMSNorm(c.hidden_size, c.rms_norm_eps)
        self.apply(lambda m: init(m, c.num_hidden_layers))

    def forward(self, ids, positions, attend, valid=None):
        """Hidden states after the final norm, in the dtype of the embedding or of autocast."""
        x = self.embed_tokens(ids)
        rope = rope_table(self.c, positions)
        for layer in self.layers:
            x = layer(x, rope, attend, valid)
        return self.norm(x)

    def logits(self, hidden):
        return F.linear(hidden, self.embed_tokens.weight.to(hidden.dtype)).float()

    def moe_layers(self):
        return [l.mlp for l in self.layers if isinstance(l.mlp, MoE)]


class MTP(nn.Module):
    """One extra layer that drafts token t + 2 from the hidden state of t and the token t + 1."""

    def __init__(self, c):
        super().__init__()
        self.c = c
        self.mtp_emb_norm = nn.ModuleList([RMSNorm(c.hidden_size, c.rms_norm_eps)])
        self.mtp_hidden_norm = nn.ModuleList([RMSNorm(c.hidden_size, c.rms_norm_eps)])
        self.mtp_linear_proj = nn.ModuleList([nn.Linear(2 * c.hidden_size, c.hidden_size, bias=False)])
        self.mtp_block = nn.ModuleList([Block(c, moe=False)])
        self.apply(lambda m: init(m, 1))

    def forward(self, model, hidden, next_ids, positions, attend):
        """hidden: the main model's output after its final norm. Returns the same kind of state."""
        x = torch.cat((self.mtp_emb_norm[0](model.embed_tokens(next_ids)), self.mtp_hidden_norm[0](hidden)), -1)
        x = self.mtp_block[0](self.mtp_linear_proj[0](x), rope_table(self.c, positions), attend)
        return model.norm(x)


def init(m, layers):
    if isinstance(m, (nn.Linear, nn.Embedding)):
        nn.init.normal_(m.weight, std=0.04)
    if isinstance(m, MoE):
        for p in (m.experts_gate, m.experts_up, m.experts_down):
            nn.init.normal_(p, std=0.04)
        nn.init.normal_(m.experts_down, std=0.04 / (2 * layers) ** 0.5)
    if isinstance(m, Attention):
        nn.init.normal_(m.o_proj.weight, std=0.04 / (2 * layers) ** 0.5)
    if isinstance(m, MLP):
        nn.init.normal_(m.down_proj.weight, std=0.04 / (2 * layers) ** 0.5)


# ---------------------------------------------------------------- attention and generation


def document_mask(documents):
    """Attention for packed rows: causal and inside one document (documents: [batch, tokens])."""
    from torch.nn.attention.flex_attention import create_block_mask

    def inside(b, h, q, k):
        return (q >= k) & (documents[b, q] == documents[b, k])
    return create_block_mask(inside, documents.shape[0], None, documents.shape[1], documents.shape[1], device=documents.device)


def packed(mask):
    from torch.nn.attention.flex_attention import flex_attention

    def attend(_, q, k, v):
        return flex_attention(q, k, v, block_mask=mask, enable_gqa=True)
    return attend


def causal(_, q, k, v):
    return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)


class Cache:
    """Keys and values of right-aligned rows (prompts are padded on the left)."""

    def __init__(self, padding):
        self.padding, self.kv = padding, {}

    def attend(self, layer, q, k, v):
        if layer in self.kv:
            k, v = torch.cat((self.kv[layer][0], k), 2), torch.cat((self.kv[layer][1], v), 2)
        self.kv[layer] = k, v
        n, m = q.shape[2], k.shape[2]
        at = torch.arange(m, device=q.device)
        mask = (at[None, None] <= (torch.arange(n, device=q.device) + m - n)[None, :, None]) & (at[None, None] >= self.padding[:, None, None])
        mask = mask | (at[None, None] == (torch.arange(n, device=q.device) + m - n)[None, :, None])
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask[:, None], enable_gqa=True)


@torch.no_grad()
def generate(model, prompts, stop=(2, 4), limit=200):
    """Greedy continuation of a batch of token lists; the stop token is left out."""
    device = model.embed_tokens.weight.device
    width = max(map(len, prompts))
    padding = torch.tensor([width - len(p) for p in prompts], device=device)
    ids = torch.tensor([[0] * (width - len(p)) + p for p in prompts], device=device)
    positions = (torch.arange(width, device=device)[None] - padding[:, None]).clamp_min(0)
    cache, out, alive = Cache(padding), [[] for _ in prompts], [True] * len(prompts)
    for _ in range(limit):
        hidden = model(ids, positions, cache.attend)
        ids = model.logits(hidden[:, -1]).argmax(-1)[:, None]
        positions = positions[:, -1:] + 1
        for i, t in enumerate(ids[:, 0].tolist()):
            alive[i] = alive[i] and t not in stop
            if alive[i]:
                out[i].append(t)
        if not any(alive):
            break
    return out
