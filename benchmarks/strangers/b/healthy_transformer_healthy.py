import torch, torch.nn as nn, torch.nn.functional as F

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.set_float32_matmul_precision("high")
torch.manual_seed(0)
D, T, B, V, LAYERS = (1024, 512, 32, 8192, 8) if device == "cuda" else (128, 96, 8, 500, 3)
corpus = torch.randint(0, V, (300_000,), device=device)

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(D), nn.LayerNorm(D)
        self.qkv, self.proj = nn.Linear(D, 3 * D), nn.Linear(D, D)
        self.mlp = nn.Sequential(nn.Linear(D, 4 * D), nn.GELU(), nn.Linear(4 * D, D))

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = self.qkv(self.n1(x)).view(b, t, 3, 4, D // 4).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(a.transpose(1, 2).reshape(b, t, D))
        return x + self.mlp(self.n2(x))

class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok, self.pos = nn.Embedding(V, D), nn.Embedding(T, D)
        self.body = nn.Sequential(*[Block() for _ in range(LAYERS)], nn.LayerNorm(D))
        self.head = nn.Linear(D, V, bias=False)

    def forward(self, x):
        return self.head(self.body(self.tok(x) + self.pos.weight))

model = GPT().to(device)
opt = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
offs = torch.arange(T + 1, device=device)
for step in range(60):
    w = corpus[torch.randint(0, len(corpus) - T - 1, (B, 1), device=device) + offs]
    with torch.autocast(device, dtype=torch.bfloat16, enabled=(device == "cuda")):
        logits = model(w[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), w[:, 1:].flatten())
    opt.zero_grad(set_to_none=True)
    loss.backward()
    opt.step()
print(f"loss {loss.item():.3f}")
