import torch, torch.nn as nn, torch.nn.functional as F

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)
X = torch.rand(1024, 3, 32, 32, device=device)
Y = torch.randint(0, 10, (1024,), device=device)

def convnet(widths):
    layers, c = [], 3
    for w in widths:
        layers += [nn.Conv2d(c, w, 3, 1, 1), nn.BatchNorm2d(w), nn.ReLU(), nn.MaxPool2d(2)]
        c = w
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(c, 10)).to(device)

teacher = convnet((48, 96, 192)).eval()
student = convnet((16, 32, 32))
opt = torch.optim.SGD(student.parameters(), lr=0.05, momentum=0.9)
T, ALPHA = 4.0, 0.7

def crop_flip(x):
    x = torch.roll(x, shifts=(int(torch.randint(-3, 4, ())), int(torch.randint(-3, 4, ()))), dims=(2, 3))
    return x.flip(3) if torch.rand(()) < 0.5 else x

for step in range(80):
    idx = torch.randint(0, len(X), (16,), device=device)
    x, y = crop_flip(X[idx]), Y[idx]
    with torch.no_grad():
        t_logits = teacher(x)
    s_logits = student(x)
    kd = F.kl_div(F.log_softmax(s_logits / T, 1), F.log_softmax(t_logits / T, 1),
                  reduction="batchmean", log_target=True) * T * T
    loss = ALPHA * kd + (1 - ALPHA) * F.cross_entropy(s_logits, y)
    opt.zero_grad(set_to_none=True)
    loss.backward()
    opt.step()
print(f"loss {loss.item():.3f}")
