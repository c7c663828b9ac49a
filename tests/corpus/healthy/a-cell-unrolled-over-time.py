# /// truth
# class = "compute"
# never = ["per-sample-forward", "redundant-forward"]
# why = "A recurrent cell is called once for each time step, which needs the state before."
# ///

# %%
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
cell, head = nn.GRUCell(64, 256), nn.Linear(256, 10)
data = TensorDataset(torch.randn(40 * 32, 32, 64), torch.randint(0, 10, (40 * 32,)))
loader = DataLoader(data, batch_size=32, shuffle=True)
optimizer = torch.optim.SGD([*cell.parameters(), *head.parameters()], lr=0.01)

# %% diagnosed
for x, y in loader:
    state = torch.zeros(len(x), 256)
    for t in range(x.shape[1]):
        state = cell(x[:, t], state)
    loss = nn.functional.cross_entropy(head(state), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
