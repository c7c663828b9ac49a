# /// truth
# class = "host"
# causes = ["slow-generator"]
# why = "A generator makes each batch in Python between two steps."
# ///

# %%
import numpy as np
import torch
from torch import nn

torch.set_num_threads(1)
series = np.sin(np.arange(20_000) / 7.0) + np.random.default_rng(0).normal(0, 0.1, 20_000)


def batches(n, size=64, window=48):
    for _ in range(n):
        xs, ys = [], []
        for start in np.random.randint(0, len(series) - window - 1, size):
            part = series[start : start + window]
            part = (part - part.mean()) / (part.std() + 1e-6)
            xs.append([float(v) for v in part])
            ys.append(series[start + window])
        yield torch.tensor(xs), torch.tensor(ys, dtype=torch.float32)


model = nn.Sequential(nn.Linear(48, 128), nn.ReLU(), nn.Linear(128, 1))
optimizer = torch.optim.Adam(model.parameters())

# %% diagnosed
for x, y in batches(300):
    loss = nn.functional.mse_loss(model(x).squeeze(1), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
