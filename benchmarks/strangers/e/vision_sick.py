# Small ResNet on a sharded image dataset (npz shards, like we get them from the preprocessing job)
import os, time, tempfile
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import Dataset, DataLoader

torch.manual_seed(0)
rng = np.random.default_rng(0)
device = "cuda" if torch.cuda.is_available() else "cpu"

# ---------------------------------------------------------------- fake shards on disk
NUM_SHARDS, PER_SHARD, SIZE, NUM_CLASSES = 10, 128, 40, 10
root = tempfile.mkdtemp(prefix="shards_")
prototypes = rng.integers(40, 200, (NUM_CLASSES, 5, 5, 3))
for s in range(NUM_SHARDS):
    labels = rng.integers(0, NUM_CLASSES, PER_SHARD)
    imgs = prototypes[labels].repeat(8, axis=1).repeat(8, axis=2)
    imgs = (imgs + rng.integers(0, 32, imgs.shape)).clip(0, 255).astype(np.uint8)
    np.savez_compressed(os.path.join(root, f"shard_{s:03d}.npz"), images=imgs, labels=labels)


class ShardedImages(Dataset):
    def __init__(self, root, train=True):
        self.paths = sorted(os.path.join(root, f) for f in os.listdir(root))
        self.per_shard = PER_SHARD
        self.train = train

    def __len__(self):
        return len(self.paths) * self.per_shard

    def __getitem__(self, idx):
        shard, i = divmod(idx, self.per_shard)
        with np.load(self.paths[shard]) as z:
            img = z["images"][i]
            label = z["labels"][i]
        if self.train:
            if torch.rand(()) < 0.5:
                img = img[:, ::-1]
            y, x = torch.randint(0, SIZE - 32 + 1, (2,)).tolist()
            img = img[y:y + 32, x:x + 32]
        return torch.from_numpy(np.ascontiguousarray(img)), int(label)


class Block(nn.Module):
    def __init__(self, cin, cout, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(cin, cout, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(cout)
        self.conv2 = nn.Conv2d(cout, cout, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(cout)
        self.skip = nn.Identity() if stride == 1 and cin == cout else nn.Conv2d(cin, cout, 1, stride, bias=False)

    def forward(self, x):
        h = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(h)) + self.skip(x))


model = nn.Sequential(
    nn.Conv2d(3, 16, 3, 2, 1), Block(16, 16, 1), Block(16, 32, 2), Block(32, 64, 2),
    nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, NUM_CLASSES)).to(device)
mean = torch.tensor([0.47, 0.47, 0.47], device=device).view(1, 3, 1, 1)
std = torch.tensor([0.25, 0.25, 0.25], device=device).view(1, 3, 1, 1)

train_loader = DataLoader(ShardedImages(root), batch_size=32, shuffle=True, drop_last=True,
                          num_workers=2, pin_memory=torch.cuda.is_available(), persistent_workers=True)
epochs = 3
opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4)
sched = torch.optim.lr_scheduler.OneCycleLR(opt, 0.1, total_steps=epochs * len(train_loader))

start = time.time()
for epoch in range(epochs):
    model.train()
    running = torch.zeros((), device=device)
    for images, target in train_loader:
        images = images.to(device, non_blocking=True).permute(0, 3, 1, 2).float().div_(255)
        images = (images - mean) / std
        target = target.to(device, non_blocking=True)
        loss = F.cross_entropy(model(images), target)
        opt.zero_grad()
        loss.backward()
        opt.step()
        sched.step()
        running += loss.detach()
    print(f"epoch {epoch}: loss {running.item() / len(train_loader):.4f}  lr {sched.get_last_lr()[0]:.4f}")
print(f"finished in {time.time() - start:.2f}s")
