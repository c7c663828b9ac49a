"""SimCLR pretraining from an .npz archive of unlabeled images."""
import os
import tempfile
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(0)
rng = np.random.default_rng(0)
device = "cuda" if torch.cuda.is_available() else "cpu"

N, SIZE, CROP, BATCH, EPOCHS = 768, 96, 32, 96, 12

tmp = tempfile.TemporaryDirectory()
ARCHIVE = os.path.join(tmp.name, "unlabeled.npz")


def make_archive():
    base = rng.integers(0, 200, (N, 3, SIZE // 8, SIZE // 8), dtype=np.uint8)
    images = base.repeat(8, axis=2).repeat(8, axis=3)
    images += rng.integers(0, 24, images.shape, dtype=np.uint8)
    np.savez_compressed(ARCHIVE, images=images)


class Unlabeled(Dataset):
    def __init__(self, path, n):
        self.path, self.n = path, n
        self.images = None

    def __len__(self):
        return self.n

    def view(self, img):
        top, left = torch.randint(0, SIZE - CROP, (2,)).tolist()
        v = torch.from_numpy(img[:, top:top + CROP, left:left + CROP].copy()).float() / 255.0
        if torch.rand(1).item() < 0.5:
            v = v.flip(-1)
        return v * (0.6 + 0.8 * torch.rand(3, 1, 1))

    def __getitem__(self, i):
        if self.images is None:
            self.images = np.load(self.path)["images"]
        img = self.images[i]
        return self.view(img), self.view(img)


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(3, 16, 3, stride=2, padding=1), nn.BatchNorm2d(16), nn.ReLU(),
            nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.BatchNorm2d(32), nn.ReLU(),
            nn.Conv2d(32, 64, 3, stride=2, padding=1), nn.BatchNorm2d(64), nn.ReLU(),
        )
        self.proj = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 32))

    def forward(self, x):
        return F.normalize(self.proj(self.net(x).mean((2, 3))), dim=1)


def nt_xent(z1, z2, tau=0.2):
    z = torch.cat([z1, z2])
    n = len(z1)
    sim = z @ z.T / tau
    sim.fill_diagonal_(float("-inf"))
    target = torch.arange(2 * n, device=z.device).roll(n)
    return F.cross_entropy(sim, target)


make_archive()
model = Encoder().to(device)
opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
loader = DataLoader(Unlabeled(ARCHIVE, N), batch_size=BATCH, shuffle=True, drop_last=True,
                    num_workers=2, pin_memory=(device == "cuda"), persistent_workers=True)

start = time.time()
for epoch in range(EPOCHS):
    running = torch.zeros((), device=device)
    for v1, v2 in loader:
        x = torch.cat([v1.to(device, non_blocking=True), v2.to(device, non_blocking=True)])
        z1, z2 = model(x).chunk(2)
        loss = nt_xent(z1, z2)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        running += loss.detach()
    print(f"epoch {epoch}: loss {running.item() / len(loader):.4f}")
print(f"train time {time.time() - start:.2f}s")
