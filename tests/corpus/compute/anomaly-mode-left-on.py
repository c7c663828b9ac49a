# /// truth
# class = "compute"
# causes = ["debug-mode-on"]
# holdout = true
# why = "Anomaly detection was left on."
# ///

# %%
import torch
from torch import nn

torch.set_num_threads(1)


class Gates(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.Linear(48, 32)

    def forward(self, x):
        h = torch.zeros(x.shape[0], 32)
        for t in range(x.shape[1]):
            h = torch.tanh(self.cell(torch.cat([x[:, t], h], 1)))
        return h.mean(1)


model = Gates()
opt = torch.optim.SGD(model.parameters(), lr=0.01)
waves = torch.randn(120, 16, 24, 16)

# %% diagnosed
torch.autograd.set_detect_anomaly(True)
for x in waves:
    loss = (model(x) - x.mean((1, 2))).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
