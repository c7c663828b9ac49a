import random, numpy as np, torch, torch.nn as nn, torch.nn.functional as F

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0); np.random.seed(0); random.seed(0)
OBS, ACT, NENV, BATCH, CAP = (2, 32, 32), 6, 8, 64, 4000

class VecEnv:
    """a cheap vectorised pixel environment"""
    def reset(self):
        self.s = np.random.rand(NENV, *OBS).astype(np.float32)
        return self.s

    def step(self, a):
        self.s = np.roll(self.s, 1, axis=-1) * 0.99
        r = np.cos(a).astype(np.float32)
        return self.s, r, np.random.rand(NENV) < 0.01

class Replay:
    def __init__(self):
        self.s, self.s2 = np.zeros((CAP, *OBS), np.float32), np.zeros((CAP, *OBS), np.float32)
        self.a, self.r, self.d = np.zeros(CAP, np.int64), np.zeros(CAP, np.float32), np.zeros(CAP, np.float32)
        self.n = 0

    def add(self, s, a, r, s2, d):
        k = np.arange(self.n, self.n + NENV) % CAP
        self.s[k], self.a[k], self.r[k], self.s2[k], self.d[k] = s, a, r, s2, d
        self.n += NENV

    def sample(self):
        k = np.random.randint(0, min(self.n, CAP), BATCH)
        return [torch.from_numpy(v[k]).to(device) for v in (self.s, self.a, self.r, self.s2, self.d)]

def qnet():
    return nn.Sequential(nn.Conv2d(2, 16, 5, 2), nn.ReLU(), nn.Conv2d(16, 32, 3, 2), nn.ReLU(),
                         nn.Flatten(), nn.Linear(32 * 6 * 6, 128), nn.ReLU(), nn.Linear(128, ACT)).to(device)

q, target = qnet(), qnet()
target.load_state_dict(q.state_dict())
opt = torch.optim.Adam(q.parameters(), lr=1e-4)
env, replay = VecEnv(), Replay()
obs = env.reset()
for t in range(120):
    with torch.no_grad():
        a = q(torch.from_numpy(obs).to(device)).argmax(1).cpu().numpy()
    a = np.where(np.random.rand(NENV) < 0.1, np.random.randint(0, ACT, NENV), a)
    nxt, r, d = env.step(a)
    replay.add(obs, a, r, nxt, d)
    obs = nxt
    if t < 20:
        continue
    s, a, r, s2, d = replay.sample()
    with torch.no_grad():
        y = r + 0.99 * (1 - d) * target(s2).max(1).values
    loss = F.smooth_l1_loss(q(s).gather(1, a[:, None]).squeeze(1), y)
    opt.zero_grad(set_to_none=True)
    loss.backward()
    opt.step()
    if t % 50 == 0:
        target.load_state_dict(q.state_dict())
print(f"td loss {loss.item():.4f}")
