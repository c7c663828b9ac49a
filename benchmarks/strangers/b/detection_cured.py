import numpy as np, torch, torch.nn as nn, torch.nn.functional as F
from torch.utils.data import Dataset, DataLoader

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)
rng = np.random.default_rng(0)
RAW, SIZE, S = 720, 128, 16
photos = [rng.integers(0, 256, (3, RAW, RAW), dtype=np.uint8) for _ in range(48)]
boxes = rng.uniform(0.2, 0.8, (48, 4)).astype(np.float32)          # cx cy w h, relative

def load_resized(i):
    x = torch.from_numpy(photos[i]).float()[None]
    return F.interpolate(x, (SIZE, SIZE), mode="bicubic", antialias=True)[0] / 255

class Boxes(Dataset):
    def __init__(self):
        self.small = [load_resized(i) for i in range(len(photos))]

    def __len__(self):
        return len(photos)

    def __getitem__(self, i):
        x, b = self.small[i], torch.from_numpy(boxes[i])
        if torch.rand(()) < 0.5:
            x, b = x.flip(2), torch.cat([1 - b[:1], b[1:]])
        return x, b

class CenterNet(nn.Module):
    def __init__(self):
        super().__init__()
        layers, c = [], 3
        for o in (16, 32, 64):
            layers += [nn.Conv2d(c, o, 3, 2, 1), nn.BatchNorm2d(o), nn.ReLU()]
            c = o
        self.body, self.head = nn.Sequential(*layers), nn.Conv2d(c, 5, 1)

    def forward(self, x):
        return self.head(self.body(x))

net = CenterNet().to(device)
opt = torch.optim.Adam(net.parameters(), lr=1e-3)
loader = DataLoader(Boxes(), batch_size=8, shuffle=True, num_workers=2, persistent_workers=True,
                    pin_memory=(device == "cuda"))
for epoch in range(10):
    for x, b in loader:
        x, b = x.to(device, non_blocking=True), b.to(device, non_blocking=True)
        out = net(x)
        col, row = (b[:, 0] * S).long().clamp(0, S - 1), (b[:, 1] * S).long().clamp(0, S - 1)
        n = torch.arange(len(x), device=device)
        heat = torch.zeros(len(x), S, S, device=device)
        heat[n, row, col] = 1
        loss = F.binary_cross_entropy_with_logits(out[:, 0], heat) + F.l1_loss(out[n, 1:, row, col], b)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
print(f"loss {loss.item():.3f}")
