"""A job with servers that learns to read digits."""

from tests.clusters.programs.network import batches, check, loss_of, network, optimizer_of

import bireme


def main():
    with bireme.kvstore.create("dist_sync") as store:
        net = network()
        optimizer = optimizer_of(net)
        trainer = bireme.Trainer(net, optimizer, kvstore=store)
        for images, labels in batches(store.rank, store.num_workers):
            optimizer.zero_grad()
            loss_of(net, images, labels).backward()
            trainer.step()
        check(net, store.rank)
        store.barrier()


if __name__ == "__main__":
    main()
