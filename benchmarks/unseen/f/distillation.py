# /// truth
# class = "compute"
# causes = ["frozen-recomputed"]
# timed = "whole"
# unseen = true
# author_class = "compute"
# author_gain = 2.7
# why = """\
# The frozen teacher is run again on every batch of every epoch though the images are never augmented, so its \
# logits are the same each epoch."""
# cure = "Run the teacher once over the training set, keep the logits, and index them in the loop."
# ///

# %% diagnosed
"""Distil a wide CNN into a narrow one on a fixed set of synthetic images."""

import time

import torch
import torch.nn as nn
import torch.nn.functional as F

device = "cuda" if torch.cuda.is_available() else "cpu"
CLASSES = 20


def make_data(n, size=32, seed=0):
    g = torch.Generator().manual_seed(seed)
    coarse = torch.randn(CLASSES, 3, 8, 8, generator=g)
    prototypes = F.interpolate(coarse, size=(size, size), mode="bilinear", align_corners=False)
    labels = torch.randint(CLASSES, (n,), generator=g)
    images = prototypes[labels] + 1.2 * torch.randn(n, 3, size, size, generator=g)
    return images, labels


class ConvNet(nn.Module):
    def __init__(self, widths):
        super().__init__()
        layers, cin = [], 3
        for w in widths:
            layers += [
                nn.Conv2d(cin, w, 3, stride=2, padding=1, bias=False),
                nn.BatchNorm2d(w),
                nn.ReLU(inplace=True),
                nn.Conv2d(w, w, 3, padding=1, bias=False),
                nn.BatchNorm2d(w),
                nn.ReLU(inplace=True),
            ]
            cin = w
        self.body = nn.Sequential(*layers)
        self.head = nn.Linear(cin, CLASSES)

    def forward(self, x):
        return self.head(self.body(x).mean(dim=(2, 3)))


def pretrain_teacher(images, labels, steps=25, batch=64):
    """Stands in for loading a checkpoint from somewhere."""
    teacher = ConvNet((48, 96, 192)).to(device)
    optimizer = torch.optim.AdamW(teacher.parameters(), lr=2e-3)
    for _ in range(steps):
        pick = torch.randint(len(images), (batch,), device=device)
        loss = F.cross_entropy(teacher(images[pick]), labels[pick])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return teacher.eval().requires_grad_(False)


def distillation_loss(student_logits, teacher_logits, labels, temperature=3.0, alpha=0.7):
    soft = (
        F.kl_div(
            F.log_softmax(student_logits / temperature, dim=1),
            F.log_softmax(teacher_logits / temperature, dim=1),
            reduction="batchmean",
            log_target=True,
        )
        * temperature**2
    )
    hard = F.cross_entropy(student_logits, labels)
    return alpha * soft + (1 - alpha) * hard


class Distiller:
    def __init__(self, teacher, student, lr=2e-3):
        self.teacher, self.student = teacher, student
        self.optimizer = torch.optim.AdamW(student.parameters(), lr=lr)

    def step(self, x, y):
        with torch.no_grad():
            teacher_logits = self.teacher(x)
        loss = distillation_loss(self.student(x), teacher_logits, y)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.detach()


def main(epochs=10, batch=64, train_size=1920):
    torch.manual_seed(0)
    images, labels = (t.to(device) for t in make_data(train_size + 512))
    val_images, val_labels = images[train_size:], labels[train_size:]
    images, labels = images[:train_size], labels[:train_size]

    teacher = pretrain_teacher(images, labels)
    student = ConvNet((12, 24, 48)).to(device)
    distiller = Distiller(teacher, student)

    seen = step = 0
    start = time.perf_counter()
    for epoch in range(epochs):
        student.train()
        for pick in torch.randperm(train_size, device=device).split(batch):
            loss = distiller.step(images[pick], labels[pick])
            seen += len(pick)
            step += 1
        print(f"epoch {epoch} step {step} loss {loss.item():.4f}")
    elapsed = time.perf_counter() - start

    student.eval()
    with torch.no_grad():
        accuracy = (student(val_images).argmax(1) == val_labels).float().mean().item()
    print(f"validation accuracy {accuracy:.3f}")
    print(f"steps={step} seconds={elapsed:.2f}")
    print(f"samples_per_s={seen / elapsed:.1f}")


if __name__ == "__main__":
    main()
