# /// truth
# class = "compute"
# causes = ["dense-embedding-gradients"]
# why = "An embedding of 300,000 rows has dense gradients, though a batch touches 128 of them."
# ///

# %%
import torch
from torch import nn

torch.set_num_threads(1)
n_users = 300_000


class Ratings(nn.Module):
    def __init__(self, sparse=False):
        super().__init__()
        self.users = nn.Embedding(n_users, 32, sparse=sparse)
        self.score = nn.Linear(32, 1)

    def forward(self, ids):
        return self.score(self.users(ids)).squeeze(1)


batches = torch.randint(0, n_users, (120, 128))
ratings = torch.rand(120, 128)

# %% diagnosed
model = Ratings()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
for ids, rating in zip(batches, ratings):
    loss = (model(ids) - rating).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
