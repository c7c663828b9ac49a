# /// truth
# class = "compute"
# causes = ["double-precision"]
# why = "The model was made double to fit NumPy's arrays."
# ///

# %%
import numpy as np
import torch
from torch import nn

torch.set_num_threads(1)
X = np.random.rand(64 * 100, 512)  # float64, as NumPy makes it
y = np.random.rand(64 * 100, 1)
model = nn.Sequential(nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 1))

# %% diagnosed
model = model.double()  # RuntimeError: mat1 and mat2 must have the same dtype
inputs, targets = torch.from_numpy(X), torch.from_numpy(y)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
for i in range(0, len(inputs), 64):
    loss = ((model(inputs[i : i + 64]) - targets[i : i + 64]) ** 2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
