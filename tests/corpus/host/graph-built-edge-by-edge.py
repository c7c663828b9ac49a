# /// truth
# class = "host"
# causes = ["slow-python"]
# holdout = true
# why = "The adjacency matrix is filled edge by edge in Python in every step. Written before any rule was tried on it."
# ///

# %%
import random

import torch
from torch import nn

torch.set_num_threads(1)
random.seed(0)
torch.manual_seed(0)
N = 300
edges = [(random.randrange(N), random.randrange(N)) for _ in range(2500)]
features, labels = torch.randn(N, 32), torch.randint(0, 4, (N,))


def build_adjacency(edges, n, drop=0.1):
    A = torch.zeros(n, n)
    for u, v in edges:
        if random.random() > drop:
            A[u, v] = 1.0
            A[v, u] = 1.0
    A = A + torch.eye(n)
    d = A.sum(1).rsqrt()
    return d[:, None] * A * d[None, :]


E = torch.tensor(edges)


def built_at_once(n, drop=0.1):
    kept = E[torch.rand(len(E)) > drop]
    A = torch.eye(n)
    A[kept[:, 0], kept[:, 1]] = 1.0
    A[kept[:, 1], kept[:, 0]] = 1.0
    d = A.sum(1).rsqrt()
    return d[:, None] * A * d[None, :]


class GCN(nn.Module):
    def __init__(self):
        super().__init__()
        self.w1, self.w2 = nn.Linear(32, 64), nn.Linear(64, 4)

    def forward(self, x, A):
        return self.w2(A @ torch.relu(self.w1(A @ x)))


model = GCN()
opt = torch.optim.Adam(model.parameters(), lr=0.01)

# %% diagnosed
for epoch in range(60):
    A = build_adjacency(edges, N)
    out = model(features, A)
    loss = nn.functional.cross_entropy(out, labels)
    opt.zero_grad()
    loss.backward()
    opt.step()
