"""DQN on 96 parallel cart-poles (numpy dynamics)."""
import copy, math, time
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
rng = np.random.default_rng(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
N_ENV, UPDATES, TRAIN_FREQ, BATCH, GAMMA = 96, 250, 4, 128, 0.99


class CartPoles:
    def __init__(self, n):
        self.n = n
        self.s = rng.uniform(-0.05, 0.05, (n, 4))

    def step(self, a):
        x, xd, th, thd = self.s.T
        force = np.where(a == 1, 10.0, -10.0)
        c, s = np.cos(th), np.sin(th)
        tmp = (force + 0.05 * thd ** 2 * s) / 1.1
        thacc = (9.8 * s - c * tmp) / (0.5 * (4 / 3 - 0.1 * c ** 2 / 1.1))
        xacc = tmp - 0.05 * thacc * c / 1.1
        nxt = np.stack([x + 0.02 * xd, xd + 0.02 * xacc, th + 0.02 * thd, thd + 0.02 * thacc], 1)
        done = (np.abs(nxt[:, 0]) > 2.4) | (np.abs(nxt[:, 2]) > 12 * math.pi / 180)
        self.s = np.where(done[:, None], rng.uniform(-0.05, 0.05, (self.n, 4)), nxt)
        return nxt, done


class Replay:
    def __init__(self, size):
        self.size, self.at, self.full = size, 0, 0
        self.s, self.s2 = np.zeros((size, 4), np.float32), np.zeros((size, 4), np.float32)
        self.a, self.d = np.zeros(size, np.int64), np.zeros(size, np.float32)

    def add(self, s, a, s2, d):
        idx = (self.at + np.arange(len(a))) % self.size
        self.s[idx], self.a[idx], self.s2[idx], self.d[idx] = s, a, s2, d
        self.at = (self.at + len(a)) % self.size
        self.full = min(self.full + len(a), self.size)

    def sample(self, n):
        idx = rng.integers(0, self.full, n)
        return [torch.from_numpy(v[idx]).to(device) for v in (self.s, self.a, self.s2, self.d)]


def select_actions(net, obs, eps):
    with torch.no_grad():
        q = net(torch.as_tensor(obs, dtype=torch.float32, device=device))
        greedy = q.argmax(1).cpu().numpy()
    explore = rng.random(len(obs)) < eps
    return np.where(explore, rng.integers(0, 2, len(obs)), greedy)


q_net = nn.Sequential(nn.Linear(4, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 2)).to(device)
target = copy.deepcopy(q_net)
opt = torch.optim.Adam(q_net.parameters(), 1e-3)
envs, replay = CartPoles(N_ENV), Replay(50_000)

t0 = time.time()
falls = 0
for update in range(UPDATES):
    eps = max(0.05, 1 - update / 150)
    for _ in range(TRAIN_FREQ):
        obs = envs.s.copy()
        act = select_actions(q_net, obs, eps)
        nxt, done = envs.step(act)
        replay.add(obs, act, nxt, done)
        falls += int(done.sum())

    s, a, s2, d = replay.sample(BATCH)
    with torch.no_grad():
        y = 1 + GAMMA * (1 - d) * target(s2).max(1).values
    loss = F.smooth_l1_loss(q_net(s).gather(1, a[:, None])[:, 0], y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if update % 25 == 0:
        target.load_state_dict(q_net.state_dict())
        print(f"update {update} loss {loss.item():.4f} falls {falls}")
        falls = 0
print(f"training took {time.time() - t0:.2f}s")
