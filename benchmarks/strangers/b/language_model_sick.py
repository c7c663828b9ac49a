import torch, torch.nn as nn, torch.nn.functional as F

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)
VOCAB, CTX, B, D = 8000, 48, 8, 32
corpus = torch.randint(0, VOCAB, (200_000,), device=device)

class LSTMLM(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(VOCAB, D)
        self.rnn = nn.LSTM(D, 2 * D, batch_first=True)
        self.proj = nn.Linear(2 * D, D)
        self.head = nn.Linear(D, VOCAB, bias=False)
        self.head.weight = self.emb.weight
        nn.init.normal_(self.emb.weight, std=0.02)

    def forward(self, x):
        h, _ = self.rnn(self.emb(x))
        return self.head(self.proj(h))

def get_batch():
    s = torch.randint(0, len(corpus) - CTX - 1, (B, 1), device=device)
    w = corpus[s + torch.arange(CTX + 1, device=device)]
    return w[:, :-1], w[:, 1:]

def loss_fn(logits, y):
    target = F.one_hot(y, VOCAB).float()
    logp = torch.log(torch.softmax(logits, dim=-1) + 1e-9)
    return -(target * logp).sum(-1).mean()

model = LSTMLM().to(device)
opt = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(70):
    x, y = get_batch()
    loss = loss_fn(model(x), y)
    opt.zero_grad(set_to_none=True)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    opt.step()
print(f"final loss {loss.item():.3f}")
