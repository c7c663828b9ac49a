"""DDPM on 16x16 images with an MLP denoiser and an EMA of the weights."""
import copy
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"

T, DIM, HIDDEN, BATCH, STEPS, DECAY = 200, 256, 1024, 64, 110, 0.99


def make_images(n):
    yy, xx = torch.meshgrid(torch.arange(16.0), torch.arange(16.0), indexing="ij")
    f = 0.2 + 0.6 * torch.rand(n, 2, 1, 1)
    phase = 6.28 * torch.rand(n, 1, 1)
    return torch.sin(f[:, 0] * xx + f[:, 1] * yy + phase).flatten(1)


class Denoiser(nn.Module):
    def __init__(self):
        super().__init__()
        self.temb = nn.Embedding(T, HIDDEN)
        self.inp = nn.Linear(DIM, HIDDEN)
        self.mid = nn.ModuleList([nn.Linear(HIDDEN, HIDDEN) for _ in range(4)])
        self.out = nn.Linear(HIDDEN, DIM)

    def forward(self, x, t):
        h = self.inp(x) + self.temb(t)
        for layer in self.mid:
            h = h + F.silu(layer(h))
        return self.out(h)


class EMA:
    def __init__(self, model):
        self.shadow = copy.deepcopy(model).requires_grad_(False)

    @torch.no_grad()
    def update(self, model):
        for s, p in zip(self.shadow.parameters(), model.parameters()):
            s.mul_(DECAY).add_(p.detach(), alpha=1 - DECAY)


images = make_images(4096).to(device)
alpha_bar = torch.cumprod(1 - torch.linspace(1e-4, 0.04, T), 0).to(device)
model = Denoiser().to(device)
ema = EMA(model)
opt = torch.optim.AdamW(model.parameters(), lr=3e-4)

start = time.time()
for step in range(1, STEPS + 1):
    x0 = images[torch.randint(len(images), (BATCH,), device=device)]
    t = torch.randint(T, (BATCH,), device=device)
    noise = torch.randn_like(x0)
    ab = alpha_bar[t].unsqueeze(1)
    xt = ab.sqrt() * x0 + (1 - ab).sqrt() * noise
    loss = F.mse_loss(model(xt, t), noise)
    opt.zero_grad(set_to_none=True)
    loss.backward()
    opt.step()
    ema.update(model)
    if step % 20 == 0:
        print(f"step {step}: loss {loss.item():.4f}")
print(f"train time {time.time() - start:.2f}s")
