import time, math
import torch, torch.nn as nn, torch.nn.functional as F
from torch.utils.data import TensorDataset, DataLoader, BatchSampler, RandomSampler

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)

# ----- data: small grayscale textures
N = 1920
freq = torch.randint(1, 6, (N, 2, 1, 1)).float()
phase = torch.rand(N, 1, 1) * 2 * math.pi
g = torch.linspace(0, 2 * math.pi, 28)
textures = torch.sin(freq[:, 0] * g.view(1, -1, 1) + freq[:, 1] * g.view(1, 1, -1) + phase)
dataset = TensorDataset(textures.unsqueeze(1))
batch_size = 64
# whole batches are indexed at once
loader = DataLoader(dataset, sampler=BatchSampler(RandomSampler(dataset), batch_size, drop_last=True), batch_size=None)


class TwoViews(nn.Module):
    """augmentations on the device, for the whole batch"""
    def view(self, x):
        B = x.size(0)
        dy, dx = torch.randint(0, 5, (2,)).tolist()
        x = x[:, :, dy:dy + 24, dx:dx + 24]
        gain = 1 + 0.4 * (torch.rand(B, 1, 1, 1, device=x.device) - 0.5)
        return x * gain + 0.1 * torch.randn_like(x)

    def forward(self, x):
        return self.view(x), self.view(x)


class SimCLR(nn.Module):
    def __init__(self, proj_dim=128):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(1, 16, 5, stride=2, padding=2), nn.BatchNorm2d(16), nn.ReLU(),
            nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.BatchNorm2d(32), nn.ReLU(),
            nn.Conv2d(32, 64, 3, stride=2, padding=1), nn.BatchNorm2d(64), nn.ReLU(),
            nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.projector = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, proj_dim))

    def forward(self, x):
        return self.projector(self.encoder(x))


class NTXentLoss(nn.Module):
    def __init__(self, temperature=0.2):
        super().__init__()
        self.temperature = temperature

    def similarity(self, z):
        z = F.normalize(z, dim=-1)
        return z @ z.t()

    def forward(self, z1, z2):
        n = z1.size(0)
        z = torch.cat([z1, z2])
        sim = self.similarity(z) / self.temperature
        sim = sim.masked_fill(torch.eye(2 * n, dtype=torch.bool, device=z.device), float("-inf"))
        target = torch.arange(2 * n, device=z.device).roll(n)
        return F.cross_entropy(sim, target)


model, augment, criterion = SimCLR().to(device), TwoViews(), NTXentLoss()
epochs = 3
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=1e-4)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs * (N // batch_size))

tic = time.time()
for ep in range(epochs):
    total = 0.0
    for (x,) in loader:
        v1, v2 = augment(x.to(device, non_blocking=True))
        z1, z2 = model(torch.cat([v1, v2])).chunk(2)
        loss = criterion(z1, z2)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        scheduler.step()
        total = total + loss.detach()
    print("epoch {:2d}  nt-xent {:.4f}".format(ep, float(total) / (N // batch_size)))
print("elapsed %.2f s" % (time.time() - tic))
