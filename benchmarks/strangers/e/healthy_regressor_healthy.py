"""Large-batch residual MLP regressor (surrogate for a simulator)."""
import time
import torch
from torch import nn

torch.manual_seed(2024)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

N, D_IN, D_OUT, WIDTH, BATCH, STEPS = 16_384, 64, 8, 768, 512, 90
X = torch.randn(N, D_IN, device=device)
W = torch.randn(D_IN, D_OUT, device=device) / D_IN ** 0.5
Y = torch.sin(2 * X @ W) + 0.05 * torch.randn(N, D_OUT, device=device)
n_val = 1024
Xv, Yv, X, Y = X[:n_val], Y[:n_val], X[n_val:], Y[n_val:]


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.fc1 = nn.Linear(width, width)
        self.fc2 = nn.Linear(width, width)

    def forward(self, x):
        return x + self.fc2(torch.relu(self.fc1(x)))


def infinite_batches(n, batch):
    while True:
        yield from torch.randperm(n, device=device).split(batch)[: n // batch]


class Trainer:
    def __init__(self, net, lr=1e-3):
        self.net = net.to(device)
        self.opt = torch.optim.AdamW(self.net.parameters(), lr=lr, weight_decay=1e-4, fused=True)
        self.loss_fn = nn.MSELoss()
        self.history = []

    def step(self, x, y):
        loss = self.loss_fn(self.net(x), y)
        self.opt.zero_grad(set_to_none=True)
        loss.backward()
        self.opt.step()
        self.history.append(loss.detach())

    @torch.inference_mode()
    def validate(self):
        self.net.eval()
        r = self.loss_fn(self.net(Xv), Yv).item()
        self.net.train()
        return r


net = nn.Sequential(nn.Linear(D_IN, WIDTH), nn.ReLU(), Residual(WIDTH), Residual(WIDTH), Residual(WIDTH),
                    nn.Linear(WIDTH, D_OUT))
trainer = Trainer(net)
batches = infinite_batches(len(X), BATCH)

tick = time.perf_counter()
for i in range(1, STEPS + 1):
    idx = next(batches)
    trainer.step(X[idx], Y[idx])
    if i % 30 == 0:
        recent = torch.stack(trainer.history[-30:]).mean().item()
        print(f"step {i:4d}  train {recent:.4f}  val {trainer.validate():.4f}")
print(f"{STEPS} steps in {time.perf_counter() - tick:.2f}s on {device}")
