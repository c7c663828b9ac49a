# /// truth
# class = "input"
# causes = ["loader-without-workers", "slow-storage"]
# holdout = true
# why = "Two loaders without workers take turns, each with samples that arrive slowly."
# ///

# %%
EPOCHS = 3
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)


class Domain(Dataset):
    def __init__(self, shift):
        self.shift = shift

    def __len__(self):
        return 8 * 25

    def __getitem__(self, i):
        time.sleep(0.0015)
        return torch.randn(128) + self.shift, i % 4


features = nn.Sequential(nn.Linear(128, 256), nn.ReLU())
classify = nn.Linear(256, 4)
opt = torch.optim.Adam([*features.parameters(), *classify.parameters()])

# %% diagnosed
source = DataLoader(Domain(0.0), batch_size=8, shuffle=True)
target = DataLoader(Domain(1.0), batch_size=8, shuffle=True)
for epoch in range(EPOCHS):
    for (xs, ys), (xt, _) in zip(source, target):
        fs, ft = features(xs), features(xt)
        loss = nn.functional.cross_entropy(classify(fs), ys) + (fs.mean(0) - ft.mean(0)).pow(2).sum()
        opt.zero_grad()
        loss.backward()
        opt.step()
