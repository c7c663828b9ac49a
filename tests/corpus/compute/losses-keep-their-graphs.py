# /// truth
# class = "compute"
# causes = ["memory-growth"]
# holdout = true
# why = "Outputs and losses are kept with their graphs, so that the memory grows."
# ///

# %%
import torch
from torch import nn

torch.set_num_threads(1)
model = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 21, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
images = [(torch.rand(4, 3, 80, 80), torch.randint(0, 21, (4, 80, 80))) for _ in range(12)]

# %% diagnosed
outputs, losses = [], []
for epoch in range(150):  # some seconds: memory is read about once a second on two cores
    for image, mask in images:
        logits = model(image)
        loss = nn.functional.cross_entropy(logits, mask)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        outputs.append(logits)  # for the metrics at the end
        losses.append(loss)
mean = torch.stack(losses).mean().item()
