# /// truth
# class = "input"
# causes = ["slow-collate", "slow-getitem"]
# most_workers = 2
# why = "Rows that lie in memory are taken and collated one by one instead of a batch at a time."
# ///

# %%
import torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset

torch.set_num_threads(1)
X, Y = torch.randn(60_000, 20), torch.randint(0, 2, (60_000,)).float()
train_ds = TensorDataset(X, Y)
model = nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 1), nn.Flatten(0))
opt = torch.optim.Adam(model.parameters())

# %% diagnosed
train_dl = DataLoader(train_ds, batch_size=512, shuffle=True)
for epoch in range(2):
    for xb, yb in train_dl:
        loss = nn.functional.binary_cross_entropy_with_logits(model(xb), yb)
        loss.backward()
        opt.step()
        opt.zero_grad()
