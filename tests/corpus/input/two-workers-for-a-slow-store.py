# /// truth
# class = "input"
# causes = ["too-few-workers", "slow-storage"]
# settings = { num_workers = 8 }
# why = "Two workers fetch samples that take 4 ms each: more of them would hide it."
# ///

# %%
LENGTH = 50  # batches
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)


class Archive(Dataset):
    def __len__(self):
        return 16 * LENGTH

    def __getitem__(self, i):
        time.sleep(0.004)
        return torch.randn(256), torch.randint(0, 10, ())


# %% diagnosed
model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 10))
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
train_loader = DataLoader(Archive(), batch_size=16, shuffle=True, num_workers=2)
model.train()
for images, labels in train_loader:
    logits = model(images)
    loss = nn.functional.cross_entropy(logits, labels)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
