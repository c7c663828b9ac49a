# /// truth
# class = "host"
# causes = ["checkpoint-stall"]
# timed = "whole"
# unseen = true
# author_class = "host"
# author_gain = 2.8
# why = """\
# A full checkpoint (model, EMA, optimiser) is written to disk, synchronously, every time the smoothed training \
# loss improves, which is checked every step and is true on most of them."""
# cure = "Check for a new best and write the checkpoint only once per hundred steps."
# ///

# %% diagnosed
"""DDPM training of an MLP denoiser on 16x16 glyphs, with EMA weights and checkpoints."""

import copy
import math
import os
import tempfile
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

device = "cuda" if torch.cuda.is_available() else "cpu"
SIZE = 16
TIMESTEPS = 400


def make_glyphs(n, seed=0):
    """Crosses and frames of random position and thickness, in [-1, 1]."""
    g = torch.Generator().manual_seed(seed)
    axis = torch.arange(SIZE)
    cy, cx = torch.randint(4, 12, (2, n, 1, 1), generator=g)
    half = torch.randint(2, 5, (n, 1, 1), generator=g)
    dy, dx = (axis[:, None] - cy).abs(), (axis[None, :] - cx).abs()
    cross = ((dy <= 1) | (dx <= 1)) & (dy <= half + 1) & (dx <= half + 1)
    frame = torch.maximum(dy.expand(n, SIZE, SIZE), dx.expand(n, SIZE, SIZE)) == half
    kind = torch.rand(n, 1, 1, generator=g) < 0.5
    return torch.where(kind, cross, frame).float().flatten(1) * 2 - 1


class Denoiser(nn.Module):
    def __init__(self, hidden=768, depth=3, time_dim=64):
        super().__init__()
        half = time_dim // 2
        self.register_buffer("freqs", torch.exp(-math.log(10000) * torch.arange(half) / half))
        self.inp = nn.Linear(SIZE * SIZE, hidden)
        self.time = nn.Linear(time_dim, hidden)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(hidden), nn.Linear(hidden, hidden), nn.SiLU()) for _ in range(depth)
        )
        self.out = nn.Linear(hidden, SIZE * SIZE)

    def forward(self, x, t):
        angles = t[:, None] * self.freqs
        emb = self.time(torch.cat([angles.sin(), angles.cos()], dim=1))
        h = self.inp(x)
        for block in self.blocks:
            h = h + block(h + emb)
        return self.out(h)


class Schedule:
    def __init__(self):
        betas = torch.linspace(1e-4, 0.04, TIMESTEPS)
        alpha_bar = torch.cumprod(1 - betas, 0).to(device)
        self.signal, self.noise = alpha_bar.sqrt(), (1 - alpha_bar).sqrt()

    def corrupt(self, x0, t, eps):
        return self.signal[t, None] * x0 + self.noise[t, None] * eps


class Checkpointer:
    def __init__(self, folder, model, ema, optimizer):
        self.path = os.path.join(folder, "best.pt")
        self.parts = {"model": model, "ema": ema, "optimizer": optimizer}
        self.best = float("inf")
        self.saves = 0

    def offer(self, step, loss):
        if loss >= self.best:
            return
        self.best = loss
        state = {name: part.state_dict() for name, part in self.parts.items()}
        torch.save({"step": step, "loss": loss, **state}, self.path + ".tmp")
        os.replace(self.path + ".tmp", self.path)
        self.saves += 1


@torch.no_grad()
def update_ema(ema, model, decay=0.995):
    torch._foreach_lerp_(list(ema.parameters()), list(model.parameters()), 1 - decay)


def main(steps=300, batch=32, check_every=1):
    torch.manual_seed(0)
    data = make_glyphs(8192).to(device)
    schedule, model = Schedule(), Denoiser().to(device)
    ema = copy.deepcopy(model).requires_grad_(False)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-4)

    with tempfile.TemporaryDirectory() as folder:
        checkpointer = Checkpointer(folder, model, ema, optimizer)
        smooth = None
        start = time.perf_counter()
        for step in range(1, steps + 1):
            x0 = data[torch.randint(len(data), (batch,), device=device)]
            t = torch.randint(TIMESTEPS, (batch,), device=device)
            eps = torch.randn_like(x0)
            loss = F.mse_loss(model(schedule.corrupt(x0, t, eps), t), eps)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            update_ema(ema, model)
            smooth = loss.detach() if smooth is None else torch.lerp(loss.detach(), smooth, 0.97)
            if step % check_every == 0:
                checkpointer.offer(step, smooth.item())
            if step % 50 == 0:
                print(f"step {step} loss {smooth.item():.4f}")
        elapsed = time.perf_counter() - start
    print(f"steps={steps} seconds={elapsed:.2f} checkpoints={checkpointer.saves}")
    print(f"samples_per_s={steps * batch / elapsed:.1f}")


if __name__ == "__main__":
    main()
