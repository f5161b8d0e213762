"""DeepSeek's routers in the golden generator: their margins, and mutants of the whole model.

A mutant is the model with one mistake that an implementation could make. Each that applies to a
case must move its logits by far more than a test allows, or the case would judge nothing of it.
"""
import copy

import torch


def scores(gate, x):
    """(what a weight comes from, what chooses), each [rows, experts]."""
    logits = x.reshape(-1, x.shape[-1]).float() @ gate.weight.float().t()
    if hasattr(gate, "e_score_correction_bias"):
        weight = logits.sigmoid()
        return weight, weight + gate.e_score_correction_bias
    weight = logits.softmax(-1)
    return weight, weight


def is_grouped(gate):
    return hasattr(gate, "e_score_correction_bias") or gate.topk_method == "group_limited_greedy"


def group_worth(gate, choice, two_best):
    by_group = choice.view(choice.shape[0], gate.num_group, -1)
    return by_group.topk(2, -1).values.sum(-1) if two_best else by_group.max(-1).values


def margins(gate, x):
    """Returns the smallest gap between what was chosen and what was not, of experts and groups."""
    _, choice = scores(gate, x)
    gap = 1e9
    if is_grouped(gate) and gate.topk_group < gate.num_group:
        worth = group_worth(gate, choice, hasattr(gate, "e_score_correction_bias"))
        top = worth.topk(gate.topk_group + 1, -1).values
        gap = (top[:, -2] - top[:, -1]).min().item()
        kept = worth >= top[:, -2:-1]
        size = choice.shape[1] // gate.num_group
        choice = choice.masked_fill(~kept.repeat_interleave(size, -1), float("-inf"))
    top = choice.topk(gate.top_k + 1, -1).values
    return min(gap, (top[:, -2] - top[:, -1]).min().item())


def mutate_route(**wrong):
    """A gate whose forward makes the mistakes that `wrong` names."""
    def edit(model):
        for gate in gates(model):
            gate.forward = lambda x, gate=gate: route(gate, x, **wrong)
    return edit


def route(gate, x, two_best=None, grouped=True, biased=True, dropped=float("-inf"),
          weigh_choice=False, renorm=None, factor=None):
    weight, choice = scores(gate, x)
    sigmoid = hasattr(gate, "e_score_correction_bias")
    if not biased:
        choice = weight
    if is_grouped(gate) and grouped:
        worth = group_worth(gate, choice, sigmoid if two_best is None else two_best)
        kept = torch.zeros_like(worth, dtype=torch.bool).scatter_(
            1, worth.topk(gate.topk_group, -1).indices, True)
        size = choice.shape[1] // gate.num_group
        choice = choice.masked_fill(~kept.repeat_interleave(size, -1), dropped)
    chosen = choice.topk(gate.top_k, -1).indices
    weight = (choice if weigh_choice else weight).gather(1, chosen)
    if (getattr(gate, "norm_topk_prob", False) if renorm is None else renorm):
        weight = weight / (weight.sum(-1, keepdim=True) + 1e-20)
    return None, weight * (gate.routed_scaling_factor if factor is None else factor), chosen


def gates(model):
    return [m for m in model.modules() if type(m).__name__.endswith("TopkRouter")]


def attentions(model):
    return [m for m in model.modules() if type(m).__name__.endswith("Attention")]


def set_scaling(value):
    def edit(model):
        for attention in attentions(model):
            attention.scaling = value(attention)
    return edit


def rotary(model):
    return model.model.rotary_emb


def plain_speeds(model):
    rope = rotary(model)
    speeds, _ = rope.compute_default_rope_parameters(rope.config)
    rope.inv_freq.copy_(speeds)


def swap_mscales(model):
    rope = rotary(model)
    parameters = rope.config.rope_parameters
    growth = lambda m: 0.1 * m * torch.tensor(parameters["factor"]).log().item() + 1
    mine, all_dim = growth(parameters["mscale"]), growth(parameters["mscale_all_dim"])
    rope.attention_scaling = all_dim / mine
    set_scaling(lambda a: a.qk_head_dim ** -0.5 * mine * mine)(model)


def set_gain(model):
    rotary(model).attention_scaling = 1.0


def set_norm_eps(model):
    for attention in attentions(model):
        for norm in (attention.q_a_layernorm, attention.kv_a_layernorm):
            if norm is not None:
                norm.variance_epsilon = model.config.rms_norm_eps


def unit_norms(name):
    def edit(model):
        for attention in attentions(model):
            getattr(attention, name).weight.data.fill_(1)
    return edit


def halves(model):
    model.config.rope_interleave = False


def no_shared(model):
    for module in model.modules():
        if hasattr(module, "shared_experts"):
            module.shared_experts.down_proj.weight.data.zero_()


def mutants(model, dropped_matters):
    """{name: edit} of what applies to this model."""
    config, gate = model.config, gates(model)[0]
    sigmoid = hasattr(gate, "e_score_correction_bias")
    yarn = config.rope_parameters["rope_type"] == "yarn"
    all_dim = config.rope_parameters.get("mscale_all_dim") if yarn else None
    found = {
        "the other way of dividing weights": mutate_route(
            renorm=not getattr(gate, "norm_topk_prob", False)),
        "no shared experts": no_shared,
        "latents with unit norms": unit_norms("kv_a_layernorm"),
    }
    if gate.routed_scaling_factor != 1:
        found["no factor"] = mutate_route(factor=1)
    if is_grouped(gate):
        found["no groups"] = mutate_route(grouped=False)
        found["groups judged the other way"] = mutate_route(two_best=not sigmoid)
    if sigmoid:
        found["no bias"] = mutate_route(biased=False)
        found["weights with bias"] = mutate_route(weigh_choice=True)
        found["pairs in halves"] = halves
    if dropped_matters:
        found["dropped experts score 0"] = mutate_route(dropped=0.0)
    if yarn:
        found["no yarn"] = plain_speeds
    if all_dim:
        found["scores without mscale"] = set_scaling(lambda a: a.qk_head_dim ** -0.5)
    if all_dim and rotary(model).attention_scaling != 1:
        found["mscales swapped"] = swap_mscales
        found["cosines without mscale"] = set_gain
    if config.q_lora_rank is not None:
        found["queries with unit norms"] = unit_norms("q_a_layernorm")
    if config.rms_norm_eps > 1e-3:
        found["low-rank norms with the model's eps"] = set_norm_eps
    return found


@torch.no_grad()
def weakest_mutant(model, prompt, logits, dropped_matters):
    """Returns the mutant that changes logits least, and by how much."""
    exact = copy.deepcopy(model)
    mutate_route()(exact)
    if not torch.allclose(exact(prompt).logits[0], logits, atol=1e-4):
        raise SystemExit("route() is not what transformers computes")
    changes = {}
    for name, edit in mutants(model, dropped_matters).items():
        mutant = copy.deepcopy(model)
        edit(mutant)
        changes[name] = (mutant(prompt).logits[0] - logits).abs().max().item()
    return min(changes.items(), key=lambda item: item[1])
