"""MLP on a table of 40 numeric columns."""
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"

ROWS, COLS, BATCH, EPOCHS = 81920, 40, 2048, 6

X = torch.randn(ROWS, COLS)
w = torch.randn(COLS)
y = ((X @ w + (X[:, 0] * X[:, 1]) * 2 + 0.5 * torch.randn(ROWS)) > 0).float()

model = nn.Sequential(
    nn.Linear(COLS, 64), nn.BatchNorm1d(64), nn.ReLU(),
    nn.Linear(64, 64), nn.BatchNorm1d(64), nn.ReLU(),
    nn.Linear(64, 1),
).to(device)
opt = torch.optim.AdamW(model.parameters(), lr=3e-3)
X, y = X.to(device), y.to(device)

start = time.time()
for epoch in range(EPOCHS):
    model.train()
    running = torch.zeros((), device=device)
    for idx in torch.randperm(ROWS, device=device).split(BATCH):
        xb, yb = X[idx], y[idx]
        loss = F.binary_cross_entropy_with_logits(model(xb).squeeze(1), yb)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        running += loss.detach()
    print(f"epoch {epoch}: loss {running.item() / (ROWS // BATCH):.4f}")
print(f"train time {time.time() - start:.2f}s")
