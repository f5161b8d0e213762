"""Trains the demo model and its draft layer on one GPU and writes models/demo.

    python3 train.py [--steps N] [--mtp-steps N] [--conversations N] [--batch ROWS] [--processes P]
"""
import argparse
import json
import math
import time

import torch
import torch.nn.functional as F

import corpus
import evaluate
import export
import mtp as draft
from model import MTP, Config, Model, document_mask, packed

PROMPT_WEIGHT = 0.03   # weight of the loss on prompt tokens; replies count 1


class Rows:
    """Packed rows on the GPU, drawn in a fixed random order."""

    def __init__(self, rows, batch, seed, device):
        self.rows = torch.from_numpy(rows).to(device)
        self.batch, self.generator = batch, torch.Generator().manual_seed(seed)
        self.order, self.at = None, len(rows)

    def next(self):
        if self.at + self.batch > len(self.rows):
            self.order, self.at = torch.randperm(len(self.rows), generator=self.generator).to(self.rows.device), 0
        picked = self.rows[self.order[self.at:self.at + self.batch]]
        self.at += self.batch
        ids, learn, documents, positions = picked.unbind(1)
        return ids.long(), learn, documents.int(), positions.long()


def reply_weights(ids, learn, documents, shift):
    """Loss weight of predicting the token `shift` places ahead from each place."""
    same = (documents[:, shift:] == documents[:, :-shift]) & (documents[:, shift:] >= 0)
    weight = torch.where(learn[:, shift:] > 0, 1.0, PROMPT_WEIGHT) * same
    return F.pad(weight, (0, shift))


def loss_of(model, ids, positions, mask, target, weight, valid):
    hidden = model(ids, positions, packed(mask), valid)
    losses = F.cross_entropy(model.logits(hidden).flatten(0, 1), target.flatten(), reduction="none")
    return (losses * weight.flatten()).sum() / weight.sum()


def learning_rate(step, steps, peak, warmup=200):
    if step < warmup:
        return peak * (step + 1) / warmup
    return peak * (0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * (step - warmup) / max(1, steps - warmup))))


def optimizer(module, lr):
    matrices = [p for p in module.parameters() if p.ndim > 1]
    vectors = [p for p in module.parameters() if p.ndim <= 1]
    return torch.optim.AdamW([{"params": matrices, "weight_decay": 0.05}, {"params": vectors, "weight_decay": 0.0}], lr=lr, betas=(0.9, 0.98), fused=True)


def train(model, rows, steps, lr, log):
    device = next(model.parameters()).device
    opt = optimizer(model, lr)
    step_loss = torch.compile(loss_of)
    start = time.time()
    for step in range(steps):
        for group in opt.param_groups:
            group["lr"] = learning_rate(step, steps, lr)
        ids, learn, documents, positions = rows.next()
        target = F.pad(ids[:, 1:], (0, 1))
        with torch.autocast(device.type, dtype=torch.bfloat16):
            loss = step_loss(model, ids, positions, document_mask(documents), target, reply_weights(ids, learn, documents, 1), (documents >= 0).float())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        opt.zero_grad(set_to_none=True)
        rate = 1e-3 if step < 0.8 * steps else 0.0    # the balance is settled before the last, quiet part
        for layer in model.moe_layers():
            if rate:
                layer.balance(rate)
        if step % 100 == 0 or step == steps - 1:
            line = {"step": step, "loss": round(loss.item(), 5), "seconds": round(time.time() - start, 1)}
            log.append(line)
            print(line, flush=True)
    return time.time() - start


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--steps", type=int, default=5500)
    p.add_argument("--mtp-steps", type=int, default=500)
    p.add_argument("--conversations", type=int, default=900000)
    p.add_argument("--batch", type=int, default=64, help="rows of 1024 tokens per step")
    p.add_argument("--lr", type=float, default=2e-3)
    p.add_argument("--processes", type=int, default=16)
    p.add_argument("--seed", type=int, default=1)
    a = p.parse_args()
    begin = time.time()
    data = corpus.build(a.conversations, a.seed, a.processes)
    print(f"corpus: {len(data)} rows, {time.time() - begin:.0f} s", flush=True)

    torch.manual_seed(a.seed)
    torch.set_float32_matmul_precision("high")
    device = "cuda"
    model = Model(Config()).to(device)
    log = []
    rows = Rows(data, a.batch, a.seed, device)
    seconds = train(model, rows, a.steps, a.lr, log)
    export.save(model)
    model, _ = export.load(device=device)     # the draft layer learns from the rounded weights that ship
    draft_layer = MTP(model.c).to(device)
    mtp_seconds = draft.train(model, draft_layer, rows, a.mtp_steps, 2e-3, log)
    export.save(model, draft_layer)

    model, draft_layer = export.load(device=device)
    metrics = {"hardware": torch.cuda.get_device_name(), "steps": a.steps, "mtp_steps": a.mtp_steps, "rows": len(data), "tokens_per_step": a.batch * data.shape[2],
               "train_seconds": round(seconds), "mtp_seconds": round(mtp_seconds)}
    torch.set_float32_matmul_precision("highest")
    metrics |= evaluate.run_torch(model, draft_layer)
    metrics["transformers"] = export.check_transformers(device=device)
    metrics["correction_bias"] = [[round(v, 4) for v in l.bias.tolist()] for l in model.moe_layers()]
    metrics["total_seconds"] = round(time.time() - begin)
    evaluate.write_expected(model)
    (export.MODEL_DIR / "metrics.json").write_text(json.dumps(metrics, indent=1) + "\n")
    print(json.dumps({k: v for k, v in metrics.items() if k != "correction_bias"}, indent=1), flush=True)


if __name__ == "__main__":
    main()
