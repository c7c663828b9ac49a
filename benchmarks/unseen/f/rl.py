# /// truth
# class = "host"
# causes = ["slow-python", "slow-generator"]
# timed = "whole"
# unseen = true
# author_class = "host"
# author_gain = 2.0
# why = """\
# Prioritised replay raises, normalises and cumulates the priorities of the whole buffer (hundreds of thousands of \
# entries) for every sampled minibatch (np.random.choice with p=)."""
# cure = "Keep the priorities in a sum tree: sampling and updating cost O(log n) per transition."
# ///

# %% diagnosed
"""Double DQN with prioritised replay on a batch of cart-poles."""

import copy
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

device = "cuda" if torch.cuda.is_available() else "cpu"


class CartPoles:
    """A numpy cart-pole, several of them at once."""

    def __init__(self, n, rng):
        self.n, self.rng = n, rng
        self.state = self._fresh(n)
        self.age = np.zeros(n, dtype=np.int64)

    def _fresh(self, n):
        return self.rng.uniform(-0.05, 0.05, size=(n, 4))

    def step(self, action):
        x, v, th, om = self.state.T
        force = np.where(action == 1, 10.0, -10.0)
        sin, cos = np.sin(th), np.cos(th)
        tmp = (force + 0.05 * om**2 * sin) / 1.1
        acc_th = (9.8 * sin - cos * tmp) / (0.5 * (4 / 3 - 0.1 * cos**2 / 1.1))
        acc_x = tmp - 0.05 * acc_th * cos / 1.1
        nxt = np.stack([x + 0.02 * v, v + 0.02 * acc_x, th + 0.02 * om, om + 0.02 * acc_th], 1)
        self.age += 1
        done = (np.abs(nxt[:, 0]) > 2.4) | (np.abs(nxt[:, 2]) > 0.21)
        reset = done | (self.age >= 500)
        self.state = np.where(reset[:, None], self._fresh(self.n), nxt)
        self.age[reset] = 0
        return nxt.astype(np.float32), np.ones(self.n, np.float32), done.astype(np.float32)


class PrioritisedReplay:
    def __init__(self, capacity, rng, alpha=0.6, eps=1e-3):
        self.capacity, self.rng, self.alpha, self.eps = capacity, rng, alpha, eps
        self.obs = np.zeros((capacity, 4), np.float32)
        self.nxt = np.zeros((capacity, 4), np.float32)
        self.act = np.zeros(capacity, np.int64)
        self.rew = np.zeros(capacity, np.float32)
        self.done = np.zeros(capacity, np.float32)
        self.priority = np.zeros(capacity)
        self.max_priority = 1.0
        self.pos = self.size = 0

    def add(self, obs, act, rew, nxt, done):
        idx = (self.pos + np.arange(len(act))) % self.capacity
        self.obs[idx], self.act[idx], self.rew[idx] = obs, act, rew
        self.nxt[idx], self.done[idx] = nxt, done
        self.priority[idx] = self.max_priority
        self.pos = (self.pos + len(act)) % self.capacity
        self.size = min(self.size + len(act), self.capacity)

    def sample(self, batch, beta):
        p = self.priority[: self.size] ** self.alpha
        p /= p.sum()
        idx = self.rng.choice(self.size, size=batch, p=p)
        weight = (self.size * p[idx]) ** -beta
        cols = (self.obs, self.act, self.rew, self.nxt, self.done, (weight / weight.max()).astype(np.float32))
        picked = [c[idx] for c in cols[:-1]] + [cols[-1]]
        return idx, [torch.from_numpy(c).to(device) for c in picked]

    def update(self, idx, td_error):
        self.priority[idx] = np.abs(td_error) + self.eps
        self.max_priority = max(self.max_priority, float(self.priority[idx].max()))


def q_network(hidden=128):
    return nn.Sequential(nn.Linear(4, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, 2))


def learn(online, target, optimizer, replay, batch, beta, gamma=0.99):
    idx, (obs, act, rew, nxt, done, weight) = replay.sample(batch, beta)
    with torch.no_grad():
        best = online(nxt).argmax(1, keepdim=True)
        goal = rew + gamma * (1 - done) * target(nxt).gather(1, best).squeeze(1)
    q = online(obs).gather(1, act[:, None]).squeeze(1)
    loss = (weight * F.smooth_l1_loss(q, goal, reduction="none")).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    replay.update(idx, (goal - q.detach()).cpu().numpy())
    return loss.detach()


def main(steps=2500, batch=256, envs=16, warmup=200_000):
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    env, replay = CartPoles(envs, rng), PrioritisedReplay(262_144, rng)
    online = q_network().to(device)
    target = copy.deepcopy(online)
    optimizer = torch.optim.Adam(online.parameters(), lr=5e-4)

    while replay.size < warmup:  # random play before learning starts
        obs, act = env.state.astype(np.float32), rng.integers(0, 2, envs)
        nxt, rew, done = env.step(act)
        replay.add(obs, act, rew, nxt, done)

    start = time.perf_counter()
    for step in range(steps):
        obs = env.state.astype(np.float32)
        with torch.no_grad():
            greedy = online(torch.from_numpy(obs).to(device)).argmax(1).cpu().numpy()
        epsilon = max(0.05, 1 - step / 1500)
        act = np.where(rng.random(envs) < epsilon, rng.integers(0, 2, envs), greedy)
        nxt, rew, done = env.step(act)
        replay.add(obs, act, rew, nxt, done)
        loss = learn(online, target, optimizer, replay, batch, beta=0.4 + 0.6 * step / steps)
        if step % 200 == 0:
            target.load_state_dict(online.state_dict())
            print(f"step {step} loss {loss.item():.4f} mean age {env.age.mean():.1f}")
    elapsed = time.perf_counter() - start
    print(f"steps={steps} seconds={elapsed:.2f}")
    print(f"samples_per_s={steps * batch / elapsed:.1f}")


if __name__ == "__main__":
    main()
