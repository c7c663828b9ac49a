# /// truth
# class = "compute"
# never = ["launch-bound"]
# why = "A small head on a frozen encoder, whose operations are long enough to compute."
# ///

# %%
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)

LENGTH = 1200
texts = TensorDataset(torch.randint(0, 500, (LENGTH, 64)), torch.randint(0, 4, (LENGTH,)))


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(500, 128)
        self.encoder = nn.TransformerEncoderLayer(128, 4, 256, dropout=0.0, batch_first=True)
        self.head = nn.Linear(128, 4)

    def forward(self, x):
        with torch.no_grad():
            features = self.encoder(self.embed(x)).mean(1)
        return self.head(features)


model = Classifier()
opt = torch.optim.SGD(model.head.parameters(), lr=0.01)
lossf = nn.CrossEntropyLoss()

# %% diagnosed
loader = DataLoader(texts, batch_size=8, shuffle=True)
for x, y in loader:
    opt.zero_grad()
    loss = lossf(model(x), y)
    loss.backward()
    opt.step()
