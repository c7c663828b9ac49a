import torch, torch.nn as nn, torch.nn.functional as F

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)
N_IMG, SIZE, S, K = 64, 128, 16, 4
images = torch.rand(N_IMG, 3, SIZE, SIZE, device=device)
xy = torch.rand(N_IMG, K, 2, device=device) * 80
gt = torch.cat([xy, xy + 12 + torch.rand(N_IMG, K, 2, device=device) * 30], -1)   # x1 y1 x2 y2
c = (torch.arange(S, device=device) + 0.5) * (SIZE / S)
cy, cx = torch.meshgrid(c, c, indexing="ij")
anchors = torch.stack([cx - 14, cy - 14, cx + 14, cy + 14], -1).reshape(-1, 4)

def iou(a, b):
    x1, y1 = max(a[0].item(), b[0].item()), max(a[1].item(), b[1].item())
    x2, y2 = min(a[2].item(), b[2].item()), min(a[3].item(), b[3].item())
    inter = max(0.0, x2 - x1) * max(0.0, y2 - y1)
    area = lambda r: ((r[2] - r[0]) * (r[3] - r[1])).item()
    return inter / (area(a) + area(b) - inter)

def assign(boxes):
    """objectness label and regression target for every anchor of one image"""
    m = torch.zeros(len(anchors), len(boxes), device=device)
    for i in range(len(anchors)):
        for j in range(len(boxes)):
            m[i, j] = iou(anchors[i], boxes[j])
    best, idx = m.max(1)
    return (best > 0.3).float(), (boxes[idx] - anchors) / 28

class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        layers, c = [], 3
        for o in (16, 32, 64):
            layers += [nn.Conv2d(c, o, 3, 2, 1), nn.BatchNorm2d(o), nn.ReLU()]
            c = o
        self.body = nn.Sequential(*layers, nn.Conv2d(c, c, 3, 1, 1), nn.ReLU())
        self.head = nn.Conv2d(c, 5, 1)

    def forward(self, x):
        return self.head(self.body(x)).flatten(2).transpose(1, 2)

net = Detector().to(device)
opt = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
for step in range(40):
    ids = torch.randint(0, N_IMG, (2,)).tolist()
    lab, reg = zip(*[assign(gt[i]) for i in ids])
    lab, reg = torch.stack(lab), torch.stack(reg)
    out = net(images[ids])
    l_obj = F.binary_cross_entropy_with_logits(out[..., 0], lab)
    l_reg = (F.smooth_l1_loss(out[..., 1:], reg, reduction="none").sum(-1) * lab).sum() / lab.sum().clamp(min=1)
    loss = l_obj + l_reg
    opt.zero_grad(set_to_none=True)
    loss.backward()
    opt.step()
print(f"loss {loss.item():.3f}")
