import torch, torch.nn as nn, torch.nn.functional as F
from torch.utils.data import TensorDataset, DataLoader

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)
N, NUM, CAT, CARD = 150_000, 30, 8, 50
num = torch.randn(N, NUM)
cat = torch.randint(0, CARD, (N, CAT))
y = (num[:, :5].sum(1) + 0.1 * cat[:, 0] > 2).float()

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(CAT * CARD, 8)
        self.register_buffer("off", torch.arange(CAT) * CARD)
        d = NUM + CAT * 8
        self.mlp = nn.Sequential(nn.Linear(d, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 1))

    def forward(self, xn, xc):
        return self.mlp(torch.cat([xn, self.emb(xc + self.off).flatten(1)], 1)).squeeze(1)

model = Net().to(device)
opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
BATCH = 2048
num, cat, y = num.to(device), cat.to(device), y.to(device)

for epoch in range(2):
    perm = torch.randperm(N, device=device)
    for i in range(0, N - BATCH + 1, BATCH):
        b = perm[i:i + BATCH]
        xn, xc, t = num[b], cat[b], y[b]
        loss = F.binary_cross_entropy_with_logits(model(xn, xc), t)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
    print(f"epoch {epoch} loss {loss.item():.4f}")
