# /// truth
# class = "compute"
# why = "A model of one weight is trained on all the data at once."
# ///

# %%
import torch

x = torch.linspace(-1, 1, 200).unsqueeze(1)
y = 3 * x + 0.5 + 0.1 * torch.randn_like(x)
model = torch.nn.Linear(1, 1)
loss_fn = torch.nn.MSELoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

# %% diagnosed
torch.set_num_threads(1)
for epoch in range(2000):
    y_pred = model(x)
    loss = loss_fn(y_pred, y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if epoch % 500 == 0:
        print(f"Epoch {epoch}, loss {loss.item():.4f}")
