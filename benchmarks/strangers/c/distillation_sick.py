"""Distil a wide CNN into a narrow one (Hinton-style soft targets)."""
import time

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"

CLASSES, TEMP, ALPHA, BATCH, EPOCHS = 10, 4.0, 0.7, 32, 5


def cnn(width):
    def block(i, o, stride):
        return [nn.Conv2d(i, o, 3, stride=stride, padding=1, bias=False), nn.BatchNorm2d(o), nn.ReLU(inplace=True)]
    return nn.Sequential(
        *block(3, width, 1), *block(width, 2 * width, 2), *block(2 * width, 4 * width, 2),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4 * width, CLASSES),
    )


protos = torch.randn(CLASSES, 3, 32, 32)
labels = torch.randint(CLASSES, (640,))
images = protos[labels] * 0.5 + torch.randn(640, 3, 32, 32)
loader = DataLoader(TensorDataset(images, labels), batch_size=BATCH, shuffle=True,
                    pin_memory=(device == "cuda"))

teacher = cnn(48).to(device)
teacher.eval()
student = cnn(8).to(device)
opt = torch.optim.SGD(student.parameters(), lr=0.05, momentum=0.9)

start = time.time()
for epoch in range(EPOCHS):
    student.train()
    running = torch.zeros((), device=device)
    for x, y in loader:
        x, y = x.to(device, non_blocking=True), y.to(device, non_blocking=True)
        teacher_logits = teacher(x)
        student_logits = student(x)
        soft = F.kl_div(F.log_softmax(student_logits / TEMP, 1), F.softmax(teacher_logits / TEMP, 1),
                        reduction="batchmean") * TEMP ** 2
        hard = F.cross_entropy(student_logits, y)
        loss = ALPHA * soft + (1 - ALPHA) * hard
        opt.zero_grad()
        loss.backward()
        opt.step()
        running += loss.detach()
    print(f"epoch {epoch}: loss {running.item() / len(loader):.4f}")
print(f"train time {time.time() - start:.2f}s")
