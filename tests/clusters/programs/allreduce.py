"""A job of workers only, with torch.distributed as it comes, that learns to read digits."""

import torch
import torch.distributed as dist
from tests.clusters.programs.network import batches, check, loss_of, network, optimizer_of


def main():
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    net = torch.nn.parallel.DistributedDataParallel(network())
    optimizer = optimizer_of(net)
    for images, labels in batches(rank, size):
        optimizer.zero_grad()
        loss_of(net, images, labels).backward()
        optimizer.step()
    check(net, rank)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
