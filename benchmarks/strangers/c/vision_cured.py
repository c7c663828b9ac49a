"""Classify a folder of photos (synthetic here) with a small CNN."""
import os
import tempfile
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from PIL import Image
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(0)
rng = np.random.default_rng(0)
device = "cuda" if torch.cuda.is_available() else "cpu"

N_IMAGES, N_CLASSES, EPOCHS, BATCH = 240, 4, 8, 24

tmp = tempfile.TemporaryDirectory()


def make_photos(root):
    items = []
    for i in range(N_IMAGES):
        label = i % N_CLASSES
        small = rng.integers(0, 120, (24, 32, 3), dtype=np.uint8)
        small[:, :, label % 3] += 40 + 30 * (label // 3)
        img = Image.fromarray(small).resize((800, 600), Image.BICUBIC)
        path = os.path.join(root, f"{i:05d}.jpg")
        img.save(path, quality=92)
        items.append((path, label))
    return items


class PhotoFolder(Dataset):
    def __init__(self, items, size=48):
        self.items = items
        self.size = size
        self.images = [self.load(path) for path, _ in items]

    def load(self, path):
        img = Image.open(path).convert("RGB")
        return np.asarray(img.resize((self.size, self.size), Image.BILINEAR))

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        label = self.items[i][1]
        img = self.images[i]
        x = torch.from_numpy(img.copy()).permute(2, 0, 1).float() / 255.0
        if torch.rand(1).item() < 0.5:
            x = x.flip(-1)
        return (x - 0.4) / 0.25, label


class SmallCNN(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(32, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(),
        )
        self.head = nn.Linear(64, N_CLASSES)

    def forward(self, x):
        return self.head(self.features(x).mean((2, 3)))


items = make_photos(tmp.name)
model = SmallCNN().to(device)
opt = torch.optim.AdamW(model.parameters(), lr=2e-3)

start = time.time()
train_set = PhotoFolder(items)
loader = DataLoader(train_set, batch_size=BATCH, shuffle=True, num_workers=2,
                    pin_memory=(device == "cuda"), persistent_workers=True)
for epoch in range(EPOCHS):
    total, correct, seen = torch.zeros((), device=device), torch.zeros((), device=device), 0
    for x, y in loader:
        x = x.to(device, non_blocking=True)
        y = y.to(device, non_blocking=True)
        logits = model(x)
        loss = F.cross_entropy(logits, y)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        total += loss.detach() * len(y)
        correct += (logits.argmax(1) == y).sum()
        seen += len(y)
    print(f"epoch {epoch}: loss {total.item() / seen:.4f} acc {correct.item() / seen:.3f}")
print(f"train time {time.time() - start:.2f}s")
