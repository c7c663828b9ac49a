# /// truth
# class = "input"
# causes = ["loader-without-workers", "slow-storage"]
# why = "A stream of remote lines is read by the training itself; with workers it must be sharded."
# ///

# %%
EPOCHS = 3
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

torch.set_num_threads(1)


class Lines(IterableDataset):
    def __iter__(self):
        for i in range(16 * 25):
            time.sleep(0.0015)  # the next line of a remote log
            yield torch.full((64,), float(i % 7)), float(i % 2)


model = nn.Linear(64, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

# %% diagnosed
for epoch in range(EPOCHS):
    for x, y in DataLoader(Lines(), batch_size=16):
        loss = ((model(x).squeeze(1) - y) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
