"""Small CNN on a folder of camera photos, 5 classes."""
import os, tempfile, time
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from PIL import Image
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(0)
rng = np.random.default_rng(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
EPOCHS, BATCH, SIZE = 6, 8, 64

root = tempfile.mkdtemp()
files = []
for i in range(64):
    label = i % 5
    small = rng.integers(0, 255, (12, 16, 3)).astype(np.uint8)
    small[..., label % 3] //= label + 1
    path = os.path.join(root, f"{i:04d}.jpg")
    Image.fromarray(small).resize((1280, 960)).save(path, quality=90)
    files.append((path, label))


class Photos(Dataset):
    def __init__(self, files):
        self.files = files
        self.images = [self.load(path) for path, _ in files]

    def __len__(self):
        return len(self.files)

    def load(self, path):
        img = Image.open(path).convert("RGB").resize((SIZE, SIZE), Image.BILINEAR)
        return torch.from_numpy(np.array(img)).permute(2, 0, 1).float() / 255

    def __getitem__(self, i):
        path, label = self.files[i]
        x = self.images[i]
        if torch.rand(1) < 0.5:
            x = x.flip(2)
        return (x - 0.5) / 0.25, label


loader = DataLoader(Photos(files), batch_size=BATCH, shuffle=True, num_workers=2,
                    persistent_workers=True, pin_memory=device == "cuda")
model = nn.Sequential(
    nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
    nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
    nn.Conv2d(32, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(), nn.AdaptiveAvgPool2d(1),
    nn.Flatten(), nn.Linear(64, 5)).to(device)
opt = torch.optim.AdamW(model.parameters(), 1e-3)

t0 = time.time()
for epoch in range(EPOCHS):
    total = torch.zeros((), device=device)
    for x, y in loader:
        x, y = x.to(device, non_blocking=True), y.to(device, non_blocking=True)
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            loss = F.cross_entropy(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        total += loss.detach()
    print(f"epoch {epoch} loss {total.item() / len(loader):.4f}")
print(f"training took {time.time() - t0:.2f}s")
