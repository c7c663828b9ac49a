"""One-stage anchor detector on synthetic rectangles."""
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"

SIZE, STRIDE, SCALES = 64, 4, (8, 14, 22)
BATCH, EPOCHS, N = 12, 4, 288


class Rectangles(Dataset):
    def __init__(self, n, seed=0):
        rng = np.random.default_rng(seed)
        self.images, self.boxes = [], []
        for _ in range(n):
            img = rng.normal(0, 0.1, (1, SIZE, SIZE)).astype(np.float32)
            boxes = []
            for _ in range(rng.integers(2, 7)):
                w, h = rng.integers(7, 26, 2)
                x, y = rng.integers(0, SIZE - w), rng.integers(0, SIZE - h)
                img[0, y:y + h, x:x + w] += rng.uniform(0.5, 1.0)
                boxes.append((x, y, x + w, y + h))
            self.images.append(torch.from_numpy(img))
            self.boxes.append(np.array(boxes, dtype=np.float64))

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        return self.images[i], self.boxes[i]


def collate(batch):
    return torch.stack([b[0] for b in batch]), [b[1] for b in batch]


def make_anchors():
    out = []
    for s in SCALES:
        for gy in range(SIZE // STRIDE):
            for gx in range(SIZE // STRIDE):
                cx, cy = (gx + 0.5) * STRIDE, (gy + 0.5) * STRIDE
                out.append((cx - s / 2, cy - s / 2, cx + s / 2, cy + s / 2))
    return np.array(out)


def iou(a, b):
    a, b = a[:, None], b[None]
    wh = np.minimum(a[..., 2:], b[..., 2:]) - np.maximum(a[..., :2], b[..., :2])
    inter = wh.clip(min=0).prod(-1)
    area_a = (a[..., 2:] - a[..., :2]).prod(-1)
    area_b = (b[..., 2:] - b[..., :2]).prod(-1)
    return inter / (area_a + area_b - inter)


def match(anchors, gt):
    ious = iou(anchors, gt)
    return ious.max(1), ious.argmax(1)


def encode(anchors, gt):
    size = anchors[:, 2:] - anchors[:, :2]
    return ((gt - anchors) / np.concatenate([size, size], 1)).astype(np.float32)


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, 16, 3, stride=2, padding=1), nn.ReLU(),
            nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.ReLU(),
            nn.Conv2d(32, 32, 3, padding=1), nn.ReLU(),
        )
        self.cls = nn.Conv2d(32, len(SCALES), 1)
        self.reg = nn.Conv2d(32, 4 * len(SCALES), 1)
        nn.init.constant_(self.cls.bias, -3.0)

    def forward(self, x):
        f = self.body(x)
        b = x.shape[0]
        reg = self.reg(f).view(b, len(SCALES), 4, -1).transpose(2, 3)
        return self.cls(f).flatten(1), reg.reshape(b, -1, 4)


anchors = make_anchors()
loader = DataLoader(Rectangles(N), batch_size=BATCH, shuffle=True, collate_fn=collate,
                    pin_memory=(device == "cuda"))
model = Detector().to(device)
opt = torch.optim.AdamW(model.parameters(), lr=2e-3)

start, step = time.time(), 0
for epoch in range(EPOCHS):
    for images, boxes in loader:
        images = images.to(device, non_blocking=True)
        labels, offsets = [], []
        for gt in boxes:
            best_iou, best_gt = match(anchors, gt)
            labels.append((best_iou > 0.5).astype(np.float32))
            offsets.append(encode(anchors, gt[best_gt]))
        labels = torch.from_numpy(np.stack(labels)).to(device)
        offsets = torch.from_numpy(np.stack(offsets)).to(device)

        cls, reg = model(images)
        n_pos = labels.sum().clamp(min=1)
        cls_loss = F.binary_cross_entropy_with_logits(cls, labels, reduction="sum") / n_pos
        box = F.smooth_l1_loss(reg, offsets, reduction="none").sum(-1)
        loss = cls_loss + (box * labels).sum() / n_pos
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        step += 1
        if step % 12 == 0:
            print(f"step {step}: loss {loss.item():.4f}")
print(f"train time {time.time() - start:.2f}s")
