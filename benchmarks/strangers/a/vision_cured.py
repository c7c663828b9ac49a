import os, tempfile, numpy as np, torch, torch.nn as nn, torch.nn.functional as F
from torch.utils.data import Dataset, DataLoader

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)
root = tempfile.mkdtemp()
rng = np.random.default_rng(0)
PER_SHARD = 32
for s in range(16):
    np.savez_compressed(os.path.join(root, f"shard{s}.npz"),
                        x=rng.integers(0, 16, (PER_SHARD, 3, 64, 64), dtype=np.uint8),
                        y=rng.integers(0, 10, PER_SHARD))

class ShardDataset(Dataset):
    def __init__(self, root):
        self.files = sorted(os.path.join(root, f) for f in os.listdir(root))
        self.shards = []
        for f in self.files:
            z = np.load(f)
            self.shards.append((z["x"], z["y"]))

    def __len__(self):
        return len(self.files) * PER_SHARD

    def __getitem__(self, i):
        s, j = divmod(i, PER_SHARD)
        x, y = self.shards[s][0][j], int(self.shards[s][1][j])
        if np.random.rand() < 0.5:
            x = x[:, :, ::-1].copy()
        return torch.from_numpy(x), y

loader = DataLoader(ShardDataset(root), batch_size=16, shuffle=True, num_workers=2,
                    pin_memory=(device == "cuda"), drop_last=True, persistent_workers=True)
net = nn.Sequential(
    nn.Conv2d(3, 16, 3, stride=2, padding=1), nn.BatchNorm2d(16), nn.ReLU(),
    nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.BatchNorm2d(32), nn.ReLU(),
    nn.Conv2d(32, 64, 3, stride=2, padding=1), nn.BatchNorm2d(64), nn.ReLU(),
    nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10)).to(device)
opt = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)

step = 0
for epoch in range(2):
    for x, y in loader:
        x = x.to(device, non_blocking=True).float().div_(16)
        y = y.to(device, non_blocking=True)
        loss = F.cross_entropy(net(x), y)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        step += 1
    print(f"epoch {epoch} step {step} loss {loss.item():.3f}")
