"""Two workers train one model on what prepare.py wrote: each sums its gradients with the other's."""

import torch
import torch.nn.functional as F
from torch import nn

import trek.compat.twister2deepnet.deepnet.torch.distributed as dist
from trek.compat.twister2deepnet.deepnet.data.DataUtil import DataUtil
from trek.compat.twister2deepnet.deepnet.io.ArrowUtils import ArrowUtils

dist.init_process_group("mpi")
rank, size = dist.get_rank(), dist.get_world_size()

rows = ArrowUtils.read_from_table(f"digits/{rank}.parquet").to_numpy()
batches = DataUtil.generate_minibatches(rows, 32)
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

for _ in range(10):
    for batch in batches:
        optimizer.zero_grad()
        F.cross_entropy(model(batch[:, :64]), batch[:, 64].long()).backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
            parameter.grad /= size
        optimizer.step()

own = batches.reshape(-1, 65)
right = (model(own[:, :64]).argmax(1) == own[:, 64]).float().mean()
dist.all_reduce(right)
if rank == 0:
    print(f"accuracy: {right.item() / size:.3f}")
dist.destroy_process_group()
