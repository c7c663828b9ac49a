"""Train a head on a frozen backbone, random crops each time, validation and best-checkpoint every epoch."""
import os
import tempfile
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"

WIDTH = 256 if device == "cuda" else 32
CLASSES, CROP, BATCH, EPOCHS = 8, 32, 32, 8
tmp = tempfile.TemporaryDirectory()
best_path = os.path.join(tmp.name, "best.pt")


def make_split(n):
    y = torch.randint(CLASSES, (n,))
    x = F.interpolate(protos[y] + 0.7 * torch.randn(n, 3, 10, 10), size=40, mode="bilinear")
    return x.to(device), y.to(device)


def random_crop(x):
    b = x.shape[0]
    off = torch.randint(0, x.shape[-1] - CROP + 1, (2, b, 1), device=x.device)
    r = torch.arange(CROP, device=x.device)
    rows, cols = off[0] + r, off[1] + r
    i = torch.arange(b, device=x.device)[:, None, None]
    x = x[i, :, rows[:, :, None], cols[:, None, :]].permute(0, 3, 1, 2)
    flip = torch.rand(b, 1, 1, 1, device=x.device) < 0.5
    return torch.where(flip, x.flip(-1), x) + 0.05 * torch.randn_like(x)


protos = torch.randn(CLASSES, 3, 10, 10)
train_x, train_y = make_split(640)
val_x, val_y = make_split(96)

backbone = nn.Sequential(
    nn.Conv2d(3, WIDTH, 3, padding=1), nn.ReLU(),
    nn.Conv2d(WIDTH, 2 * WIDTH, 3, padding=1, stride=2), nn.ReLU(),
    nn.Conv2d(2 * WIDTH, 4 * WIDTH, 3, padding=1), nn.ReLU(),
    nn.AdaptiveAvgPool2d(4), nn.Flatten(),
).to(device).eval().requires_grad_(False)
head = nn.Sequential(nn.Linear(64 * WIDTH, 256), nn.ReLU(), nn.Dropout(0.2), nn.Linear(256, CLASSES)).to(device)
opt = torch.optim.AdamW(head.parameters(), lr=1e-3)


@torch.no_grad()
def validate():
    head.eval()
    correct = torch.zeros((), device=device)
    for x, y in zip(val_x.split(BATCH), val_y.split(BATCH)):
        correct += (head(backbone(x[:, :, 4:36, 4:36])).argmax(1) == y).sum()
    head.train()
    return correct.item() / len(val_y)


best = 0.0
start = time.time()
for epoch in range(EPOCHS):
    running = torch.zeros((), device=device)
    for idx in torch.randperm(len(train_x), device=device).split(BATCH):
        x, y = random_crop(train_x[idx]), train_y[idx]
        with torch.no_grad():
            feats = backbone(x)
        loss = F.cross_entropy(head(feats), y)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        running += loss.detach()
    acc = validate()
    if acc > best:
        best = acc
        torch.save(head.state_dict(), best_path)
    print(f"epoch {epoch}: loss {running.item() / (len(train_x) // BATCH):.4f} val acc {acc:.3f}")
print(f"train time {time.time() - start:.2f}s")
