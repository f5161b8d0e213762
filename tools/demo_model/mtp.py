"""The draft layer (multi-token prediction): training on the frozen model, and its agreement.

The layer sees the main model's hidden state (after its final norm) at place t and the embedding of
token t + 1; it learns the distribution that the main model itself has for token t + 2.
"""
import time

import torch
import torch.nn.functional as F

from model import causal, document_mask, packed


def loss_of(model, layer, ids, positions, mask, weight):
    attend = packed(mask)
    with torch.no_grad():
        hidden = model(ids, positions, attend)
        wanted = F.pad(model.logits(hidden)[:, 1:], (0, 0, 0, 1)).softmax(-1)   # the main model, one place on
    drafted = layer(model, hidden, F.pad(ids[:, 1:], (0, 1)), positions, attend)
    losses = F.cross_entropy(model.logits(drafted).flatten(0, 1), wanted.flatten(0, 1), reduction="none")
    return (losses * weight.flatten()).sum() / weight.sum()


def train(model, layer, rows, steps, lr, log):
    from train import learning_rate, optimizer, reply_weights
    model.requires_grad_(False)
    device = next(layer.parameters()).device
    opt, start = optimizer(layer, lr), time.time()
    step_loss = torch.compile(loss_of)
    for step in range(steps):
        for group in opt.param_groups:
            group["lr"] = learning_rate(step, steps, lr, warmup=50)
        ids, learn, documents, positions = rows.next()
        with torch.autocast(device.type, dtype=torch.bfloat16):
            loss = step_loss(model, layer, ids, positions, document_mask(documents), reply_weights(ids, learn, documents, 2))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(layer.parameters(), 1.0)
        opt.step()
        opt.zero_grad(set_to_none=True)
        if step % 100 == 0 or step == steps - 1:
            log.append({"mtp_step": step, "loss": round(loss.item(), 5)})
            print(log[-1], flush=True)
    return time.time() - start


@torch.no_grad()
def agreement(model, layer, samples):
    """Share of places in greedy replies where the draft equals the main model's own next choice.

    samples: (prompt ids, reply ids) pairs.  The draft made once the reply's first token is known is
    the first one counted; the end of the reply counts as a token.
    """
    device = model.embed_tokens.weight.device
    hits = total = 0
    for prompt, reply in samples:
        if not reply:
            continue
        ids = torch.tensor([prompt + reply], device=device)
        positions = torch.arange(ids.shape[1], device=device)[None]
        hidden = model(ids, positions, causal)
        choice = model.logits(hidden).argmax(-1)[0, len(prompt):]
        drafted = layer(model, hidden[:, :-1], ids[:, 1:], positions[:, :-1], causal)
        guess = model.logits(drafted).argmax(-1)[0, len(prompt) - 1:]
        hits += (guess == choice).sum().item()
        total += len(choice)
    return hits / max(total, 1)
