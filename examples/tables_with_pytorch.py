"""Sample a table with PyTorch's DataLoader: a thread samples ahead, and the batches are tensors."""

# --8<-- [start:main]
import torch
from torch.utils.data import DataLoader

from replay_tutorial.tables import Client, Fifo, MinSize, Server, Table, TrajectoryDataset, Uniform, as_torch

table = Table("replay", sampler=Uniform(), remover=Fifo(), max_size=1_000, rate_limiter=MinSize(10))
client = Client(Server([table], {"obs": {"shape": 4}, "reward": {}}, capacity=1_100, seed=0))


def train(updates):
    dataset = TrajectoryDataset(client, "replay", batch_size=32, max_samples=32 * updates, in_flight=2)
    network = torch.nn.Linear(4, 1)
    optimizer = torch.optim.Adam(network.parameters(), lr=0.05)
    losses = []
    for sample in DataLoader(as_torch(dataset), batch_size=None):  # the dataset already returns batches
        loss = (network(sample.data["obs"])[:, 0] - sample.data["reward"]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


if __name__ == "__main__":
    torch.manual_seed(0)
    obs = torch.rand(100, 4)
    client.insert_batch(
        {"obs": obs.numpy(), "reward": obs[:, 0].numpy()}, {"replay": torch.ones(100).numpy()}
    )
    losses = train(200)
    print(f"loss {losses[0]:.3f} at first, {losses[-1]:.5f} at last")
    assert losses[-1] < losses[0] / 10
# --8<-- [end:main]
