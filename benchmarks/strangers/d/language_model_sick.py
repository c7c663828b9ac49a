"""Causal transformer on short chat messages."""
import time
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader

torch.manual_seed(0)
torch.set_float32_matmul_precision("high")
device = "cuda" if torch.cuda.is_available() else "cpu"
VOCAB, MAX_LEN, DIM, BATCH, EPOCHS, PAD = 256, 192, 96, 16, 2, 0

messages = []
for _ in range(400):
    n = int(torch.randint(8, 40, (1,)))
    start, stride = int(torch.randint(1, VOCAB, (1,))), int(torch.randint(1, 5, (1,)))
    messages.append((start + stride * torch.arange(n)) % (VOCAB - 1) + 1)


def collate(batch):
    out = torch.full((len(batch), MAX_LEN), PAD, dtype=torch.long)
    for i, ids in enumerate(batch):
        ids = ids[:MAX_LEN]
        out[i, :len(ids)] = ids
    return out


class LM(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok = nn.Embedding(VOCAB, DIM, padding_idx=PAD)
        self.pos = nn.Embedding(MAX_LEN, DIM)
        layer = nn.TransformerEncoderLayer(DIM, 4, 4 * DIM, dropout=0.0, batch_first=True, norm_first=True)
        self.body = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(DIM, VOCAB)

    def forward(self, ids):
        n = ids.shape[1]
        mask = torch.triu(torch.ones(n, n, dtype=torch.bool, device=ids.device), 1)
        x = self.tok(ids) + self.pos(torch.arange(n, device=ids.device))
        return self.head(self.body(x, mask=mask, is_causal=True))


loader = DataLoader(messages, batch_size=BATCH, shuffle=True, collate_fn=collate, pin_memory=device == "cuda")
model = LM().to(device)
opt = torch.optim.AdamW(model.parameters(), 1e-3)

t0 = time.time()
step = 0
for epoch in range(EPOCHS):
    for ids in loader:
        ids = ids.to(device, non_blocking=True)
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            logits = model(ids[:, :-1])
        loss = F.cross_entropy(logits.float().flatten(0, 1), ids[:, 1:].flatten(), ignore_index=PAD)
        opt.zero_grad()
        loss.backward()
        opt.step()
        step += 1
        if step % 10 == 0:
            print(f"step {step} loss {loss.item():.4f}")
print(f"training took {time.time() - t0:.2f}s")
