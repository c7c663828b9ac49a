import torch, torch.nn as nn, torch.nn.functional as F

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)
N, D_IMG, D_TXT, E, B = 4096, 512, 384, 128, 128
img = torch.randn(N, D_IMG, device=device)
txt = img[:, :D_TXT] + 0.5 * torch.randn(N, D_TXT, device=device)

class Tower(nn.Module):
    """deep residual MLP on frozen features (CLIP-style head)"""
    def __init__(self, d, width=128, depth=12):
        super().__init__()
        self.inp = nn.Linear(d, width)
        self.blocks = nn.ModuleList([nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.GELU(),
                                                   nn.Linear(width, width)) for _ in range(depth)])
        self.out = nn.Linear(width, E)

    def forward(self, x):
        x = self.inp(x)
        for b in self.blocks:
            x = x + b(x)
        return F.normalize(self.out(x), dim=1)

ti, tt = Tower(D_IMG).to(device), Tower(D_TXT).to(device)
scale = nn.Parameter(torch.tensor(2.6, device=device))
params = [*ti.parameters(), *tt.parameters(), scale]
opt = torch.optim.AdamW(params, lr=5e-4, fused=True)
labels = torch.arange(B, device=device)
history = []

STEPS = 100
for step in range(STEPS):
    i = torch.randint(0, N, (B,), device=device)
    logits = ti(img[i]) @ tt(txt[i]).T * scale.exp()
    loss = (F.cross_entropy(logits, labels) + F.cross_entropy(logits.T, labels)) / 2
    opt.zero_grad(set_to_none=True)
    loss.backward()
    grad_norms = [p.grad.norm().item() for p in params]
    accuracy = (logits.argmax(1) == labels).float().mean().item()
    history.append((loss.item(), accuracy, max(grad_norms), scale.item()))
    opt.step()
print("loss %.3f acc %.3f" % tuple(history[-1][:2]))
