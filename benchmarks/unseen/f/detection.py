# /// truth
# class = "host"
# causes = ["slow-python"]
# timed = "whole"
# unseen = true
# author_class = "host"
# author_gain = 1.7
# why = """\
# Decoding, NMS and precision/recall matching of the training batch run on every step, although the result is only \
# looked at in the line printed every few dozen steps."""
# cure = "Compute the training metrics only on the steps where they are printed."
# ///

# %% diagnosed
"""Anchor-free detector (FCOS-like, one level) for rectangles on noisy canvases."""

import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

device = "cuda" if torch.cuda.is_available() else "cpu"
SIZE, STRIDE, MAX_BOXES = 96, 8, 5
GRID = SIZE // STRIDE


def make_dataset(n, seed=0):
    rng = np.random.default_rng(seed)
    images = rng.normal(0, 0.3, size=(n, 1, SIZE, SIZE)).astype(np.float32)
    boxes = np.zeros((n, MAX_BOXES, 4), dtype=np.float32)
    counts = rng.integers(1, MAX_BOXES + 1, size=n)
    for i in range(n):
        wh = rng.integers(14, 36, size=(counts[i], 2))
        xy = rng.integers(0, SIZE - wh)
        for j, (x, y, w, h) in enumerate(np.concatenate([xy, wh], 1)):
            images[i, 0, y : y + h, x : x + w] += rng.uniform(0.5, 1.5)
            boxes[i, j] = (x, y, x + w, y + h)
    return torch.from_numpy(images), torch.from_numpy(boxes), torch.from_numpy(counts)


def conv(cin, cout, stride):
    return nn.Sequential(nn.Conv2d(cin, cout, 3, stride, 1, bias=False), nn.BatchNorm2d(cout), nn.ReLU(inplace=True))


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(conv(1, 16, 2), conv(16, 32, 2), conv(32, 64, 2), conv(64, 64, 1))
        self.out = nn.Conv2d(64, 5, 1)
        nn.init.constant_(self.out.bias[:1], -2.0)

    def forward(self, x):
        y = self.out(self.backbone(x)).flatten(2).transpose(1, 2)
        return y[..., 0], F.softplus(y[..., 1:]) * STRIDE


def pairwise_iou(a, b):
    lt = torch.maximum(a[:, None, :2], b[None, :, :2])
    rb = torch.minimum(a[:, None, 2:], b[None, :, 2:])
    inter = (rb - lt).clamp(min=0).prod(-1)
    area_a = (a[:, 2:] - a[:, :2]).prod(-1)
    area_b = (b[:, 2:] - b[:, :2]).prod(-1)
    return inter / (area_a[:, None] + area_b[None] - inter + 1e-6)


def assign(points, boxes):
    """For each point the smallest box that contains it: mask and (l, t, r, b) targets."""
    p = points[None, :, None]
    ltrb = torch.cat([p - boxes[:, None, :, :2], boxes[:, None, :, 2:] - p], -1)
    area = (boxes[..., 2:] - boxes[..., :2]).prod(-1)[:, None].expand(ltrb.shape[:3])
    area = area.masked_fill(ltrb.amin(-1) <= 0, float("inf"))
    best, which = area.min(-1)
    target = ltrb.gather(2, which[..., None, None].expand(-1, -1, 1, 4)).squeeze(2)
    return best.isfinite(), target


def detection_loss(logits, dist, inside, target):
    w = inside.float()
    cls = F.binary_cross_entropy_with_logits(logits, w)
    inter = (torch.minimum(dist, target)[..., :2] + torch.minimum(dist, target)[..., 2:]).clamp(min=0).prod(-1)
    union = (dist[..., :2] + dist[..., 2:]).prod(-1) + (target[..., :2] + target[..., 2:]).prod(-1) - inter
    return cls + (w * (1 - inter / (union + 1e-6))).sum() / w.sum().clamp(min=1)


def nms(boxes, scores, threshold=0.5):
    order = scores.argsort(descending=True)
    keep = []
    while order.numel() > 0:
        keep.append(order[0])
        iou = pairwise_iou(boxes[order[:1]], boxes[order[1:]])[0]
        order = order[1:][iou <= threshold]
    return torch.stack(keep) if keep else order


@torch.no_grad()
def batch_metrics(points, logits, dist, boxes, counts, score_thr=0.05):
    """Precision and recall at IoU 0.5 of the current batch, after NMS."""
    hits = found = total = 0
    for i in range(len(logits)):
        score = logits[i].sigmoid()
        sel = score > score_thr
        pred = torch.cat([points[sel] - dist[i][sel][:, :2], points[sel] + dist[i][sel][:, 2:]], -1)
        pred = pred[nms(pred, score[sel])]
        truth = boxes[i, : counts[i]]
        found, total = found + len(pred), total + len(truth)
        if len(pred):
            hits += int((pairwise_iou(truth, pred).amax(1) > 0.5).sum())
    return hits / max(found, 1), hits / max(total, 1)


def main(steps=200, batch=16):
    torch.manual_seed(0)
    images, boxes, counts = (t.to(device) for t in make_dataset(1024))
    axis = (torch.arange(GRID, device=device) + 0.5) * STRIDE
    points = torch.stack(torch.meshgrid(axis, axis, indexing="xy"), -1).reshape(-1, 2)
    model = Detector().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)

    start = time.perf_counter()
    for step in range(1, steps + 1):
        pick = torch.randint(len(images), (batch,), device=device)
        inside, target = assign(points, boxes[pick])
        logits, dist = model(images[pick])
        loss = detection_loss(logits, dist, inside, target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        precision, recall = batch_metrics(points, logits, dist, boxes[pick], counts[pick])
        if step % 40 == 0:
            print(f"step {step} loss {loss.item():.4f} precision {precision:.3f} recall {recall:.3f}")
    elapsed = time.perf_counter() - start
    print(f"steps={steps} seconds={elapsed:.2f}")
    print(f"samples_per_s={steps * batch / elapsed:.1f}")


if __name__ == "__main__":
    main()
