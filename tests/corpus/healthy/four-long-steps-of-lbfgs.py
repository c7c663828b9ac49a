# /// truth
# class = "compute"
# timed = "few"
# why = "Four long steps, in each of which the closure runs many times."
# ///

# %%
import torch
from torch import nn

torch.set_num_threads(1)
x, y = torch.randn(1000, 256), torch.randn(1000, 1)
model = nn.Sequential(nn.Linear(256, 400), nn.Tanh(), nn.Linear(400, 1))
optimizer = torch.optim.LBFGS(model.parameters(), max_iter=20, history_size=10)


# %% diagnosed
def closure():
    optimizer.zero_grad()
    loss = (model(x) - y).pow(2).mean()
    loss.backward()
    return loss


for step in range(4):
    optimizer.step(closure)
