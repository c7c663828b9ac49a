import torch, torch.nn as nn, torch.nn.functional as F

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)
VOCAB, L, N, CLASSES = 1000, 32, 256, 4
ids = torch.randint(0, VOCAB, (N, L), device=device)
labels = torch.randint(0, CLASSES, (N,), device=device)

class Encoder(nn.Module):
    def __init__(self, d, layers):
        super().__init__()
        self.emb, self.pos = nn.Embedding(VOCAB, d), nn.Parameter(torch.zeros(L, d))
        layer = nn.TransformerEncoderLayer(d, 4, 4 * d, dropout=0.0, batch_first=True)
        self.enc = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(d, CLASSES)

    def forward(self, x):
        return self.head(self.enc(self.emb(x) + self.pos).mean(1))

teacher = Encoder(128, 4).to(device).eval()          # stands for a fine-tuned model; frozen
for p in teacher.parameters():
    p.requires_grad_(False)
student = Encoder(48, 2).to(device)
opt = torch.optim.AdamW(student.parameters(), lr=5e-4)
T, B, EPOCHS = 2.0, 16, 8

with torch.no_grad():
    all_t = torch.cat([teacher(b) for b in ids.split(B)])
for epoch in range(EPOCHS):
    perm = torch.randperm(N, device=device)
    for idx in perm.split(B):
        x, y = ids[idx], labels[idx]
        t = all_t[idx]
        s = student(x)
        soft = F.kl_div(F.log_softmax(s / T, 1), F.softmax(t / T, 1), reduction="batchmean") * T * T
        loss = 0.5 * soft + 0.5 * F.cross_entropy(s, y)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
    print(f"epoch {epoch} loss {loss.item():.3f}") if epoch == EPOCHS - 1 else None
