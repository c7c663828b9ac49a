import random, numpy as np, torch, torch.nn as nn, torch.nn.functional as F
from collections import deque

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
        self.buf = deque(maxlen=CAP)

    def add(self, s, a, r, s2, d):
        for i in range(NENV):
            self.buf.append((s[i].tolist(), int(a[i]), float(r[i]), s2[i].tolist(), float(d[i])))

    def sample(self):
        s, a, r, s2, d = zip(*random.sample(self.buf, BATCH))
        return [torch.tensor(v, device=device) for v in (s, a, r, s2, d)]

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
