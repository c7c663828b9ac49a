import random, torch, torch.nn as nn, torch.nn.functional as F
from torch.utils.data import Dataset, DataLoader

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)
random.seed(0)
VOCAB, MAX_LEN, PAD = 1000, 256, 0

class Chats(Dataset):
    """Already tokenised short messages, a few long ones."""
    def __init__(self, n=1200):
        self.items = [torch.randint(1, VOCAB, (min(MAX_LEN, int(random.lognormvariate(3.4, 0.5)) + 4),))
                      for _ in range(n)]

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]

def collate(batch):
    out = torch.full((len(batch), MAX_LEN), PAD)
    for i, t in enumerate(batch):
        out[i, :len(t)] = t
    return out

class Block(nn.Module):
    def __init__(self, d, h):
        super().__init__()
        self.h = h
        self.n1, self.n2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.proj = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.mlp = nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d))

    def forward(self, x):
        B, T, D = x.shape
        q, k, v = self.qkv(self.n1(x)).view(B, T, 3, self.h, D // self.h).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(a.transpose(1, 2).reshape(B, T, D))
        return x + self.mlp(self.n2(x))

class GPT(nn.Module):
    def __init__(self, d=64, h=4, layers=2):
        super().__init__()
        self.tok, self.pos = nn.Embedding(VOCAB, d), nn.Embedding(MAX_LEN, d)
        self.blocks = nn.Sequential(*[Block(d, h) for _ in range(layers)])
        self.norm, self.head = nn.LayerNorm(d), nn.Linear(d, VOCAB, bias=False)

    def forward(self, ids):
        x = self.tok(ids) + self.pos(torch.arange(ids.shape[1], device=ids.device))
        return self.head(self.norm(self.blocks(x)))

model = GPT().to(device)
opt = torch.optim.AdamW(model.parameters(), lr=3e-4)
loader = DataLoader(Chats(), batch_size=8, shuffle=True, collate_fn=collate, drop_last=True,
                    pin_memory=(device == "cuda"))
for step, ids in enumerate(loader):
    if step == 45:
        break
    ids = ids.to(device, non_blocking=True)
    logits = model(ids[:, :-1])
    loss = F.cross_entropy(logits.reshape(-1, VOCAB), ids[:, 1:].reshape(-1), ignore_index=PAD)
    opt.zero_grad(set_to_none=True)
    loss.backward()
    opt.step()
print(f"final loss {loss.item():.3f}")
