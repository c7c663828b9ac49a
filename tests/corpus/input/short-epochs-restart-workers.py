# /// truth
# class = "input"
# causes = ["workers-restart-each-epoch"]
# settings = { persistent_workers = true }
# why = "Epochs of ten batches, and the workers start anew in each."
# ///

# %%
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
data = TensorDataset(torch.randn(320, 784), torch.randint(0, 10, (320,)))
model = nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

# %% diagnosed
loader = DataLoader(data, batch_size=32, shuffle=True, num_workers=2)
for epoch in range(16):
    for x, y in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
