"""Train a tiny GPT on short chat messages (synthetic token ids)."""
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(0)
rng = np.random.default_rng(0)
device = "cuda" if torch.cuda.is_available() else "cpu"

VOCAB, PAD, MAX_LEN = 1000, 0, 160
D_MODEL, HEADS, LAYERS = 96, 4, 2
BATCH, EPOCHS, N_DOCS = 16, 2, 480


def make_corpus():
    docs = []
    step = rng.integers(1, 50, VOCAB)
    for _ in range(N_DOCS):
        n = int(np.clip(rng.lognormal(3.0, 0.6), 6, MAX_LEN))
        tok = [int(rng.integers(1, VOCAB))]
        while len(tok) < n:
            tok.append(int((tok[-1] + step[tok[-1]]) % (VOCAB - 1)) + 1)
        docs.append(torch.tensor(tok))
    return docs


class Messages(Dataset):
    def __init__(self, docs):
        self.docs = docs

    def __len__(self):
        return len(self.docs)

    def __getitem__(self, i):
        return self.docs[i]


def collate(docs):
    length = MAX_LEN
    ids = torch.full((len(docs), length), PAD)
    for row, d in zip(ids, docs):
        row[: len(d)] = d
    return ids


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(D_MODEL), nn.LayerNorm(D_MODEL)
        self.qkv = nn.Linear(D_MODEL, 3 * D_MODEL)
        self.proj = nn.Linear(D_MODEL, D_MODEL)
        self.mlp = nn.Sequential(nn.Linear(D_MODEL, 4 * D_MODEL), nn.GELU(), nn.Linear(4 * D_MODEL, D_MODEL))

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.qkv(self.n1(x)).view(b, t, 3, HEADS, c // HEADS).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(a.transpose(1, 2).reshape(b, t, c))
        return x + self.mlp(self.n2(x))


class TinyGPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok = nn.Embedding(VOCAB, D_MODEL)
        self.pos = nn.Embedding(MAX_LEN, D_MODEL)
        self.blocks = nn.Sequential(*[Block() for _ in range(LAYERS)])
        self.norm = nn.LayerNorm(D_MODEL)
        self.head = nn.Linear(D_MODEL, VOCAB, bias=False)

    def forward(self, ids):
        pos = torch.arange(ids.shape[1], device=ids.device)
        return self.head(self.norm(self.blocks(self.tok(ids) + self.pos(pos))))


loader = DataLoader(Messages(make_corpus()), batch_size=BATCH, shuffle=True, drop_last=True,
                    collate_fn=collate, pin_memory=(device == "cuda"))
model = TinyGPT().to(device)
opt = torch.optim.AdamW(model.parameters(), lr=1e-3)

start, step = time.time(), 0
for epoch in range(EPOCHS):
    for ids in loader:
        ids = ids.to(device, non_blocking=True)
        inp, target = ids[:, :-1], ids[:, 1:]
        logits = model(inp)
        loss = F.cross_entropy(logits.flatten(0, 1), target.flatten(), ignore_index=PAD)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        step += 1
        if step % 20 == 0:
            print(f"step {step}: loss {loss.item():.4f}")
print(f"train time {time.time() - start:.2f}s")
