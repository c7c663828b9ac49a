# /// truth
# class = "input"
# causes = ["slow-getitem", "slow-storage"]
# timed = "whole"
# unseen = true
# author_class = "input"
# author_gain = 2.7
# why = """\
# The dataset opens and decompresses the whole compressed .npz shard (images and labels of dozens of samples) on \
# every __getitem__ just to take one image out of it."""
# cure = "Decompress each shard once and keep its arrays in memory; __getitem__ then only indexes."
# ///

# %% diagnosed
"""Train a small residual CNN on image shards (one .npz file per shard)."""

import argparse
import os
import tempfile
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

NUM_CLASSES = 10


def write_shards(folder, num_shards, per_shard, size=32, seed=0):
    rng = np.random.default_rng(seed)
    prototypes = rng.integers(60, 196, size=(NUM_CLASSES, 3, size, size))
    paths = []
    for s in range(num_shards):
        labels = rng.integers(0, NUM_CLASSES, size=per_shard)
        noise = rng.normal(0, 40, size=(per_shard, 3, size, size))
        images = np.clip(prototypes[labels] + noise, 0, 255).astype(np.uint8)
        path = os.path.join(folder, f"shard_{s:04d}.npz")
        np.savez_compressed(path, images=images, labels=labels)
        paths.append(path)
    return paths


class ShardDataset(Dataset):
    def __init__(self, paths, per_shard):
        self.paths = paths
        self.per_shard = per_shard

    def __len__(self):
        return len(self.paths) * self.per_shard

    def __getitem__(self, index):
        shard, offset = divmod(index, self.per_shard)
        with np.load(self.paths[shard]) as data:
            image = data["images"][offset]
            label = data["labels"][offset]
        return torch.from_numpy(image), int(label)


class Block(nn.Module):
    def __init__(self, cin, cout, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(cin, cout, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(cout)
        self.conv2 = nn.Conv2d(cout, cout, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(cout)
        self.skip = nn.Conv2d(cin, cout, 1, stride, bias=False)

    def forward(self, x):
        h = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(h)) + self.skip(x))


class Net(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, 2, 1)
        self.blocks = nn.Sequential(Block(width, width, 1), Block(width, 2 * width, 2), Block(2 * width, 4 * width, 2))
        self.head = nn.Linear(4 * width, NUM_CLASSES)

    def forward(self, x):
        return self.head(self.blocks(F.relu(self.stem(x))).mean(dim=(2, 3)))


def augment(x):
    """Random flip (per image) and a random shift (per batch), done on the device."""
    flip = torch.rand(x.shape[0], 1, 1, 1, device=x.device) < 0.5
    x = torch.where(flip, x.flip(3), x)
    dy, dx = np.random.randint(-2, 3, size=2).tolist()
    return torch.roll(x, shifts=(dy, dx), dims=(2, 3))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--shards", type=int, default=128)
    parser.add_argument("--per-shard", type=int, default=32)
    parser.add_argument("--lr", type=float, default=0.05)
    args = parser.parse_args()

    torch.manual_seed(0)
    np.random.seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"

    with tempfile.TemporaryDirectory() as folder:
        dataset = ShardDataset(write_shards(folder, args.shards, args.per_shard), args.per_shard)
        loader = DataLoader(
            dataset,
            batch_size=args.batch_size,
            shuffle=True,
            drop_last=True,
            num_workers=max(1, min(4, (os.cpu_count() or 2) - 1)),
            persistent_workers=True,
            pin_memory=device == "cuda",
        )
        model = Net().to(device)
        optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9, weight_decay=5e-4)

        seen, step = 0, 0
        start = time.perf_counter()
        for epoch in range(args.epochs):
            for images, labels in loader:
                images = images.to(device, non_blocking=True).float().div_(127.5).sub_(1)
                labels = labels.to(device, non_blocking=True)
                loss = F.cross_entropy(model(augment(images)), labels)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                seen += labels.shape[0]
                step += 1
                if step % 50 == 0:
                    print(f"epoch {epoch} step {step} loss {loss.item():.4f}")
        elapsed = time.perf_counter() - start
        print(f"steps={step} seconds={elapsed:.2f}")
        print(f"samples_per_s={seen / elapsed:.1f}")


if __name__ == "__main__":
    main()
