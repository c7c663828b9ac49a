# /// truth
# class = "compute"
# causes = ["cpu-oversubscription"]
# settings = { threads = 2 }
# why = "torch computes with sixteen threads on two cores, copied from a script for a bigger machine."
# ///

# %%
import torch
from torch import nn

model = nn.Sequential(nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))
opt = torch.optim.SGD(model.parameters(), lr=0.01)
data = torch.randn(100, 128, 512)
labels = torch.randint(0, 10, (100, 128))

# %% diagnosed
torch.set_num_threads(16)  # copied from a script for a bigger machine
for x, y in zip(data, labels):
    opt.zero_grad()
    loss = nn.functional.cross_entropy(model(x), y)
    loss.backward()
    opt.step()
