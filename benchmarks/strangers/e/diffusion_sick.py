import copy, math, time
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(123)
device = "cuda" if torch.cuda.is_available() else "cpu"

# --- data: 16x16 blobs, flattened
yy, xx = torch.meshgrid(torch.linspace(-1, 1, 16), torch.linspace(-1, 1, 16), indexing="ij")
c = torch.rand(320, 2, 1, 1) * 1.2 - 0.6
data = torch.exp(-((xx - c[:, 0]) ** 2 + (yy - c[:, 1]) ** 2) / 0.1).flatten(1) * 2 - 1
data = data.to(device)


class GaussianDiffusion:
    def __init__(self, T=500):
        self.T = T
        betas = torch.linspace(1e-4, 0.02, T, device=device)
        abar = torch.cumprod(1 - betas, 0)
        self.sqrt_ab, self.sqrt_1mab = abar.sqrt(), (1 - abar).sqrt()

    def loss(self, model, x0):
        t = torch.randint(0, self.T, (x0.size(0),), device=x0.device)
        eps = torch.randn_like(x0)
        xt = self.sqrt_ab[t, None] * x0 + self.sqrt_1mab[t, None] * eps
        return F.mse_loss(model(xt, t), eps)

    @torch.no_grad()
    def sample(self, model, n, steps=20):               # DDIM
        x = torch.randn(n, 256, device=device)
        ts = torch.linspace(self.T - 1, 0, steps).long().tolist()
        for i, t in enumerate(ts):
            e = model(x, torch.full((n,), t, device=device))
            x0 = ((x - self.sqrt_1mab[t] * e) / self.sqrt_ab[t]).clamp(-1, 1)
            x = x0 if i == len(ts) - 1 else self.sqrt_ab[ts[i + 1]] * x0 + self.sqrt_1mab[ts[i + 1]] * e
        return x


class Denoiser(nn.Module):
    def __init__(self, dim=256, width=1024, depth=4):
        super().__init__()
        self.register_buffer("freqs", torch.exp(-math.log(10000) * torch.arange(64) / 64))
        self.time = nn.Sequential(nn.Linear(128, width), nn.SiLU(), nn.Linear(width, width))
        self.inp = nn.Linear(dim, width)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.SiLU(), nn.Linear(width, width))
            for _ in range(depth))
        self.out = nn.Linear(width, dim)

    def forward(self, x, t):
        a = t[:, None].float() * self.freqs
        emb = self.time(torch.cat([a.sin(), a.cos()], -1))
        h = self.inp(x)
        for block in self.blocks:
            h = h + block(h + emb)
        return self.out(h)


class EMA:
    """Shadow weights. Kept on the host in double precision: small updates are not lost, and no GPU memory is used."""

    def __init__(self, model, decay=0.999):
        self.decay = decay
        self.shadow = {k: v.detach().cpu().numpy().astype(np.float64) for k, v in model.named_parameters()}

    @torch.no_grad()
    def update(self, model):
        for k, v in model.named_parameters():
            self.shadow[k] = self.decay * self.shadow[k] + (1 - self.decay) * v.detach().cpu().numpy()

    def copy_to(self, model):
        with torch.no_grad():
            for k, v in model.named_parameters():
                v.copy_(torch.as_tensor(self.shadow[k]))


model = Denoiser().to(device)
diffusion = GaussianDiffusion()
emas = {d: EMA(model, d) for d in (0.99, 0.995, 0.999)}       # compare several averaging lengths
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
epochs, bs = 3, 8
print("params: %.1fM" % (sum(p.numel() for p in model.parameters()) / 1e6))

t_begin = time.time()
for epoch in range(epochs):
    avg = 0.0
    perm = torch.randperm(len(data), device=device)
    for i in range(0, len(data) - bs + 1, bs):
        loss = diffusion.loss(model, data[perm[i:i + bs]])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        for ema in emas.values():
            ema.update(model)
        avg = avg + loss.detach()
    print(f"epoch {epoch}: loss {float(avg) / (len(data) // bs):.4f}")
ema_model = copy.deepcopy(model)
for d, ema in emas.items():
    ema.copy_to(ema_model)
    samples = diffusion.sample(ema_model, 16)
    print("ema %.3f: sample mean %.3f std %.3f" % (d, samples.mean().item(), samples.std().item()))
print("took %.2fs" % (time.time() - t_begin))
