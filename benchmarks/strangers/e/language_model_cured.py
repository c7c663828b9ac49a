"""Masked language model (mini BERT) pre-training."""
import math
import time
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(1)
device = "cuda" if torch.cuda.is_available() else "cpu"

VOCAB, MASK, SEQ, BATCH = 8000, 1, 96, 8
config = dict(dim=160, heads=4, layers=2, lr=5e-4, warmup=20, steps=64, mask_prob=0.15)

# toy corpus: zipf distributed tokens with some local repetition
probs = 1.0 / torch.arange(1, VOCAB - 9).float()
corpus = torch.multinomial(probs, 200_000, replacement=True) + 10
corpus[1::3] = corpus[0:-1:3]
corpus = corpus.to(device)


def get_batch():
    starts = torch.randint(0, corpus.numel() - SEQ, (BATCH, 1), device=device)
    tokens = corpus[starts + torch.arange(SEQ, device=device)]
    masked = torch.rand(tokens.shape, device=device) < config["mask_prob"]
    labels = torch.where(masked, tokens, -100)
    inputs = torch.where(masked, MASK, tokens)
    return inputs, labels


class EncoderLayer(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.ln1, self.ln2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv = nn.Linear(dim, 3 * dim)
        self.out = nn.Linear(dim, dim)
        self.ff = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x):
        B, T, D = x.shape
        q, k, v = self.qkv(self.ln1(x)).view(B, T, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v)
        x = x + self.out(a.transpose(1, 2).reshape(B, T, D))
        return x + self.ff(self.ln2(x))


class MiniBert(nn.Module):
    def __init__(self, dim, heads, layers):
        super().__init__()
        self.tok = nn.Embedding(VOCAB, dim)
        self.pos = nn.Parameter(torch.randn(SEQ, dim) * 0.02)
        self.layers = nn.ModuleList(EncoderLayer(dim, heads) for _ in range(layers))
        self.ln = nn.LayerNorm(dim)
        self.transform = nn.Sequential(nn.Linear(dim, dim), nn.GELU(), nn.LayerNorm(dim))
        self.decoder = nn.Linear(dim, VOCAB)
        nn.init.normal_(self.tok.weight, std=0.02)

    def forward(self, ids, labels):
        x = self.tok(ids) + self.pos[: ids.size(1)]
        for layer in self.layers:
            x = layer(x)
        x = self.ln(x)
        where = (labels.view(-1) != -100).nonzero().squeeze(1)
        x = x.view(-1, x.size(-1)).index_select(0, where)
        logits = self.decoder(self.transform(x))
        return F.cross_entropy(logits, labels.view(-1)[where])


def lr_at(step):
    if step < config["warmup"]:
        return (step + 1) / config["warmup"]
    t = (step - config["warmup"]) / (config["steps"] - config["warmup"])
    return 0.5 * (1 + math.cos(math.pi * t))


model = MiniBert(config["dim"], config["heads"], config["layers"]).to(device)
decay = [p for p in model.parameters() if p.dim() > 1]
no_decay = [p for p in model.parameters() if p.dim() <= 1]
optimizer = torch.optim.AdamW([{"params": decay, "weight_decay": 0.01}, {"params": no_decay, "weight_decay": 0.0}],
                              lr=config["lr"], fused=True)
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lr_at)

print(f"{sum(p.numel() for p in model.parameters()) / 1e6:.2f}M parameters on {device}")
model.train()
t0 = time.time()
for step in range(config["steps"]):
    ids, labels = get_batch()
    loss = model(ids, labels)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    scheduler.step()
    if step % 16 == 0 or step == config["steps"] - 1:
        print(f"step {step:4d} | mlm loss {loss.item():.4f} | ppl {math.exp(min(loss.item(), 20)):.1f}")
print(f"training time: {time.time() - t0:.2f}s")
