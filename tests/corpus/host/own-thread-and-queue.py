# /// truth
# class = "host"
# causes = ["slow-python"]
# why = """
# One thread of the user's own fills a queue, and the steps wait for it. Written before any rule was tried on it."""
# ///

# %%
import queue
import threading
import time

import numpy as np
import torch
from torch import nn

torch.set_num_threads(1)
rng = np.random.default_rng(0)


def read_shard(i):
    time.sleep(0.03)  # the network drive
    return rng.normal(size=(64, 32)).astype("float32"), rng.integers(0, 4, 64)


def producer(q, ids):
    for i in ids:
        q.put(read_shard(i))
    q.put(None)


net = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 4))
opt = torch.optim.Adam(net.parameters())
READERS = 8

# %% diagnosed
q = queue.Queue(maxsize=8)
threading.Thread(target=producer, args=(q, range(80)), daemon=True).start()
while True:
    item = q.get()
    if item is None:
        break
    xb, yb = torch.from_numpy(item[0]), torch.from_numpy(item[1])
    loss = nn.functional.cross_entropy(net(xb), yb)
    opt.zero_grad()
    loss.backward()
    opt.step()
