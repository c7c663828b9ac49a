"""SimCLR on random crops of aerial tiles."""
import time
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(0)
rng = np.random.default_rng(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
TILE, CROP, BATCH, EPOCHS = 224, 48, 32, 5

tiles = rng.integers(0, 255, (256, 14, 14, 3), dtype=np.uint8).repeat(16, 1).repeat(16, 2)


class TwoViews(Dataset):
    def __len__(self):
        return len(tiles)

    def jitter(self, img):
        p = torch.rand(5).numpy()
        img = img.astype(np.float32) / 255
        img = img * (0.6 + 0.8 * p[0])
        img = (img - 0.5) * (0.6 + 0.8 * p[1]) + 0.5
        grey = img.mean(2, keepdims=True)
        img = grey + (img - grey) * (0.4 + 1.2 * p[2])
        img = np.clip(img, 0, 1) ** (0.7 + 0.6 * p[3])
        if p[4] < 0.2:
            img = img.mean(2, keepdims=True).repeat(3, 2)
        return img

    def crop(self, img):
        y, x = torch.randint(0, TILE - CROP, (2,)).tolist()
        return img[y:y + CROP, x:x + CROP]

    def view(self, img):
        img = self.jitter(img)
        img = self.crop(img)
        return torch.from_numpy(np.ascontiguousarray(img.transpose(2, 0, 1)))

    def __getitem__(self, i):
        return self.view(tiles[i]), self.view(tiles[i])


loader = DataLoader(TwoViews(), batch_size=BATCH, shuffle=True, drop_last=True, num_workers=2,
                    persistent_workers=True, pin_memory=device == "cuda")
net = nn.Sequential(
    nn.Conv2d(3, 16, 3, 2, 1), nn.BatchNorm2d(16), nn.ReLU(),
    nn.Conv2d(16, 32, 3, 2, 1), nn.BatchNorm2d(32), nn.ReLU(),
    nn.Conv2d(32, 64, 3, 2, 1), nn.BatchNorm2d(64), nn.ReLU(),
    nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 32)).to(device)
opt = torch.optim.AdamW(net.parameters(), 1e-3)
labels = torch.arange(2 * BATCH, device=device).roll(BATCH)
diag = torch.eye(2 * BATCH, dtype=torch.bool, device=device)

t0 = time.time()
for epoch in range(EPOCHS):
    total = torch.zeros((), device=device)
    for a, b in loader:
        x = torch.cat([a.to(device, non_blocking=True), b.to(device, non_blocking=True)])
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            z = net(x)
        z = F.normalize(z.float(), dim=1)
        loss = F.cross_entropy((z @ z.T / 0.2).masked_fill(diag, -1e9), labels)
        opt.zero_grad()
        loss.backward()
        opt.step()
        total += loss.detach()
    print(f"epoch {epoch} loss {total.item() / len(loader):.4f}")
print(f"training took {time.time() - t0:.2f}s")
