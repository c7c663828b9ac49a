import torch, torch.nn as nn, torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)
P, TOK, D, T, B = 4 * 4 * 3, 64, 96, 1000, 8           # 32x32 images as 64 patches
data = torch.randn(512, TOK, P, device=device).clamp(-1, 1)
abar = torch.cos(torch.linspace(0, 1, T, device=device) * 1.55) ** 2

class DiTBlock(nn.Module):
    def __init__(self, d, h=4):
        super().__init__()
        self.h = h
        self.n1, self.n2 = nn.LayerNorm(d, elementwise_affine=False), nn.LayerNorm(d, elementwise_affine=False)
        self.qkv, self.proj = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.mlp = nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d))
        self.ada = nn.Linear(d, 6 * d)

    def forward(self, x, c):
        s1, b1, g1, s2, b2, g2 = self.ada(c)[:, None].chunk(6, -1)
        n, t, d = x.shape
        h = self.n1(x) * (1 + s1) + b1
        q, k, v = self.qkv(h).view(n, t, 3, self.h, -1).permute(2, 0, 3, 1, 4)
        x = x + g1 * self.proj(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(n, t, d))
        return x + g2 * self.mlp(self.n2(x) * (1 + s2) + b2)

class DiT(nn.Module):
    def __init__(self, depth=4):
        super().__init__()
        self.inp, self.out = nn.Linear(P, D), nn.Linear(D, P)
        self.pos = nn.Parameter(torch.randn(TOK, D) * 0.02)
        self.t = nn.Sequential(nn.Linear(64, D), nn.SiLU(), nn.Linear(D, D), nn.SiLU())
        self.blocks = nn.ModuleList([DiTBlock(D) for _ in range(depth)])
        self.register_buffer("freq", torch.exp(-torch.arange(32) * 0.25))

    def forward(self, x, t):
        e = t[:, None].float() * self.freq
        c = self.t(torch.cat([e.sin(), e.cos()], 1))
        x = self.inp(x) + self.pos
        for blk in self.blocks:
            x = checkpoint(blk, x, c, use_reentrant=False)
        return self.out(x)

net = DiT().to(device)
opt = torch.optim.AdamW(net.parameters(), lr=1e-4)
for step in range(60):
    x0 = data[torch.randint(0, len(data), (B,), device=device)]
    t = torch.randint(0, T, (B,), device=device)
    eps, a = torch.randn_like(x0), abar[t][:, None, None]
    loss = F.mse_loss(net(a.sqrt() * x0 + (1 - a).sqrt() * eps, t), eps)
    opt.zero_grad(set_to_none=True)
    loss.backward()
    opt.step()
print(f"loss {loss.item():.4f}")
