import gc, torch, torch.nn as nn, torch.nn.functional as F

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)
data = torch.rand(512, 3, 32, 32, device=device) * 2 - 1
T = 1000
abar = torch.cumprod(1 - torch.linspace(1e-4, 0.02, T, device=device), 0)

class Res(nn.Module):
    def __init__(self, c, o, temb):
        super().__init__()
        self.n1, self.c1 = nn.GroupNorm(8, c), nn.Conv2d(c, o, 3, 1, 1)
        self.n2, self.c2 = nn.GroupNorm(8, o), nn.Conv2d(o, o, 3, 1, 1)
        self.t = nn.Linear(temb, o)
        self.skip = nn.Conv2d(c, o, 1) if c != o else nn.Identity()

    def forward(self, x, t):
        h = self.c1(F.silu(self.n1(x))) + self.t(t)[:, :, None, None]
        return self.skip(x) + self.c2(F.silu(self.n2(h)))

class UNet(nn.Module):
    def __init__(self, c=24, temb=64):
        super().__init__()
        self.temb = nn.Sequential(nn.Linear(32, temb), nn.SiLU(), nn.Linear(temb, temb))
        self.inp, self.out = nn.Conv2d(3, c, 3, 1, 1), nn.Conv2d(c, 3, 3, 1, 1)
        self.d1, self.d2, self.mid = Res(c, c, temb), Res(c, 2 * c, temb), Res(2 * c, 2 * c, temb)
        self.u2, self.u1 = Res(4 * c, c, temb), Res(2 * c, c, temb)
        self.register_buffer("freq", torch.exp(-torch.arange(16) * 0.5))

    def forward(self, x, t):
        e = t[:, None].float() * self.freq
        e = self.temb(torch.cat([e.sin(), e.cos()], 1))
        h1 = self.d1(self.inp(x), e)
        h2 = self.d2(F.avg_pool2d(h1, 2), e)
        m = self.mid(h2, e)
        u = self.u2(torch.cat([m, h2], 1), e)
        u = F.interpolate(u, scale_factor=2.0)
        return self.out(self.u1(torch.cat([u, h1], 1), e))

net = UNet().to(device)
opt = torch.optim.AdamW(net.parameters(), lr=2e-4)
for step in range(60):
    x0 = data[torch.randint(0, len(data), (12,), device=device)]
    t = torch.randint(0, T, (12,), device=device)
    noise = torch.randn_like(x0)
    a = abar[t][:, None, None, None]
    loss = F.mse_loss(net(a.sqrt() * x0 + (1 - a).sqrt() * noise, t), noise)
    opt.zero_grad(set_to_none=True)
    loss.backward()
    opt.step()
    # keep memory low
    torch.cuda.empty_cache()
    if device == "cuda":
        gc.collect()
print(f"loss {loss.item():.4f}")
