"""Sequence classifier; validation after every epoch steers the learning rate and early stopping."""
import os, tempfile, time
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
DIM, LAYERS, BATCH = (1024, 6, 256) if device == "cuda" else (64, 2, 16)
VOCAB, LEN, TRAIN, VAL, EPOCHS, PATIENCE = 128, 64, 16 * BATCH, 4 * BATCH, 5, 3

ids = torch.randint(0, VOCAB, (TRAIN + VAL, LEN))
y = (ids[:, :8] < VOCAB // 2).float().mean(1).gt(0.5).long()
ids, y = ids.to(device), y.to(device)
x_val, y_val = ids[TRAIN:], y[TRAIN:]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok, self.pos = nn.Embedding(VOCAB, DIM), nn.Parameter(torch.zeros(LEN, DIM))
        layer = nn.TransformerEncoderLayer(DIM, 8, 4 * DIM, dropout=0.1, batch_first=True, norm_first=True)
        self.body = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)
        self.head = nn.Linear(DIM, 2)

    def forward(self, ids):
        return self.head(self.body(self.tok(ids) + self.pos).mean(1))


model = Net().to(device)
for layer in model.body.layers:
    layer.self_attn.dropout = 0.0
opt = torch.optim.AdamW(model.parameters(), 1e-3 if device == "cpu" else 1e-4, fused=device == "cuda")
sched = torch.optim.lr_scheduler.ReduceLROnPlateau(opt, factor=0.5, patience=1)
ckpt = os.path.join(tempfile.mkdtemp(), "last.pt")


def loss_fn(x, t):
    with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
        out = model(x)
    return F.cross_entropy(out.float(), t)


t0 = time.time()
best, bad = float("inf"), 0
for epoch in range(EPOCHS):
    model.train()
    for idx in torch.randperm(TRAIN, device=device).split(BATCH):
        loss = loss_fn(ids[idx], y[idx])
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
    model.eval()
    with torch.no_grad():
        val = loss_fn(x_val, y_val).item()
    sched.step(val)
    print(f"epoch {epoch} val {val:.4f} lr {opt.param_groups[0]['lr']:.5f}")
    bad = 0 if val < best else bad + 1
    best = min(best, val)
    if bad > PATIENCE:
        break
torch.save(model.state_dict(), ckpt)
print(f"training took {time.time() - t0:.2f}s")
