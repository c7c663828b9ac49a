import torch, torch.nn as nn, torch.nn.functional as F

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)
B, W = (512, 128) if device == "cuda" else (32, 24)
X = torch.randn(2048, 3, 32, 32, device=device)
Y = torch.randint(0, 10, (2048,), device=device)

class Block(nn.Module):
    def __init__(self, c, o, stride):
        super().__init__()
        self.c1, self.b1 = nn.Conv2d(c, o, 3, stride, 1, bias=False), nn.BatchNorm2d(o)
        self.c2, self.b2 = nn.Conv2d(o, o, 3, 1, 1, bias=False), nn.BatchNorm2d(o)
        self.sk = nn.Identity() if c == o and stride == 1 else nn.Conv2d(c, o, 1, stride, bias=False)

    def forward(self, x):
        h = F.relu(self.b1(self.c1(x)))
        return F.relu(self.b2(self.c2(h)) + self.sk(x))

net = nn.Sequential(nn.Conv2d(3, W, 3, 1, 1), Block(W, W, 1), Block(W, 2 * W, 2), Block(2 * W, 4 * W, 2),
                    nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4 * W, 10))
net = net.to(device, memory_format=torch.channels_last)
opt = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9, nesterov=True)
for step in range(40):
    i = torch.randint(0, len(X), (B,), device=device)
    x = X[i].contiguous(memory_format=torch.channels_last)
    with torch.autocast(device, dtype=torch.bfloat16, enabled=(device == "cuda")):
        loss = F.cross_entropy(net(x), Y[i])
    opt.zero_grad(set_to_none=True)
    loss.backward()
    opt.step()
print(f"loss {loss.item():.3f}")
