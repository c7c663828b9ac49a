"""Single-shot detector with an anchor grid on synthetic rectangles."""
import time
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
STEPS, BATCH, IMG, GRID, N = 40, 8, 64, 8, 128

images = torch.rand(N, 3, IMG, IMG) * 0.2
boxes = []
for i in range(N):
    xy = torch.randint(0, IMG - 26, (3, 2))
    wh = torch.randint(8, 26, (3, 2))
    b = torch.cat([xy, xy + wh], 1)
    for x1, y1, x2, y2 in b.tolist():
        images[i, :, y1:y2, x1:x2] += 0.6
    boxes.append(b.float())

step_px = IMG / GRID
anchors = []
for gy in range(GRID):
    for gx in range(GRID):
        cx, cy = (gx + 0.5) * step_px, (gy + 0.5) * step_px
        for s in (12, 24):
            anchors.append([cx - s / 2, cy - s / 2, cx + s / 2, cy + s / 2])
anchors = torch.tensor(anchors)


def iou(a, b):
    x1, y1 = torch.max(a[0], b[0]), torch.max(a[1], b[1])
    x2, y2 = torch.min(a[2], b[2]), torch.min(a[3], b[3])
    inter = (x2 - x1).clamp(min=0) * (y2 - y1).clamp(min=0)
    area_a = (a[2] - a[0]) * (a[3] - a[1])
    area_b = (b[2] - b[0]) * (b[3] - b[1])
    return inter / (area_a + area_b - inter)


def assign(gt):
    """For every anchor: is it positive, and which offset should it regress."""
    table = torch.zeros(len(anchors), len(gt))
    for i in range(len(anchors)):
        for j in range(len(gt)):
            table[i, j] = iou(anchors[i], gt[j])
    best, which = table.max(1)
    return (best > 0.35).float(), (gt[which] - anchors) / step_px


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        c = [3, 16, 32, 64]
        self.body = nn.Sequential(*[nn.Sequential(nn.Conv2d(c[i], c[i + 1], 3, 2, 1), nn.BatchNorm2d(c[i + 1]),
                                                  nn.ReLU()) for i in range(3)])
        self.head = nn.Conv2d(64, 2 * 5, 1)

    def forward(self, x):
        out = self.head(self.body(x)).permute(0, 2, 3, 1).reshape(len(x), -1, 5)
        return out[..., 0], out[..., 1:]


model = Net().to(device)
opt = torch.optim.AdamW(model.parameters(), 1e-3)

t0 = time.time()
for step in range(STEPS):
    idx = torch.randint(N, (BATCH,))
    pos, off = zip(*[assign(boxes[i]) for i in idx.tolist()])
    x = images[idx].to(device)
    pos, off = torch.stack(pos).to(device), torch.stack(off).to(device)
    with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
        score, reg = model(x)
    score, reg = score.float(), reg.float()
    cls_loss = F.binary_cross_entropy_with_logits(score, pos)
    reg_loss = (F.smooth_l1_loss(reg, off, reduction="none").sum(-1) * pos).sum() / pos.sum().clamp(min=1)
    loss = cls_loss + reg_loss
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 10 == 0:
        print(f"step {step} loss {loss.item():.4f}")
print(f"training took {time.time() - t0:.2f}s")
