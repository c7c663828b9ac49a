# /// truth
# class = "unknown"
# causes = ["small-shared-memory"]
# fails = true
# limits = { shm_mib = 12 }
# why = "The workers' batches do not fit into the machine's shared memory."
# ///

# %%
import torch
from torch.utils.data import DataLoader, Dataset

LENGTH = 400


class Photos(Dataset):
    def __len__(self):
        return LENGTH

    def __getitem__(self, i):
        return torch.rand(3, 128, 128), i % 10


model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 128 * 128, 10))
opt = torch.optim.SGD(model.parameters(), lr=0.01)
lossf = torch.nn.CrossEntropyLoss()

# %% diagnosed
loader = DataLoader(Photos(), batch_size=32, num_workers=2)
for x, y in loader:
    opt.zero_grad()
    loss = lossf(model(x), y)
    loss.backward()
    opt.step()
