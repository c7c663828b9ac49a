import numpy as np, torch, torch.nn as nn, torch.nn.functional as F
from torch.utils.data import Dataset, DataLoader

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)

class FewShotImages(Dataset):
    """a small labelled set: an epoch is only a handful of batches"""
    def __init__(self, n=96):
        rng = np.random.default_rng(0)
        self.x = rng.integers(0, 256, (n, 3, 72, 72), dtype=np.uint8)
        self.y = rng.integers(0, 5, n)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        r, c = np.random.randint(0, 9, 2)
        x = self.x[i, :, r:r + 64, c:c + 64]
        if np.random.rand() < 0.5:
            x = x[:, :, ::-1]
        x = x.astype(np.float32) / 255.0
        x = np.clip(x * np.random.uniform(0.8, 1.2) + np.random.normal(0, 0.02, x.shape), 0, 1)
        return torch.from_numpy(x.astype(np.float32)), int(self.y[i])

loader = DataLoader(FewShotImages(), batch_size=32, shuffle=True, num_workers=4,
                    pin_memory=(device == "cuda"), persistent_workers=True)

net = nn.Sequential(
    nn.Conv2d(3, 16, 3, 2, 1), nn.BatchNorm2d(16), nn.ReLU(),
    nn.Conv2d(16, 32, 3, 2, 1), nn.BatchNorm2d(32), nn.ReLU(),
    nn.Conv2d(32, 48, 3, 2, 1), nn.BatchNorm2d(48), nn.ReLU(),
    nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(48, 5)).to(device)
opt = torch.optim.AdamW(net.parameters(), lr=1e-3)

for epoch in range(20):
    for x, y in loader:
        x, y = x.to(device, non_blocking=True), y.to(device, non_blocking=True)
        loss = F.cross_entropy(net(x), y)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
print(f"loss {loss.item():.3f}")
