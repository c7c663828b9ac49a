# /// truth
# class = "host"
# causes = ["slow-python"]
# holdout = true
# why = "Metrics are worked out in Python for every sample in every step."
# ///

# %%
import torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset

torch.set_num_threads(1)
torch.manual_seed(0)
X, Y = torch.randn(9600, 784), torch.randint(0, 10, (9600,))
train = TensorDataset(X, Y)
loader = DataLoader(train, batch_size=None, sampler=BatchSampler(RandomSampler(train), 64, True))
model = nn.Sequential(nn.Linear(784, 1024), nn.ReLU(), nn.Linear(1024, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
criterion = nn.CrossEntropyLoss()

# %% diagnosed
matrix = [[0] * 10 for _ in range(10)]
history = []
for step, (x, y) in enumerate(loader):
    optimizer.zero_grad()
    logits = model(x)
    loss = criterion(logits, y)
    loss.backward()
    optimizer.step()

    # metrics
    guess = logits.argmax(1).numpy()
    for g, t in zip(guess, y.numpy()):
        matrix[t][g] += 1
    scores = []
    for k in range(10):
        tp = matrix[k][k]
        fp = sum(matrix[j][k] for j in range(10)) - tp
        fn = sum(matrix[k]) - tp
        scores.append(2 * tp / max(2 * tp + fp + fn, 1))
    ranked = sorted((float(v) for row in logits.detach().numpy() for v in row), reverse=True)
    for cut in range(0, len(ranked), 2):
        sum(v >= ranked[cut] for v in ranked[:100])
    history.append((step, loss.item(), sum(scores) / 10))
