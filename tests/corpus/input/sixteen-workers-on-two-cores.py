# /// truth
# class = "input"
# causes = ["too-many-workers", "slow-getitem"]
# never = ["too-few-workers"]
# most_workers = 16
# why = "Sixteen workers compute on two cores and get in each other's way."
# ///

# %%
import hashlib

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)


class Hashed(Dataset):
    def __len__(self):
        return 16 * 120

    def __getitem__(self, i):
        digest = hashlib.pbkdf2_hmac("sha256", b"feature", str(i).encode(), 1500)
        return torch.frombuffer(bytearray(digest), dtype=torch.uint8).float(), i % 2


model = nn.Linear(32, 2)
opt = torch.optim.SGD(model.parameters(), lr=0.01)

# %% diagnosed
for x, y in DataLoader(Hashed(), batch_size=16, num_workers=16):
    opt.zero_grad()
    nn.functional.cross_entropy(model(x), y).backward()
    opt.step()
