"""What the image examples share: their options, their loaders, and the call of ``Module.fit``.

The options carry the names and meanings of MXNet's image-classification examples.
"""

import argparse
import dataclasses
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import LRScheduler, MultiStepLR
from torch.utils.data import DataLoader, Dataset

import bireme
import networks
import options
from bireme.data import BalancedBatchSampler, LabelledImages, ShardSampler
from bireme.errors import ConfigError

__all__ = ("Images", "add_options", "fit", "synthetic")

_EVAL_BATCH = 500


class Images(Dataset[tuple[Tensor, Tensor]]):
    """Fetches a whole batch at once; pixels become numbers in [0, 1] of type ``dtype``."""

    def __init__(self, data: LabelledImages, dtype: torch.dtype) -> None:
        self.images = torch.from_numpy(data.images)
        self.labels = torch.from_numpy(data.labels)
        self.dtype = dtype

    def __len__(self) -> int:
        return len(self.labels)

    def __getitems__(self, indices: list[int]) -> tuple[Tensor, Tensor]:
        images = self.images[indices]
        scale = 255 if images.dtype == torch.uint8 else 1
        return images.to(self.dtype) / scale, self.labels[indices]

    def loader(self, batch_size: int, sampler: ShardSampler | None = None) -> DataLoader[Any]:
        return DataLoader(self, batch_size, sampler=sampler, collate_fn=lambda batch: batch)


def add_options(parser: argparse.ArgumentParser, **defaults: Any) -> None:
    """Add the options of all image examples; ``defaults`` overrides their defaults."""
    add = parser.add_argument
    add("--data-dir", metavar="DIR", help="holds the data set's files")
    add("--num-examples", type=options.positive_int, metavar="N", help="train on so many only")
    add("--benchmark", type=int, choices=(0, 1), default=0, help="1: random images, for speed")
    options.add_contexts(parser)
    add(
        "--work-load-list",
        metavar="3,1",
        help="shares of each batch, or auto: the workers' if there are several, else the contexts'",
    )
    add("--kv-store", default="device", metavar="TYPE", help="type of the store")
    add("--staleness", type=options.natural_int, metavar="S", help="of dist_bounded")
    add("--local-steps", type=options.positive_int, metavar="H", help="of dist_local")
    add("--outer", choices=("average", "nesterov", "elastic"), help="of dist_local")
    add("--fragments", type=options.positive_int, metavar="N", help="of dist_local")
    add("--delay", type=options.natural_int, metavar="STEPS", help="of dist_local")
    add("--batch-size", type=options.positive_int, default=128, metavar="N", help="all contexts'")
    add("--num-epochs", type=options.positive_int, default=10, metavar="N")
    add("--optimizer", default="sgd", metavar="NAME", help="a class of torch.optim: sgd, adam ...")
    add("--lr", type=options.positive_float, default=0.1)
    add("--lr-factor", type=options.positive_float, default=0.1, help="of each step down")
    add("--lr-step-epochs", type=options.increasing_ints, default=[], metavar="30,60")
    add("--mom", type=options.natural_float, help="momentum; 0.9 for sgd and rmsprop")
    add("--wd", type=options.natural_float, help="weight decay; 1e-4 where there is one")
    add("--gc-type", default="none", choices=("none", "2bit", "1bit", "fp16", "bf16"))
    add("--gc-threshold", type=float, help="of 2bit and 1bit")
    add(
        "--dtype",
        default="float32",
        choices=("float32", "float64", "float16", "bfloat16"),
        help="bfloat16 is mixed precision; the others are the type of everything",
    )
    add("--model-prefix", metavar="PREFIX", help="save checkpoints under names that begin so")
    add("--save-period", type=options.positive_int, default=1, metavar="EPOCHS")
    add("--load-epoch", type=options.natural_int, metavar="N", help="go on from a checkpoint")
    add("--disp-batches", type=options.positive_int, default=20, metavar="N", help="log every N")
    add("--seed", type=options.natural_int, default=0)
    parser.set_defaults(**defaults)


def synthetic(args: argparse.Namespace, shape: networks.Shape) -> tuple[LabelledImages, ...]:
    """Return random images with random labels, for training and for testing.

    Raises:
        ConfigError: Real data was asked for too.
    """
    if args.data_dir is not None:
        raise ConfigError("--benchmark 1 makes its own images; leave out --data-dir")
    rng = np.random.default_rng(args.seed)
    counts = (args.num_examples or 50 * args.batch_size, args.batch_size)
    return tuple(
        LabelledImages(rng.integers(0, 256, (n, *shape), np.uint8), rng.integers(0, 10, n))
        for n in counts
    )


def fit(args: argparse.Namespace, train: LabelledImages, test: LabelledImages) -> None:
    """Train ``args.network`` as ``args`` says, and print each epoch's accuracy on ``test``."""
    if args.num_examples is not None:
        count = args.num_examples
        train = dataclasses.replace(train, images=train.images[:count], labels=train.labels[:count])
    torch.manual_seed(args.seed)
    num_classes = max(10, 1 + int(train.labels.max()), 1 + int(test.labels.max()))
    dtype = torch.float32 if args.dtype == "bfloat16" else getattr(torch, args.dtype)
    net = networks.BUILDERS[args.network](train.images.shape[1:], num_classes).to(dtype)
    with bireme.kvstore.create(args.kv_store, **_store_options(args)) as store:
        of_workers, of_contexts = _work_loads(args, store)
        module = _module(args, net, of_contexts)
        print(
            f"{args.network} on {', '.join(map(str, module.context))}: "
            f"{len(train)} images to train, {len(test)} to test",
            flush=True,
        )
        loader = _loader(args, Images(train, dtype), store, of_workers)
        module.fit(
            loader,
            eval_data=Images(test, dtype).loader(_EVAL_BATCH),
            num_epoch=args.num_epochs,
            kvstore=store,
            optimizer=args.optimizer,
            optimizer_params=_optimizer_params(args),
            lr_scheduler=_scheduler(args),
            batch_end_callback=bireme.callbacks.Speedometer(args.batch_size, args.disp_batches),
            epoch_end_callback=[_report, *_shares(loader), *_checkpoint(args, store.rank)],
        )


def _store_options(args: argparse.Namespace) -> dict[str, object]:
    wishes = {
        "every": args.local_steps,
        "outer": args.outer,
        "fragments": args.fragments,
        "delay": args.delay,
    }
    local = {name: value for name, value in wishes.items() if value is not None}
    found: dict[str, object] = {"local": bireme.LocalSteps(**local)} if local else {}
    return found if args.staleness is None else {**found, "staleness": args.staleness}


def _work_loads(args: argparse.Namespace, store: Any) -> tuple[Any, Any]:
    """Return what --work-load-list says of workers and of the contexts in each.

    Raises:
        ConfigError: It may mean both.
    """
    loads = options.work_loads(args.work_load_list)
    shares_batches = store.meets_in_rounds and not store.type.startswith("dist_local")
    if store.num_workers == 1 or not shares_batches:
        return None, loads
    num_contexts = len(options.contexts(args))
    if not isinstance(loads, list):
        return loads, loads if num_contexts > 1 else None
    if len(loads) == store.num_workers == num_contexts:
        raise ConfigError(
            f"--work-load-list {args.work_load_list} may mean the {store.num_workers} workers or "
            f"the {num_contexts} contexts of each; use auto, or another number of contexts"
        )
    return (None, loads) if len(loads) == num_contexts > 1 else (loads, None)


def _loader(args: argparse.Namespace, data: Images, store: Any, loads: Any) -> DataLoader[Any]:
    """Return this worker's part of the data: batches of equal size, or of shared-out ones."""
    size, count = args.batch_size, store.num_workers
    if loads is None:
        sampler = ShardSampler(len(data), count, store.rank, seed=args.seed)
        return data.loader(size, sampler)
    balanced = BalancedBatchSampler(
        len(data), size * count, count, store.rank, work_load_list=loads, seed=args.seed
    )
    return DataLoader(data, batch_sampler=balanced, collate_fn=lambda batch: batch)


def _module(args: argparse.Namespace, net: nn.Module, work_loads: Any) -> bireme.Module:
    settings: Any = {
        "loss": nn.functional.cross_entropy,
        "context": options.contexts(args),
        "work_load_list": work_loads,
        "compression": _compression(args),
        "amp_dtype": torch.bfloat16 if args.dtype == "bfloat16" else None,
    }
    if args.load_epoch is None:
        return bireme.Module(net, **settings)
    if args.model_prefix is None:
        raise ConfigError("--load-epoch needs --model-prefix, the checkpoint's name")
    if args.load_epoch >= args.num_epochs:
        raise ConfigError(
            f"--load-epoch {args.load_epoch} leaves nothing to do before --num-epochs "
            f"{args.num_epochs}, which counts from the beginning"
        )
    return bireme.Module.load(args.model_prefix, args.load_epoch, net, **settings)


def _compression(args: argparse.Namespace) -> dict[str, object] | None:
    if args.gc_threshold is not None and args.gc_type not in ("1bit", "2bit"):
        raise ConfigError(f"--gc-threshold means nothing to --gc-type {args.gc_type}")
    if args.gc_type == "none":
        return None
    threshold = {} if args.gc_threshold is None else {"threshold": args.gc_threshold}
    return {"type": args.gc_type, **threshold}


def _optimizer_params(args: argparse.Namespace) -> dict[str, float]:
    name = args.optimizer.lower()
    params = {"lr": args.lr}
    if name not in ("rprop", "sparseadam"):
        params["weight_decay"] = 1e-4
    if name in ("sgd", "rmsprop"):
        params["momentum"] = 0.9
    given = {"momentum": args.mom, "weight_decay": args.wd}
    return params | {name: value for name, value in given.items() if value is not None}


def _scheduler(args: argparse.Namespace) -> Any:
    if not args.lr_step_epochs:
        return None

    def make(optimizer: torch.optim.Optimizer) -> LRScheduler:
        return MultiStepLR(optimizer, args.lr_step_epochs, args.lr_factor)

    return make


def _checkpoint(args: argparse.Namespace, rank: int) -> list[Any]:
    if args.model_prefix is None or rank != 0:
        return []
    return [bireme.callbacks.Checkpoint(args.model_prefix, args.save_period)]


def _shares(loader: DataLoader[Any]) -> list[Any]:
    """Return a callback that says how workers share a batch, if they do."""
    sampler = loader.batch_sampler
    if not isinstance(sampler, BalancedBatchSampler):
        return []

    def tell(end: Any) -> None:
        print(f"Epoch {end.epoch}: workers' samples of a batch {list(sampler.sizes)}", flush=True)

    return [tell]


def _report(end: Any) -> None:
    shares = " ".join(f"{share:.2f}" for share in end.sample_shares)
    print(
        f"Epoch {end.epoch}: loss {end.loss:.4f}, train accuracy {end.metrics['accuracy']:.4f}, "
        f"test accuracy {end.evaluation['accuracy']:.4f}, {end.samples_per_s:.0f} samples/s, "
        f"shares {shares}",
        flush=True,
    )
