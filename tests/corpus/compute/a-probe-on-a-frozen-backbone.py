# /// truth
# class = "compute"
# causes = ["frozen-recomputed"]
# why = "A frozen backbone computes the same features in every epoch."
# ///

# %%
import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(4)
backbone = nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 256), nn.ReLU())
backbone.requires_grad_(False)
head = nn.Sequential(nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 5))
optimizer = torch.optim.SGD(head.parameters(), lr=0.01)
X, Y = torch.rand(4096, 256), torch.randint(0, 5, (4096,))

# %% diagnosed
for epoch in range(12):
    for at in torch.randperm(len(X)).split(64):
        loss = F.cross_entropy(head(backbone(X[at])), Y[at])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
