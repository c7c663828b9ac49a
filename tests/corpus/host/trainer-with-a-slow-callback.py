# /// truth
# class = "host"
# causes = ["slow-python"]
# holdout = true
# why = "A callback of the user's trainer draws the curve so far as text after every step."
# ///

# %%
import torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset

torch.set_num_threads(1)
torch.manual_seed(0)
X, Y = torch.randn(2560, 784), torch.randint(0, 10, (2560,))
train = TensorDataset(X, Y)
loader = DataLoader(train, batch_size=None, sampler=BatchSampler(RandomSampler(train), 64, True))
model = nn.Sequential(nn.Linear(784, 1024), nn.ReLU(), nn.Linear(1024, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
criterion = nn.CrossEntropyLoss()


class Callback:
    def on_step_end(self, trainer):
        pass


class Sparkline(Callback):
    # draws the curve so far as text, after every step
    def on_step_end(self, trainer):
        low, high = min(trainer.losses), max(trainer.losses) + 1e-9
        rows = []
        for level in range(30):
            row = ""
            for column in range(240):
                at = trainer.losses[column * len(trainer.losses) // 240]
                row += "#" if (at - low) / (high - low) * 30 >= level else " "
            rows.append(row)
        self.text = chr(10).join(reversed(rows))


class Trainer:
    def __init__(self, model, optimizer, loss_fn, callbacks=()):
        self.model, self.optimizer, self.loss_fn, self.callbacks = model, optimizer, loss_fn, callbacks
        self.losses = []

    def training_step(self, batch):
        x, y = batch
        return self.loss_fn(self.model(x), y)

    def fit(self, loader, epochs):
        for epoch in range(epochs):
            for batch in loader:
                self.optimizer.zero_grad()
                loss = self.training_step(batch)
                loss.backward()
                self.optimizer.step()
                self.losses.append(loss.item())
                for callback in self.callbacks:
                    callback.on_step_end(self)


# %% diagnosed
trainer = Trainer(model, optimizer, criterion, callbacks=[Sparkline()])
trainer.fit(loader, epochs=4)
