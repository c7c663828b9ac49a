"""Click-through-rate model: a few high-cardinality id columns + dense features (DLRM style)."""
import time
import torch
import torch.nn as nn

torch.manual_seed(5)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

CARDINALITIES = {"user_id": 200_000, "item_id": 120_000, "ad_id": 40_000, "city": 2_000}
N_DENSE, N_ROWS, EMB_DIM, BS = 13, 40_000, 16, 512

dense = torch.randn(N_ROWS, N_DENSE)
cats = torch.stack([(torch.rand(N_ROWS) ** 2 * c).long() for c in CARDINALITIES.values()], dim=1)
score = dense[:, 0] - 0.5 * dense[:, 3] + ((cats[:, 1] % 7) - 3).float() * 0.4
click = (torch.rand(N_ROWS) < torch.sigmoid(score)).float()

split = int(0.9 * N_ROWS)
train_set = [t[:split].to(device) for t in (dense, cats, click)]
valid_set = [t[split:].to(device) for t in (dense, cats, click)]


def batches(tensors, bs, shuffle):
    n = tensors[0].shape[0]
    order = torch.randperm(n, device=device) if shuffle else torch.arange(n, device=device)
    for i in range(0, n - bs + 1, bs):
        idx = order[i:i + bs]
        yield [t[idx] for t in tensors]


class CTRNet(nn.Module):
    def __init__(self, cards, n_dense, emb_dim):
        super().__init__()
        self.embs = nn.ModuleList([nn.Embedding(c, emb_dim, sparse=True) for c in cards])
        for e in self.embs:
            nn.init.normal_(e.weight, std=0.01)
        self.bottom = nn.Sequential(nn.Linear(n_dense, 64), nn.ReLU(), nn.Linear(64, emb_dim), nn.ReLU())
        k = len(cards) + 1
        self.register_buffer("tri", torch.triu_indices(k, k, offset=1))
        self.top = nn.Sequential(
            nn.Linear(emb_dim + k * (k - 1) // 2, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 1))

    def forward(self, dense, cats):
        d = self.bottom(dense)
        vecs = torch.stack([d] + [e(cats[:, i]) for i, e in enumerate(self.embs)], dim=1)
        inter = torch.bmm(vecs, vecs.transpose(1, 2))[:, self.tri[0], self.tri[1]]
        return self.top(torch.cat([d, inter], dim=1)).squeeze(1)


def auc(logits, labels):
    ranks = torch.empty_like(logits)
    ranks[logits.argsort()] = torch.arange(1, len(logits) + 1, device=logits.device, dtype=logits.dtype)
    pos = labels.sum()
    neg = len(labels) - pos
    return ((ranks[labels > 0.5].sum() - pos * (pos + 1) / 2) / (pos * neg)).item()


@torch.no_grad()
def validate(model):
    model.eval()
    out = [(model(d, c), y) for d, c, y in batches(valid_set, BS, shuffle=False)]
    logits, labels = (torch.cat(t) for t in zip(*out))
    return auc(logits, labels)


model = CTRNet(CARDINALITIES.values(), N_DENSE, EMB_DIM).to(device)
optimizer = torch.optim.Adagrad(model.parameters(), lr=0.02)
bce = nn.BCEWithLogitsLoss()

t0 = time.time()
for epoch in range(2):
    model.train()
    losses = []
    for step, (d, c, y) in enumerate(batches(train_set, BS, shuffle=True)):
        loss = bce(model(d, c), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
        if step % 25 == 0:
            print(f"  epoch {epoch} step {step:3d} logloss {loss.item():.4f}")
    print(f"epoch {epoch} train logloss {torch.stack(losses).mean().item():.4f} valid auc {validate(model):.4f}")
print(f"time: {time.time() - t0:.2f} s")
