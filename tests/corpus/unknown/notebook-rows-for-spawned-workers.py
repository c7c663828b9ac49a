# /// truth
# class = "unknown"
# causes = ["workers-cannot-start"]
# fails = true
# limits = { notebook = true }
# why = "Spawned workers cannot find a dataset class that is defined in the notebook."
# ///

# %%
import time

import torch
import torch.multiprocessing
from torch.utils.data import DataLoader, Dataset

torch.multiprocessing.set_start_method("spawn", force=True)

model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 2))
opt = torch.optim.SGD(model.parameters(), lr=0.01)
lossf = torch.nn.CrossEntropyLoss()


# %% diagnosed
class Rows(Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, i):
        return torch.rand(32), i % 2


loader = DataLoader(Rows(), batch_size=4, num_workers=2)
for x, y in loader:
    opt.zero_grad()
    loss = lossf(model(x), y)
    loss.backward()
    opt.step()
