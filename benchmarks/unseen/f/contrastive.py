# /// truth
# class = "compute"
# causes = ["broadcast-similarity"]
# timed = "whole"
# unseen = true
# author_class = "memory"
# author_gain = 3.7
# why = """\
# Pairwise squared distances of all embeddings are made by broadcasting into an N x N x D difference tensor, which \
# is then squared and summed (and kept for backward)."""
# cure = "Get the same squared distances from norms and one matrix product, so nothing bigger than N x N exists."
# ///

# %% diagnosed
"""Self-supervised training with a distance-based InfoNCE loss on synthetic textures."""

import argparse
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

device = "cuda" if torch.cuda.is_available() else "cpu"


def make_textures(n, size=24, seed=0):
    """Sums of a few oriented sinusoids: each image has its own frequencies."""
    g = torch.Generator().manual_seed(seed)
    axis = torch.linspace(0, 1, size)
    yy, xx = torch.meshgrid(axis, axis, indexing="ij")
    images = torch.zeros(n, 3, size, size)
    for _ in range(3):
        freq = torch.rand(n, 2, 1, 1, generator=g) * 20 - 10
        phase = torch.rand(n, 1, 1, generator=g) * 6.28
        colour = torch.randn(n, 3, 1, 1, generator=g)
        wave = torch.sin(freq[:, 0] * yy * 6.28 + freq[:, 1] * xx * 6.28 + phase)
        images += colour * wave[:, None]
    return images / images.std()


class TwoViews:
    """Random crop, flip, channel gain and noise, for a whole batch at once."""

    def __init__(self, crop=20):
        self.crop = crop

    def one(self, x):
        n, _, h, w = x.shape
        rows = torch.randint(h - self.crop + 1, (n, 1), device=x.device) + torch.arange(self.crop, device=x.device)
        cols = torch.randint(w - self.crop + 1, (n, 1), device=x.device) + torch.arange(self.crop, device=x.device)
        cols = torch.where(torch.rand(n, 1, device=x.device) < 0.5, cols.flip(1), cols)
        which = torch.arange(n, device=x.device)[:, None, None]
        view = x.permute(0, 2, 3, 1)[which, rows[:, :, None], cols[:, None, :]].permute(0, 3, 1, 2)
        gain = 0.8 + 0.4 * torch.rand(n, 3, 1, 1, device=x.device)
        return view * gain + 0.1 * torch.randn_like(view)

    def __call__(self, x):
        return torch.cat([self.one(x), self.one(x)])


class Encoder(nn.Module):
    def __init__(self, width=16, dim=128):
        super().__init__()
        layers, cin = [], 3
        for cout in (width, 2 * width, 4 * width):
            layers += [nn.Conv2d(cin, cout, 3, 2, 1, bias=False), nn.BatchNorm2d(cout), nn.ReLU(inplace=True)]
            cin = cout
        self.features = nn.Sequential(*layers)
        self.project = nn.Sequential(nn.Linear(cin, dim), nn.ReLU(), nn.Linear(dim, dim))

    def forward(self, x):
        return F.normalize(self.project(self.features(x).mean(dim=(2, 3))), dim=1)


def squared_distances(a, b):
    difference = a.unsqueeze(1) - b.unsqueeze(0)
    return difference.pow(2).sum(dim=-1)


def info_nce(z, temperature):
    """z holds the first views, then the second views of the same images."""
    n = z.shape[0] // 2
    logits = -squared_distances(z, z) / temperature
    logits.fill_diagonal_(float("-inf"))
    partner = torch.arange(2 * n, device=z.device).roll(n)
    return F.cross_entropy(logits, partner)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=130)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--temperature", type=float, default=0.2)
    parser.add_argument("--lr", type=float, default=2e-3)
    args = parser.parse_args()

    torch.manual_seed(0)
    images = make_textures(4096).to(device)
    views, model = TwoViews(), Encoder().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.steps)

    order, at = torch.randperm(len(images), device=device), 0
    start = time.perf_counter()
    for step in range(args.steps):
        if at + args.batch_size > len(images):
            order, at = torch.randperm(len(images), device=device), 0
        batch = images[order[at : at + args.batch_size]]
        at += args.batch_size

        loss = info_nce(model(views(batch)), args.temperature)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if step % 25 == 0 or step == args.steps - 1:
            print(f"step {step} loss {loss.item():.4f}")
    elapsed = time.perf_counter() - start
    print(f"steps={args.steps} seconds={elapsed:.2f}")
    print(f"samples_per_s={args.steps * args.batch_size / elapsed:.1f}")


if __name__ == "__main__":
    main()
