"""A2C on a handful of cart-pole environments."""
import time
from collections import deque
import numpy as np
import torch
import torch.nn as nn
from torch.distributions import Categorical

SEED = 7
np.random.seed(SEED)
torch.manual_seed(SEED)
device = "cuda" if torch.cuda.is_available() else "cpu"


class CartPole:
    def __init__(self, seed):
        self.rng = np.random.RandomState(seed)

    def reset(self):
        self.s = self.rng.uniform(-0.05, 0.05, 4).tolist()
        self.t = 0
        return self.s

    def step(self, action):
        x, v, th, w = self.s
        force = 10.0 if action == 1 else -10.0
        c, s = np.cos(th), np.sin(th)
        tmp = (force + 0.05 * w * w * s) / 1.1
        th_acc = (9.8 * s - c * tmp) / (0.5 * (4 / 3 - 0.1 * c * c / 1.1))
        x_acc = tmp - 0.05 * th_acc * c / 1.1
        self.s = [x + 0.02 * v, v + 0.02 * x_acc, th + 0.02 * w, w + 0.02 * th_acc]
        self.t += 1
        done = abs(self.s[0]) > 2.4 or abs(self.s[2]) > 0.21 or self.t >= 300
        return self.s, 1.0, done


class ActorCritic(nn.Module):
    def __init__(self, obs_dim=4, n_actions=2, hidden=128):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(obs_dim, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh())
        self.pi = nn.Linear(hidden, n_actions)
        self.v = nn.Linear(hidden, 1)

    def forward(self, obs):
        h = self.body(obs)
        return Categorical(logits=self.pi(h)), self.v(h).squeeze(-1)


n_envs, horizon, n_updates = 16, 24, 80
gamma, lam, ent_coef, vf_coef = 0.99, 0.95, 0.01, 0.5

envs = [CartPole(SEED + i) for i in range(n_envs)]
agent = ActorCritic().to(device)
optimizer = torch.optim.RMSprop(agent.parameters(), lr=7e-4, eps=1e-5)
returns_log = deque(maxlen=50)
ep_ret = np.zeros(n_envs)

obs = np.array([e.reset() for e in envs], dtype=np.float32)
began = time.perf_counter()
for update in range(1, n_updates + 1):
    O = np.zeros((horizon, n_envs, 4), np.float32)
    A = np.zeros((horizon, n_envs), np.int64)
    R = np.zeros((horizon, n_envs), np.float32)
    D = np.zeros((horizon, n_envs), np.float32)

    # collect experience
    for t in range(horizon):
        O[t] = obs
        with torch.no_grad():
            actions = []
            for i in range(n_envs):
                dist, _ = agent(torch.from_numpy(obs[i]).to(device))
                actions.append(dist.sample().item())
        for i, env in enumerate(envs):
            o, r, done = env.step(actions[i])
            ep_ret[i] += r
            if done:
                returns_log.append(ep_ret[i])
                ep_ret[i] = 0
                o = env.reset()
            obs[i] = o
            A[t, i], R[t, i], D[t, i] = actions[i], r, done

    # one forward for the whole rollout; GAE on the host, it is tiny
    b_obs = torch.from_numpy(O).to(device)
    dist, values = agent(b_obs)
    with torch.no_grad():
        last = agent(torch.from_numpy(obs).to(device))[1].cpu().numpy()
    V = values.detach().cpu().numpy()
    adv = np.zeros_like(R)
    gae = 0.0
    for t in reversed(range(horizon)):
        nxt = last if t == horizon - 1 else V[t + 1]
        delta = R[t] + gamma * nxt * (1 - D[t]) - V[t]
        gae = delta + gamma * lam * (1 - D[t]) * gae
        adv[t] = gae
    ret = torch.from_numpy(adv + V).to(device)
    adv = torch.from_numpy((adv - adv.mean()) / (adv.std() + 1e-8)).to(device)

    pg_loss = -(dist.log_prob(torch.from_numpy(A).to(device)) * adv).mean()
    v_loss = (ret - values).pow(2).mean()
    loss = pg_loss + vf_coef * v_loss - ent_coef * dist.entropy().mean()
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
    optimizer.step()

    if update % 20 == 0:
        print(f"update {update:3d}  loss {loss.item():.3f}  mean return {np.mean(returns_log):.1f}")
print(f"wall time {time.perf_counter() - began:.2f}s")
