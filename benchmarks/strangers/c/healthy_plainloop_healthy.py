"""Denoising CNN on memory-resident patches; everything in one process."""
import csv
import os
import tempfile
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"

WIDTH = 256 if device == "cuda" else 32
SIZE, BATCH, EPOCHS, N = 48, 8, 4, 160
tmp = tempfile.TemporaryDirectory()


class Patches(Dataset):
    def __init__(self, seed=0):
        rng = np.random.default_rng(seed)
        self.clean = rng.random((N, 1, SIZE // 4, SIZE // 4), dtype=np.float32).repeat(4, 2).repeat(4, 3)

    def __len__(self):
        return N

    def __getitem__(self, i):
        x = self.clean[i]
        if np.random.rand() < 0.5:
            x = x[:, :, ::-1]
        if np.random.rand() < 0.5:
            x = x[:, ::-1]
        return torch.from_numpy(x.copy())


class DnCNN(nn.Module):
    def __init__(self, depth=5):
        super().__init__()
        layers = [nn.Conv2d(1, WIDTH, 3, padding=1), nn.ReLU()]
        for _ in range(depth):
            layers += [nn.Conv2d(WIDTH, WIDTH, 3, padding=1), nn.ReLU()]
        layers.append(nn.Conv2d(WIDTH, 1, 3, padding=1))
        self.net = nn.Sequential(*layers)

    def forward(self, x):
        return x - self.net(x)


loader = DataLoader(Patches(), batch_size=BATCH, shuffle=True, num_workers=0)
model = DnCNN().to(device)
opt = torch.optim.Adam(model.parameters(), lr=1e-3)
log_file = open(os.path.join(tmp.name, "log.csv"), "w", newline="")
log = csv.writer(log_file)

start, step = time.time(), 0
for epoch in range(EPOCHS):
    losses = []
    for clean in loader:
        clean = clean.to(device)
        noisy = clean + 0.2 * torch.randn_like(clean)
        loss = F.mse_loss(model(noisy), clean)
        opt.zero_grad()
        loss.backward()
        opt.step()
        losses.append(loss.item())
        log.writerow([epoch, step, losses[-1]])
        step += 1
    log_file.flush()
    print(f"epoch {epoch}: loss {np.mean(losses):.5f}")
print(f"train time {time.time() - start:.2f}s")
