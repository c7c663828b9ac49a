# /// truth
# class = "input"
# causes = ["loader-without-workers", "slow-getitem"]
# most_workers = 2
# settings = { num_workers = 2 }
# holdout = true
# why = "Rows are parsed between the steps of a model that uses all cores: workers take cores from it."
# ///

# %%
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(0)
LENGTH = 80  # batches
criterion = nn.CrossEntropyLoss()

import json
import random

random.seed(0)
lines = [json.dumps({f"f{k}": random.random() for k in range(300)}) for _ in range(64)]


class Rows(Dataset):
    def __len__(self):
        return 16 * LENGTH

    def __getitem__(self, i):
        row = json.loads(lines[i % 64])
        values = [row[name] for name in sorted(row)]
        mean = sum(values) / len(values)
        spread = sum((one - mean) ** 2 for one in values) ** 0.5
        return torch.tensor([(one - mean) / spread for one in values]), i % 10


data = Rows()
model = nn.Sequential(nn.Linear(300, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10))

optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

# %% diagnosed
loader = DataLoader(data, batch_size=16, shuffle=True)
for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
