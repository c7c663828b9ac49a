"""A2C on a home-made CartPole, 16 environments."""
import math
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
rng = np.random.default_rng(0)
device = "cuda" if torch.cuda.is_available() else "cpu"

N_ENVS, ROLLOUT, UPDATES, GAMMA = 16, 32, 90, 0.99


class CartPole:
    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    def reset(self):
        self.s = self.rng.uniform(-0.05, 0.05, 4).tolist()
        self.t = 0
        return self.s

    def step(self, action):
        x, v, th, w = self.s
        force = 10.0 if action == 1 else -10.0
        c, s = math.cos(th), math.sin(th)
        tmp = (force + 0.05 * w * w * s) / 1.1
        acc_th = (9.8 * s - c * tmp) / (0.5 * (4 / 3 - 0.1 * c * c / 1.1))
        acc = tmp - 0.05 * acc_th * c / 1.1
        self.s = [x + 0.02 * v, v + 0.02 * acc, th + 0.02 * w, w + 0.02 * acc_th]
        self.t += 1
        done = abs(self.s[0]) > 2.4 or abs(self.s[2]) > 0.21 or self.t >= 200
        return self.s, 1.0, done


class ActorCritic(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh())
        self.pi = nn.Linear(64, 2)
        self.v = nn.Linear(64, 1)

    def forward(self, x):
        h = self.body(x)
        return self.pi(h), self.v(h).squeeze(-1)


def choose_actions(model, observations):
    u = rng.random(len(observations))
    actions = []
    with torch.no_grad():
        for ob, ui in zip(observations, u):
            x = torch.as_tensor(ob, dtype=torch.float32, device=device).unsqueeze(0)
            logits, _ = model(x)
            p = logits.softmax(-1)[0, 1].item()
            actions.append(int(ui < p))
    return actions


envs = [CartPole(i) for i in range(N_ENVS)]
model = ActorCritic().to(device)
opt = torch.optim.Adam(model.parameters(), lr=3e-3)
obs = [e.reset() for e in envs]
lengths = []

start = time.time()
for update in range(1, UPDATES + 1):
    b_obs, b_act, b_rew, b_done = [], [], [], []
    for t in range(ROLLOUT):
        actions = choose_actions(model, obs)
        b_obs.append(obs)
        b_act.append(actions)
        nxt, rew, done = [], [], []
        for env, a in zip(envs, actions):
            o, r, d = env.step(a)
            if d:
                lengths.append(env.t)
                o = env.reset()
            nxt.append(o)
            rew.append(r)
            done.append(float(d))
        obs = nxt
        b_rew.append(rew)
        b_done.append(done)

    t_obs = torch.tensor(b_obs + [obs], dtype=torch.float32).to(device)
    t_act = torch.tensor(b_act).to(device)
    logits, values = model(t_obs)
    ret = values[-1].detach().cpu().numpy()
    returns = np.zeros((ROLLOUT, N_ENVS), dtype=np.float32)
    rew, done = np.array(b_rew), np.array(b_done)
    for t in reversed(range(ROLLOUT)):
        ret = rew[t] + GAMMA * ret * (1 - done[t])
        returns[t] = ret
    returns = torch.from_numpy(returns).to(device)

    logp = logits[:-1].log_softmax(-1)
    adv = (returns - values[:-1]).detach()
    adv = (adv - adv.mean()) / (adv.std() + 1e-8)
    pg = -(logp.gather(-1, t_act.unsqueeze(-1)).squeeze(-1) * adv).mean()
    v_loss = F.smooth_l1_loss(values[:-1], returns)
    ent = -(logp.exp() * logp).sum(-1).mean()
    loss = pg + 0.5 * v_loss - 0.01 * ent
    opt.zero_grad(set_to_none=True)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    opt.step()
    if update % 10 == 0:
        print(f"update {update}: mean episode length {np.mean(lengths[-50:]):.1f}")
print(f"train time {time.time() - start:.2f}s")
