import copy, os, tempfile, numpy as np, torch, torch.nn as nn, torch.nn.functional as F
from torch.utils.data import Dataset, DataLoader

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)
B, W, SIZE = (32, 128, 128) if device == "cuda" else (4, 16, 64)
STEPS = 60

class Tiles(Dataset):
    """random crops of memory-mapped big images, straight from disk"""
    def __init__(self):
        d = tempfile.mkdtemp()
        rng = np.random.default_rng(0)
        np.save(os.path.join(d, "img.npy"), rng.integers(0, 256, (16, 3, 512, 512), dtype=np.uint8))
        np.save(os.path.join(d, "mask.npy"), rng.integers(0, 4, (16, 512, 512), dtype=np.uint8))
        self.img = np.load(os.path.join(d, "img.npy"), mmap_mode="r")
        self.mask = np.load(os.path.join(d, "mask.npy"), mmap_mode="r")

    def __len__(self):
        return STEPS * B

    def __getitem__(self, _):
        i, (r, c) = np.random.randint(16), np.random.randint(0, 512 - SIZE, 2)
        return (torch.from_numpy(self.img[i, :, r:r + SIZE, c:c + SIZE].copy()),
                torch.from_numpy(self.mask[i, r:r + SIZE, c:c + SIZE].copy()))

def conv(c, o):
    return nn.Sequential(nn.Conv2d(c, o, 3, 1, 1), nn.BatchNorm2d(o), nn.ReLU(),
                         nn.Conv2d(o, o, 3, 1, 1), nn.BatchNorm2d(o), nn.ReLU())

class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = conv(3, W), conv(W, 2 * W), conv(2 * W, 2 * W)
        self.d, self.out = conv(3 * W, W), nn.Conv2d(W, 4, 1)

    def forward(self, x):
        a = self.a(x)
        m = self.c(self.b(F.max_pool2d(a, 2)))
        return self.out(self.d(torch.cat([a, F.interpolate(m, scale_factor=2.0)], 1)))

net = UNet().to(device)
ema = copy.deepcopy(net)
opt = torch.optim.AdamW(net.parameters(), lr=1e-3)
loader = DataLoader(Tiles(), batch_size=B, num_workers=1, pin_memory=(device == "cuda"))
for step, (x, m) in enumerate(loader):
    x, m = x.to(device, non_blocking=True).float() / 255, m.to(device, non_blocking=True).long()
    with torch.autocast(device, dtype=torch.bfloat16, enabled=(device == "cuda")):
        loss = F.cross_entropy(net(x).float(), m)
    opt.zero_grad()
    loss.backward()
    opt.step()
    with torch.no_grad():                       # exponential moving average, every step
        torch._foreach_lerp_(list(ema.parameters()), list(net.parameters()), 0.01)
    if step % 20 == 19:
        print(f"step {step} loss {loss.cpu().item():.3f}")
