# /// truth
# class = "compute"
# causes = ["unused-gradients"]
# holdout = true
# why = "Only the head learns, but the backbone was not frozen, so that backward goes through all of it."
# ///

# %%
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
backbone = nn.Sequential(*[layer for _ in range(5) for layer in (nn.Linear(256, 256), nn.ReLU())])  # pretrained
head = nn.Linear(256, 10)
features = torch.randn(64 * 150, 256)
labels = torch.randint(0, 10, (64 * 150,))
loader = [(features[i : i + 64], labels[i : i + 64]) for i in range(0, len(features), 64)]
criterion = nn.CrossEntropyLoss()

# %% diagnosed
optimizer = torch.optim.SGD(head.parameters(), lr=0.1)  # only the head learns
model = nn.Sequential(backbone, head)
for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
