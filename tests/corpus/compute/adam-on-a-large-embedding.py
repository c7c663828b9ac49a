# /// truth
# class = "compute"
# causes = ["unfused-optimizer", "dense-embedding-gradients"]
# settings = { fused_optimizer = true }
# why = "Adam updates all rows of a large embedding, tensor by tensor, though a batch touches a few hundred."
# ///

# %%
import torch
from torch import nn

torch.set_num_threads(1)
vocab = 20_000
model = nn.Sequential(nn.Embedding(vocab, 64), nn.Flatten(), nn.Linear(64 * 8, 64))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
batches = torch.randint(0, vocab, (70, 32, 8))

# %% diagnosed
for ids in batches:
    out = model(ids)
    loss = out.pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
