"""What storing numbers as bf16 does to logits, measured on a model that computes in float32.

A bf16 evaluation keeps its weights in bf16 (but for routers, which stay float32) and rounds each
activation that it stores; sums are f32. Here the weights are rounded as they are, and each stored
activation gets an error that is uniform within half a step of bf16, as a rounding's is. So one
draw is one possible bf16 evaluation, and another one is no further from float32 than the largest
of many draws, but for a factor that the caller chooses. Where two experts are nearly as good, some
draws choose the other: a row that may differ in that way is known to.
"""
import torch

ROUTER = (".gate.weight", "e_score_correction_bias")


def noisy(x, generator):
    """x with the error of a rounding to bf16, whose step is 2^-7 of the power of two below |x|."""
    _, exponent = torch.frexp(x)
    step = torch.ldexp(torch.ones_like(x), exponent - 8)
    return x + step * (torch.rand(x.shape, generator=generator) - 0.5)


def round_weights(model):
    for name, p in model.named_parameters():
        if not name.endswith(ROUTER) and "norm" not in name:
            p.data = p.data.bfloat16().float()


def add_hooks(model, generator):
    """Errors where a bf16 evaluation stores: behind norms, linear layers and experts (whose inner
    activations count as one more store), ahead of the second linear layer of each block."""
    def after(module, args, output):
        return noisy(output, generator)

    def twice(module, args, output):
        return noisy(noisy(output, generator), generator)

    def before(module, args):
        return (noisy(args[0], generator), *args[1:])

    for name, module in model.named_modules():
        kind = type(module).__name__
        if kind.endswith("RMSNorm"):
            module.register_forward_hook(after)
        elif kind.endswith("Experts"):
            module.register_forward_hook(twice)
        elif isinstance(module, torch.nn.Linear) and not name.endswith("lm_head"):
            # Queries and keys are stored once more when they have been rotated.
            rotated = name.endswith(("q_proj", "k_proj", "q_b_proj"))
            module.register_forward_hook(twice if rotated else after)
            if name.endswith(("o_proj", "down_proj")):
                module.register_forward_pre_hook(before)


@torch.no_grad()
def bf16_rows(model, prompt, logits, draws):
    """Returns for each row the largest root mean square change of its logits in `draws`
    evaluations. The model cannot be used afterwards."""
    generator = torch.Generator().manual_seed(2)
    round_weights(model)
    model.tie_weights()
    add_hooks(model, generator)
    worst = torch.zeros(logits.shape[0])
    for _ in range(draws):
        change = model(prompt).logits[0].float() - logits
        worst = worst.maximum(change.square().mean(-1).sqrt())
    return worst
