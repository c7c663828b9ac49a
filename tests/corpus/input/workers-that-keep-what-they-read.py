# /// truth
# class = "input"
# causes = ["host-memory-pressure"]
# fails = true
# limits = { memory_mib = 600 }
# why = "Each worker keeps all that it has read, until the memory is full."
# ///

# %%
import zlib

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

packed = zlib.compress(np.random.default_rng(0).integers(0, 64, 1 << 22, dtype=np.uint8).tobytes(), 1)

model = torch.nn.Sequential(torch.nn.Linear(1024, 32), torch.nn.ReLU(), torch.nn.Linear(32, 2))
opt = torch.optim.SGD(model.parameters(), lr=0.01)
lossf = torch.nn.CrossEntropyLoss()


# %% diagnosed
class Scans(Dataset):
    def __init__(self):
        self.kept = {}

    def __len__(self):
        return 800

    def __getitem__(self, i):
        scan = np.frombuffer(zlib.decompress(packed), np.uint8).astype(np.float32)
        self.kept[i] = scan[: 1 << 19].copy()
        return torch.from_numpy(scan[:1024].copy()), i % 2


loader = DataLoader(Scans(), batch_size=4, num_workers=2)

for x, y in loader:
    opt.zero_grad()
    loss = lossf(model(x), y)
    loss.backward()
    opt.step()
