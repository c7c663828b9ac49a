"""Distil a wide frozen network into a thin one, fixed image set without augmentation."""
import time
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
N, BATCH, EPOCHS, T = 320, 40, 8, 4.0

images = torch.randn(N, 3, 32, 32, device=device)
labels = torch.randint(0, 10, (N,), device=device)


def cnn(w):
    return nn.Sequential(
        nn.Conv2d(3, w, 3, padding=1), nn.BatchNorm2d(w), nn.ReLU(),
        nn.Conv2d(w, w, 3, padding=1), nn.BatchNorm2d(w), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(w, 2 * w, 3, padding=1), nn.BatchNorm2d(2 * w), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(2 * w, 2 * w, 3, padding=1), nn.BatchNorm2d(2 * w), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2 * w, 10))


teacher = cnn(48).to(device).eval().requires_grad_(False)
student = cnn(8).to(device)
opt = torch.optim.AdamW(student.parameters(), 1e-3)


def teacher_logits(x):
    with torch.no_grad(), torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
        return teacher(x).float()


t0 = time.time()
for epoch in range(EPOCHS):
    total = torch.zeros((), device=device)
    for idx in torch.randperm(N, device=device).split(BATCH):
        x, y = images[idx], labels[idx]
        soft = teacher_logits(x)
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            out = student(x)
        out = out.float()
        kd = F.kl_div(F.log_softmax(out / T, 1), F.softmax(soft / T, 1), reduction="batchmean") * T * T
        loss = 0.7 * kd + 0.3 * F.cross_entropy(out, y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        total += loss.detach()
    print(f"epoch {epoch} loss {total.item() / (N // BATCH):.4f}")
print(f"training took {time.time() - t0:.2f}s")
