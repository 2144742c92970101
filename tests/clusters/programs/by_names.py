"""A script with Horovod's names, for starters that know nothing of the library."""

import os
import sys

from tests.clusters.programs.network import batches, check, loss_of, network, optimizer_of

import bireme.horovod.torch as hvd


def main():
    hvd.init()
    place = f"{hvd.rank()} of {hvd.size()}, {hvd.local_rank()} of {hvd.local_size()}"
    sys.stdout.write(f"{place} on {os.uname().nodename}\n")
    sys.stdout.flush()
    net = network()
    optimizer = hvd.DistributedOptimizer(optimizer_of(net), net.named_parameters())
    hvd.broadcast_parameters(net.state_dict(), root_rank=0)
    for images, labels in batches(hvd.rank(), hvd.size()):
        optimizer.zero_grad()
        loss_of(net, images, labels).backward()
        optimizer.step()
    check(net, hvd.rank())
    hvd.shutdown()


if __name__ == "__main__":
    main()
