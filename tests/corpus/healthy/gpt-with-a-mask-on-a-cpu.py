# /// truth
# class = "compute"
# never = ["attention"]
# why = "Fused attention with a mask, which a CPU's fused kernel takes."
# ///

# %%
import math

import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
width, heads, tokens, vocabulary = 64, 4, 256, 96


class SelfAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.register_buffer("mask", torch.tril(torch.ones(tokens, tokens, dtype=torch.bool)))

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (part.view(b, t, heads, c // heads).transpose(1, 2) for part in self.qkv(x).split(c, 2))
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=self.mask[:t, :t])
        return self.out(y.transpose(1, 2).reshape(b, t, c))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention, self.one, self.two = SelfAttention(), nn.LayerNorm(width), nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        x = x + self.attention(self.one(x))
        return x + self.mlp(self.two(x))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(vocabulary, width), nn.Embedding(tokens, width)
        self.blocks = nn.Sequential(Block(), Block())
        self.head = nn.Linear(width, vocabulary)

    def forward(self, ids):
        x = self.words(ids) + self.places(torch.arange(ids.shape[1]))
        return self.head(self.blocks(x))


text = torch.randint(0, vocabulary, (50, 4, tokens + 1))

# %% diagnosed
model = GPT()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
for batch in text:
    logits = model(batch[:, :-1])
    loss = F.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
