import torch, torch.nn as nn, torch.nn.functional as F

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)
# click-through prediction: two id columns with many values
USERS, ITEMS, DIM, N, B = 200_000, 100_000, 16, 60_000, 1024
user = torch.randint(0, USERS, (N,), device=device)
item = torch.randint(0, ITEMS, (N,), device=device)
dense = torch.randn(N, 13, device=device)
click = ((user % 3 == 0) & (dense[:, 0] > 0)).float()

class TwoTower(nn.Module):
    def __init__(self):
        super().__init__()
        self.u = nn.Embedding(USERS, DIM, sparse=True)
        self.i = nn.Embedding(ITEMS, DIM, sparse=True)
        self.mlp = nn.Sequential(nn.Linear(2 * DIM + 13, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(),
                                 nn.Linear(64, 1))

    def forward(self, u, i, d):
        return self.mlp(torch.cat([self.u(u), self.i(i), d], 1)).squeeze(1)

model = TwoTower().to(device)
opts = [torch.optim.Adam(model.mlp.parameters(), lr=1e-3),
        torch.optim.SparseAdam([model.u.weight, model.i.weight], lr=1e-3)]

for epoch in range(1):
    perm = torch.randperm(N, device=device)
    for b in perm.split(B):
        logit = model(user[b], item[b], dense[b])
        loss = F.binary_cross_entropy_with_logits(logit, click[b])
        for o in opts:
            o.zero_grad(set_to_none=True)
        loss.backward()
        for o in opts:
            o.step()
print(f"loss {loss.item():.4f}")
