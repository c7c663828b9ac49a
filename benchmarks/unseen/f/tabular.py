# /// truth
# class = "compute"
# causes = ["dense-embedding-gradients"]
# timed = "whole"
# unseen = true
# author_class = "memory"
# author_gain = 4.1
# why = """\
# A huge hashed embedding table has dense gradients, so backward fills and Adagrad sweeps over every row each step \
# though a batch touches only a small part of them."""
# cure = "nn.EmbeddingBag/Embedding with sparse=True: Adagrad then updates only the rows used (same maths)."
# ///

# %% diagnosed
"""Click prediction on hashed categorical columns and a few numeric ones."""

import argparse
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

device = "cuda" if torch.cuda.is_available() else "cpu"


def make_clicks(rows, fields, numeric, buckets, seed=0):
    """Skewed categories hashed into one big bucket space, and labels which depend on them."""
    rng = np.random.default_rng(seed)
    raw = (rng.pareto(0.6, size=(rows, fields)) * 50).clip(max=1e9).astype(np.int64)
    salt = np.arange(1, fields + 1, dtype=np.int64) * 7_919_113
    hashed = ((raw + salt) * 2_654_435_761) % buckets
    dense = rng.normal(size=(rows, numeric)).astype(np.float32)
    effect = rng.normal(size=4096)
    logit = effect[hashed[:, :4] % 4096].sum(1) * 0.7 + dense[:, 0] - 0.5 * dense[:, 1] - 1
    clicked = (rng.random(rows) < 1 / (1 + np.exp(-logit))).astype(np.float32)
    return torch.from_numpy(hashed), torch.from_numpy(dense), torch.from_numpy(clicked)


class ClickModel(nn.Module):
    def __init__(self, buckets, fields, numeric, dim=16, hidden=256):
        super().__init__()
        self.table = nn.Embedding(buckets, dim)
        nn.init.normal_(self.table.weight, std=0.05)
        self.mlp = nn.Sequential(
            nn.Linear(fields * dim + numeric, hidden),
            nn.ReLU(),
            nn.Linear(hidden, hidden // 2),
            nn.ReLU(),
            nn.Linear(hidden // 2, 1),
        )

    def forward(self, categories, dense):
        embedded = self.table(categories)
        # second-order interactions, as in a factorisation machine
        pairs = 0.5 * (embedded.sum(1).pow(2) - embedded.pow(2).sum(1)).sum(1)
        deep = self.mlp(torch.cat([embedded.flatten(1), dense], dim=1)).squeeze(1)
        return pairs + deep


def auc(scores, labels):
    ranks = scores.argsort().argsort().float() + 1
    positives = labels.sum()
    negatives = len(labels) - positives
    return ((ranks * labels).sum() - positives * (positives + 1) / 2) / (positives * negatives)


def batches(rows, batch_size):
    order = torch.randperm(rows, device=device)
    for i in range(0, rows - batch_size + 1, batch_size):
        yield order[i : i + batch_size]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=120_000)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=1024)
    parser.add_argument("--buckets", type=int, default=300_000)
    parser.add_argument("--fields", type=int, default=12)
    parser.add_argument("--numeric", type=int, default=8)
    parser.add_argument("--lr", type=float, default=0.02)
    args = parser.parse_args()

    torch.manual_seed(0)
    columns = make_clicks(args.rows + 10_000, args.fields, args.numeric, args.buckets)
    categories, dense, clicked = (c.to(device) for c in columns)
    train = slice(0, args.rows)
    held = slice(args.rows, None)

    model = ClickModel(args.buckets, args.fields, args.numeric).to(device)
    optimizer = torch.optim.Adagrad(model.parameters(), lr=args.lr)

    seen = step = 0
    start = time.perf_counter()
    for epoch in range(args.epochs):
        for pick in batches(args.rows, args.batch_size):
            logits = model(categories[train][pick], dense[train][pick])
            loss = F.binary_cross_entropy_with_logits(logits, clicked[train][pick])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            seen += len(pick)
            step += 1
            if step % 50 == 0:
                print(f"epoch {epoch} step {step} loss {loss.item():.4f}")
    elapsed = time.perf_counter() - start

    with torch.no_grad():
        print(f"held-out auc {auc(model(categories[held], dense[held]), clicked[held]).item():.4f}")
    print(f"steps={step} seconds={elapsed:.2f}")
    print(f"samples_per_s={seen / elapsed:.1f}")


if __name__ == "__main__":
    main()
