"""DDPM with an MLP denoiser on 8x8 digits-like patches, with an EMA copy."""
import copy, os, tempfile, time
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
torch.set_float32_matmul_precision("high")
device = "cuda" if torch.cuda.is_available() else "cpu"
STEPS, BATCH, DIM, HID, TMAX = 80, 64, 64, 768, 200
CKPT_EVERY = 40

ckpt = os.path.join(tempfile.mkdtemp(), "last.pt")
data = (torch.randn(2048, 4) @ torch.randn(4, DIM)).tanh().to(device)
alpha_bar = torch.cumprod(1 - torch.linspace(1e-4, 0.02, TMAX), 0).to(device)


class Denoiser(nn.Module):
    def __init__(self):
        super().__init__()
        self.t = nn.Embedding(TMAX, HID)
        self.inp = nn.Linear(DIM, HID)
        self.mid = nn.ModuleList([nn.Linear(HID, HID) for _ in range(3)])
        self.out = nn.Linear(HID, DIM)

    def forward(self, x, t):
        h = self.inp(x) + self.t(t)
        for m in self.mid:
            h = h + F.silu(m(h))
        return self.out(h)


model = Denoiser().to(device)
ema = copy.deepcopy(model).requires_grad_(False)
opt = torch.optim.AdamW(model.parameters(), 3e-4)

t0 = time.time()
for step in range(1, STEPS + 1):
    x0 = data[torch.randint(len(data), (BATCH,), device=device)]
    t = torch.randint(TMAX, (BATCH,), device=device)
    eps = torch.randn_like(x0)
    ab = alpha_bar[t][:, None]
    with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
        pred = model(ab.sqrt() * x0 + (1 - ab).sqrt() * eps, t)
    loss = F.mse_loss(pred.float(), eps)
    opt.zero_grad()
    loss.backward()
    opt.step()
    torch._foreach_lerp_(list(ema.parameters()), [p.detach() for p in model.parameters()], 0.01)
    if step % CKPT_EVERY == 0:
        torch.save({"step": step, "model": model.state_dict(), "ema": ema.state_dict(), "opt": opt.state_dict()}, ckpt)
    if step % 20 == 0:
        print(f"step {step} loss {loss.item():.4f}")
print(f"training took {time.time() - t0:.2f}s")
