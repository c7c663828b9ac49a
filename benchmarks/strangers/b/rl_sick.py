import numpy as np, torch, torch.nn as nn, torch.nn.functional as F

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0); np.random.seed(0)
NENV, OBS, ACT, HORIZON = 32, 24, 4, 16

class Env:
    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.obs = self.rng.standard_normal(OBS, dtype=np.float32)

    def step(self, a):
        self.obs = 0.9 * self.obs + 0.1 * self.rng.standard_normal(OBS, dtype=np.float32)
        return self.obs, float(self.obs[a])

class ActorCritic(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(OBS, 128), nn.Tanh(), nn.Linear(128, 128), nn.Tanh())
        self.pi, self.v = nn.Linear(128, ACT), nn.Linear(128, 1)

    def forward(self, x):
        h = self.body(x)
        return self.pi(h), self.v(h).squeeze(-1)

envs = [Env(i) for i in range(NENV)]
ac = ActorCritic().to(device)
opt = torch.optim.Adam(ac.parameters(), lr=3e-4)

@torch.no_grad()
def act(obs):
    logits, v = ac(torch.as_tensor(obs, device=device))
    a = torch.multinomial(logits.softmax(-1), 1).squeeze(-1)
    logp = logits.log_softmax(-1).gather(-1, a[:, None]).squeeze(-1)
    return a.cpu().numpy(), logp.cpu().numpy(), v.cpu().numpy()

for update in range(35):
    S_, A_, L_, V_, R_ = [np.zeros((HORIZON, NENV) + k, d) for k, d in
                          (((OBS,), np.float32), ((), np.int64), ((), np.float32), ((), np.float32), ((), np.float32))]
    for t in range(HORIZON):
        for i, env in enumerate(envs):
            S_[t, i] = env.obs
            a, logp, v = act(env.obs[None])
            A_[t, i], L_[t, i], V_[t, i] = a[0], logp[0], v[0]
            _, R_[t, i] = env.step(a[0])
    ret, g = np.zeros_like(R_), V_[-1]
    for t in reversed(range(HORIZON)):
        g = ret[t] = R_[t] + 0.99 * g
    s, a, l, r, adv = [torch.as_tensor(v.reshape(-1, *v.shape[2:]), device=device) for v in (S_, A_, L_, ret, ret - V_)]
    adv = (adv - adv.mean()) / (adv.std() + 1e-8)
    for _ in range(4):
        logits, v = ac(s)
        lp = logits.log_softmax(-1)
        ratio = (lp.gather(1, a[:, None]).squeeze(1) - l).exp()
        pg = -torch.min(ratio * adv, ratio.clamp(0.8, 1.2) * adv).mean()
        loss = pg + 0.5 * F.mse_loss(v, r) + 0.01 * (lp.exp() * lp).sum(1).mean()
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
print(f"loss {loss.item():.3f} reward {R_.mean():.3f}")
