# /// truth
# class = "compute"
# causes = ["memory-growth"]
# why = "A logger keeps each loss with its small graph, so that the memory grows."
# ///

# %%
import torch
from torch import nn

torch.set_num_threads(1)


class Logger:
    def __init__(self):
        self.seen = []

    def log(self, value):
        self.seen.append(value)


logger = Logger()
layers = [layer for _ in range(40) for layer in (nn.Linear(16, 16), nn.ReLU())]
model = nn.Sequential(*layers, nn.Linear(16, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
rows = [(torch.randn(8, 16), torch.randn(8, 1)) for _ in range(40)]

# %% diagnosed
for epoch in range(50):  # some seconds: memory is read twice a second
    for x, y in rows:
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        logger.log(loss)
