"""MLP with embeddings on a click table."""
import time
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset

torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
ROWS, BATCH, EPOCHS = 40_000, 1024, 7

num = torch.randn(ROWS, 24)
cat = torch.randint(0, 100, (ROWS, 4))
y = ((num[:, :3].sum(1) + (cat[:, 0] > 50)) > 0.5).float()
train = TensorDataset(num, cat, y)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.ModuleList([nn.Embedding(100, 8) for _ in range(4)])
        self.mlp = nn.Sequential(nn.Linear(24 + 32, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))

    def forward(self, num, cat):
        e = [emb(cat[:, i]) for i, emb in enumerate(self.emb)]
        return self.mlp(torch.cat([num] + e, 1))[:, 0]


loader = DataLoader(train, batch_size=BATCH, shuffle=True, pin_memory=device == "cuda")
model = Net().to(device)
opt = torch.optim.AdamW(model.parameters(), 2e-3)

t0 = time.time()
for epoch in range(EPOCHS):
    total = torch.zeros((), device=device)
    for n, c, t in loader:
        n, c, t = n.to(device, non_blocking=True), c.to(device, non_blocking=True), t.to(device, non_blocking=True)
        loss = F.binary_cross_entropy_with_logits(model(n, c), t)
        opt.zero_grad()
        loss.backward()
        opt.step()
        total += loss.detach()
    print(f"epoch {epoch} loss {total.item() / len(loader):.4f}")
print(f"training took {time.time() - t0:.2f}s")
