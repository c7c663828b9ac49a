import torch, torch.nn as nn, torch.nn.functional as F

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)
train_x = torch.rand(512, 3, 32, 32, device=device)
train_y = torch.randint(0, 10, (512,), device=device)
val_x, val_y = train_x[:128] + 0.05, train_y[:128]

class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 16, 3, 1, 1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, 1, 1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(32, 64, 3, 1, 1), nn.BatchNorm2d(64), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.proj = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64))

    def forward(self, x):
        return F.normalize(self.proj(self.body(x)), dim=1)

def augment(x):
    if torch.rand(()) < 0.5:
        x = x.flip(3)
    x = torch.roll(x, int(torch.randint(-4, 5, ())), dims=2)
    return x * (0.8 + 0.4 * torch.rand(len(x), 1, 1, 1, device=x.device)) + 0.05 * torch.randn_like(x)

def nt_xent(a, b, temp=0.2):
    z = torch.cat([a, b])
    sim = z @ z.T / temp
    sim.fill_diagonal_(float("-inf"))
    n = len(a)
    target = torch.arange(2 * n, device=z.device).roll(n)
    return F.cross_entropy(sim, target)

@torch.no_grad()
def knn_accuracy(model, k=5):
    model.eval()
    bank = torch.cat([F.normalize(model.body(b), dim=1) for b in train_x.split(128)])
    query = F.normalize(model.body(val_x), dim=1)
    nn_y = train_y[(query @ bank.T).topk(k, dim=1).indices]
    acc = (nn_y.mode(1).values == val_y).float().mean()
    model.train()
    return acc

model = Encoder().to(device)
opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
STEPS = 40
EVAL_EVERY = 2
for step in range(STEPS):
    x = train_x[torch.randint(0, len(train_x), (32,), device=device)]
    loss = nt_xent(model(augment(x)), model(augment(x)))
    opt.zero_grad(set_to_none=True)
    loss.backward()
    opt.step()
    if (step + 1) % EVAL_EVERY == 0:
        acc = knn_accuracy(model)
print(f"loss {loss.item():.3f} knn {acc.item():.3f}")
