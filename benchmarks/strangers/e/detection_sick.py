# One-stage detector (RetinaNet-like), toy size
import math
import time
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(3)
device = "cuda" if torch.cuda.is_available() else "cpu"

IMG, N_CLASSES, MAX_OBJ = 192, 3, 4


def make_dataset(n):
    images = torch.rand(n, 3, IMG, IMG) * 0.3
    boxes, labels = torch.zeros(n, MAX_OBJ, 4), torch.zeros(n, MAX_OBJ, dtype=torch.long)
    for i in range(n):
        for j in range(MAX_OBJ):
            w, h = torch.randint(24, 80, (2,)).tolist()
            x, y = int(torch.randint(0, IMG - w, ())), int(torch.randint(0, IMG - h, ()))
            c = int(torch.randint(0, N_CLASSES, ()))
            images[i, c, y:y + h, x:x + w] += 0.6
            boxes[i, j] = torch.tensor([x, y, x + w, y + h])
            labels[i, j] = c
    return images, boxes, labels


class Detector(nn.Module):
    strides = (8, 16, 32)
    scales = (1.0, 2 ** (1 / 3), 2 ** (2 / 3))
    ratios = (0.5, 1.0, 2.0)

    def __init__(self):
        super().__init__()

        def conv(i, o):
            return nn.Sequential(nn.Conv2d(i, o, 3, 2, 1, bias=False), nn.BatchNorm2d(o), nn.ReLU(inplace=True))
        self.stem = nn.Sequential(conv(3, 8), conv(8, 16), conv(16, 32))
        self.c4, self.c5 = conv(32, 48), conv(48, 48)
        self.lat = nn.ModuleList([nn.Conv2d(c, 32, 1) for c in (32, 48, 48)])
        a = len(self.scales) * len(self.ratios)
        self.cls_head = nn.Conv2d(32, a * N_CLASSES, 3, padding=1)
        self.box_head = nn.Conv2d(32, a * 4, 3, padding=1)
        nn.init.constant_(self.cls_head.bias, -math.log(99))

    def make_anchors(self):
        anchors = []
        for s in self.strides:
            for gy in range(IMG // s):
                for gx in range(IMG // s):
                    cx, cy = (gx + 0.5) * s, (gy + 0.5) * s
                    for scale in self.scales:
                        for ratio in self.ratios:
                            w = 4 * s * scale * math.sqrt(1 / ratio)
                            h = 4 * s * scale * math.sqrt(ratio)
                            anchors.append([cx - w / 2, cy - h / 2, cx + w / 2, cy + h / 2])
        return torch.tensor(anchors)

    def forward(self, x):
        c3 = self.stem(x)
        c4 = self.c4(c3)
        feats = [l(f) for l, f in zip(self.lat, (c3, c4, self.c5(c4)))]
        B = x.size(0)
        cls = torch.cat([self.cls_head(f).permute(0, 2, 3, 1).reshape(B, -1, N_CLASSES) for f in feats], 1)
        box = torch.cat([self.box_head(f).permute(0, 2, 3, 1).reshape(B, -1, 4) for f in feats], 1)
        return cls, box, self.make_anchors().to(x.device)


def box_iou(a, b):                                   # a: A,4   b: B,M,4  ->  B,A,M
    tl = torch.max(a[None, :, None, :2], b[:, None, :, :2])
    br = torch.min(a[None, :, None, 2:], b[:, None, :, 2:])
    inter = (br - tl).clamp(min=0).prod(-1)
    area_a = (a[:, 2:] - a[:, :2]).prod(-1)[None, :, None]
    area_b = (b[..., 2:] - b[..., :2]).prod(-1)[:, None]
    return inter / (area_a + area_b - inter)


def detection_loss(cls, deltas, anchors, boxes, labels):
    iou, match = box_iou(anchors, boxes).max(-1)
    pos = iou > 0.5
    gt = boxes.gather(1, match[..., None].expand(-1, -1, 4))
    wh = anchors[:, 2:] - anchors[:, :2]
    ctr = anchors[:, :2] + wh / 2
    gwh = gt[..., 2:] - gt[..., :2]
    target_box = torch.cat([(gt[..., :2] + gwh / 2 - ctr) / wh, (gwh / wh).log()], -1)
    target_cls = F.one_hot(labels.gather(1, match), N_CLASSES).float() * pos[..., None]
    p = cls.sigmoid()
    pt = p * target_cls + (1 - p) * (1 - target_cls)
    focal = F.binary_cross_entropy_with_logits(cls, target_cls, reduction="none") * (1 - pt) ** 2
    keep = (pos | (iou < 0.4))[..., None]
    n_pos = pos.sum().clamp(min=1)
    loss_box = (F.smooth_l1_loss(deltas, target_box, reduction="none") * pos[..., None]).sum()
    return (focal * keep).sum() / n_pos, loss_box / n_pos


images, boxes, labels = (t.to(device) for t in make_dataset(128))
model = Detector().to(device).train()
opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
batch_size, epochs, step = 2, 3, 0
t_start = time.time()
for epoch in range(epochs):
    for idx in torch.randperm(len(images), device=device).split(batch_size):
        cls, deltas, anchors = model(images[idx])
        loss_cls, loss_box = detection_loss(cls, deltas, anchors, boxes[idx], labels[idx])
        loss = loss_cls + loss_box
        opt.zero_grad()
        loss.backward()
        opt.step()
        step += 1
    print(f"epoch {epoch + 1}/{epochs} step {step} cls {loss_cls.item():.3f} box {loss_box.item():.3f}")
print("train time", round(time.time() - t_start, 2))
