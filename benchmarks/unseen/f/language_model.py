# /// truth
# class = ["input", "host"]
# causes = ["slow-generator", "slow-python"]
# timed = "whole"
# unseen = true
# author_class = "input"
# author_gain = 2.1
# why = """\
# Each batch's random window starts are drawn with torch.randperm over all token positions (millions) and all but \
# the first few dozen of the permutation are thrown away."""
# cure = "Draw just the batch's start positions with torch.randint."
# ///

# %% diagnosed
"""Character-level GPT on a (made-up) text corpus."""

import time
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

device = "cuda" if torch.cuda.is_available() else "cpu"


@dataclass
class Config:
    block_size: int = 64
    batch_size: int = 16
    d_model: int = 128
    n_head: int = 4
    n_layer: int = 2
    vocab: int = 32
    lr: float = 1e-3
    max_iters: int = 200
    warmup: int = 20


def make_corpus(num_words=300_000, dictionary=2000, seed=0):
    """Zipf-distributed nonsense words, separated by spaces, as an array of small ints."""
    rng = np.random.default_rng(seed)
    letters = rng.integers(1, 27, size=(dictionary, 8))
    lengths = rng.integers(2, 9, size=dictionary)
    words = [bytes(letters[i, : lengths[i]].tolist()) for i in range(dictionary)]
    p = 1.0 / np.arange(1, dictionary + 1)
    picks = rng.choice(dictionary, size=num_words, p=p / p.sum())
    text = b"\x00".join(words[i] for i in picks.tolist())
    return torch.from_numpy(np.frombuffer(text, dtype=np.uint8).copy())


class SelfAttention(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.n_head = cfg.n_head
        self.qkv = nn.Linear(cfg.d_model, 3 * cfg.d_model)
        self.proj = nn.Linear(cfg.d_model, cfg.d_model)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.n_head, c // self.n_head).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.proj(y.transpose(1, 2).reshape(b, t, c))


class Layer(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.ln1 = nn.LayerNorm(cfg.d_model)
        self.attn = SelfAttention(cfg)
        self.ln2 = nn.LayerNorm(cfg.d_model)
        self.mlp = nn.Sequential(
            nn.Linear(cfg.d_model, 4 * cfg.d_model), nn.GELU(), nn.Linear(4 * cfg.d_model, cfg.d_model)
        )

    def forward(self, x):
        x = x + self.attn(self.ln1(x))
        return x + self.mlp(self.ln2(x))


class GPT(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.tok = nn.Embedding(cfg.vocab, cfg.d_model)
        self.pos = nn.Parameter(torch.randn(cfg.block_size, cfg.d_model) * 0.02)
        self.layers = nn.Sequential(*[Layer(cfg) for _ in range(cfg.n_layer)])
        self.ln = nn.LayerNorm(cfg.d_model)
        self.head = nn.Linear(cfg.d_model, cfg.vocab, bias=False)

    def forward(self, idx, targets):
        x = self.layers(self.tok(idx) + self.pos[: idx.shape[1]])
        logits = self.head(self.ln(x))
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def get_batch(data, cfg):
    starts = torch.randperm(len(data) - cfg.block_size - 1, device=data.device)[: cfg.batch_size]
    window = torch.arange(cfg.block_size + 1, device=data.device)
    chunk = data[starts[:, None] + window].long()
    return chunk[:, :-1], chunk[:, 1:]


def main():
    cfg = Config()
    torch.manual_seed(1337)
    data = make_corpus().to(device)
    print(f"{len(data) / 1e6:.1f}M characters")

    model = GPT(cfg).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=cfg.lr, betas=(0.9, 0.95))
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda it: min(1.0, (it + 1) / cfg.warmup))

    start = time.perf_counter()
    for it in range(cfg.max_iters):
        x, y = get_batch(data, cfg)
        loss = model(x, y)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if it % 50 == 0 or it == cfg.max_iters - 1:
            print(f"iter {it} loss {loss.item():.4f}")
    elapsed = time.perf_counter() - start
    print(f"steps={cfg.max_iters} seconds={elapsed:.2f}")
    print(f"samples_per_s={cfg.max_iters * cfg.batch_size / elapsed:.1f}")


if __name__ == "__main__":
    main()
