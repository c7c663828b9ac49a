# /// truth
# class = "input"
# causes = ["slow-epoch-start"]
# holdout = true
# why = "A random sampler permutes millions of indices at each epoch's start, of which forty batches are used."
# ///

# %%
EPOCHS = 6
import torch
from torch import nn
from torch.utils.data import DataLoader, RandomSampler, TensorDataset

torch.set_num_threads(1)
ratings = TensorDataset(torch.randn(1_000_000, 16), torch.randn(1_000_000))
model = nn.Linear(16, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

# %% diagnosed
loader = DataLoader(ratings, batch_size=32, shuffle=True)
for epoch in range(EPOCHS):
    for step, (x, y) in enumerate(loader):
        if step == 40:  # enough for an epoch of so large a data set
            break
        loss = ((model(x).squeeze(1) - y) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
