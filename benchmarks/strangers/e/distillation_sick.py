# Knowledge distillation: squeeze a wide teacher into a small student (fixed training set, no augmentation)
import time
import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(11)
device = "cuda" if torch.cuda.is_available() else "cpu"

n_train, n_val, dim, n_cls = 4096, 512, 256, 20
centers = torch.randn(n_cls, dim)
y_all = torch.randint(0, n_cls, (n_train + n_val,))
x_all = centers[y_all] + 1.5 * torch.randn(n_train + n_val, dim)
x_train, y_train = x_all[:n_train].to(device), y_all[:n_train].to(device)
x_val, y_val = x_all[n_train:].to(device), y_all[n_train:].to(device)


class ResMLP(nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        self.inp = nn.Linear(dim, width)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))
            for _ in range(depth))
        self.out = nn.Linear(width, n_cls)

    def forward(self, x):
        x = self.inp(x)
        for b in self.blocks:
            x = x + b(x)
        return self.out(x)


class Distiller:
    def __init__(self, teacher, student, T=4.0, alpha=0.7, lr=1e-3):
        self.teacher, self.student = teacher.eval(), student
        for p in self.teacher.parameters():
            p.requires_grad_(False)
        self.T, self.alpha = T, alpha
        self.opt = torch.optim.Adam(student.parameters(), lr=lr)

    def kd_loss(self, s_logits, t_logits, y):
        soft = F.kl_div(F.log_softmax(s_logits / self.T, -1), F.softmax(t_logits / self.T, -1),
                        reduction="batchmean") * self.T ** 2
        return self.alpha * soft + (1 - self.alpha) * F.cross_entropy(s_logits, y)

    @torch.no_grad()
    def teach(self, x):
        return self.teacher(x)

    @torch.no_grad()
    def accuracy(self, x, y):
        self.student.eval()
        return (self.student(x).argmax(-1) == y).float().mean().item()

    def fit(self, x, y, epochs, batch_size):
        for epoch in range(epochs):
            self.student.train()
            total, nb = 0.0, 0
            for idx in torch.randperm(len(x), device=x.device).split(batch_size):
                t_logits = self.teach(x[idx])
                s_logits = self.student(x[idx])
                loss = self.kd_loss(s_logits, t_logits, y[idx])
                self.opt.zero_grad()
                loss.backward()
                self.opt.step()
                total, nb = total + loss.detach(), nb + 1
            print(f"epoch {epoch}: kd loss {float(total) / nb:.4f}, val acc {self.accuracy(x_val, y_val):.3f}")


teacher = ResMLP(width=768, depth=3).to(device)
# warm the teacher's head up a little (stands for loading the real checkpoint)
with torch.no_grad():
    feats = teacher.inp(x_train)
    for b in teacher.blocks:
        feats = feats + b(feats)
    sol = torch.linalg.lstsq(feats.cpu(), F.one_hot(y_train.cpu(), n_cls).float() * 8).solution
    teacher.out.weight.copy_(sol.T)
    teacher.out.bias.zero_()

student = ResMLP(width=192, depth=2).to(device)
distiller = Distiller(teacher, student)
start = time.time()
distiller.fit(x_train, y_train, epochs=10, batch_size=128)
print(f"distillation took {time.time() - start:.2f} s")
