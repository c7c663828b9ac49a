# /// truth
# class = "input"
# causes = ["iterable-duplicated"]
# never = ["too-many-workers"]
# holdout = true
# why = """
# Both workers deliver the whole stream, so that every row is seen twice. Written before any rule was tried on it."""
# ///

# %%
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

torch.set_num_threads(1)
torch.manual_seed(0)


class Rows(IterableDataset):
    def __init__(self, n):
        self.n = n

    def __iter__(self):
        for i in range(self.n):
            yield torch.full((32,), float(i % 7)), i % 4

    def __len__(self):
        return self.n


net = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 4))
opt = torch.optim.SGD(net.parameters(), 0.05)

# %% diagnosed
for x, y in DataLoader(Rows(9600), batch_size=64, num_workers=2):
    loss = nn.functional.cross_entropy(net(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
