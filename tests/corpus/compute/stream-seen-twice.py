# /// truth
# class = "compute"
# causes = ["iterable-duplicated"]
# holdout = true
# why = "Both workers deliver the whole stream, so that each epoch trains on every record twice."
# ///

# %%
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

torch.set_num_threads(1)

records = torch.randn(32 * 40, 256)


class Records(IterableDataset):
    def __iter__(self):
        return iter(records)


model = nn.Sequential(nn.Linear(256, 2048), nn.ReLU(), nn.Linear(2048, 256))
opt = torch.optim.SGD(model.parameters(), lr=0.01)

# %% diagnosed
for x in DataLoader(Records(), batch_size=32, num_workers=2):
    loss = (model(x) - x).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
