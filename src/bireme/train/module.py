"""Module: a net on several contexts at once, with ``fit``, ``score`` and ``predict``.

The highest layer: scripts and the command line call it. It splits batches, lets
:mod:`bireme.train.contexts` compute them side by side, and leaves updates to
:class:`bireme.Trainer`; the loop over epochs is in :mod:`bireme.train.fitting`.
"""

import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Self, TypedDict, Unpack

import torch
from torch import nn

from bireme.balance.choosing import WorkLoads
from bireme.compress.base import Compressor
from bireme.errors import ConfigError, StateError, UnsupportedError
from bireme.kvstore.base import KVStoreBase
from bireme.train import (
    balancer,
    batches,
    checkpoint,
    computing,
    contexts,
    evaluating,
    events,
    fitting,
    loaders,
    nested,
    rebuilding,
    resuming,
    split,
)
from bireme.train.metrics import MetricLike
from bireme.train.trainer import Trainer
from bireme.types import Context

__all__ = ("Module", "ModuleOptions")


class ModuleOptions(TypedDict, total=False):
    """Arguments of :class:`Module` that :meth:`Module.load` passes on."""

    loss: contexts.Loss | None
    context: split.ContextLike | Sequence[split.ContextLike] | None
    work_load_list: Sequence[float] | Literal["auto"] | None
    compression: Mapping[str, object] | Compressor | None
    amp_dtype: torch.dtype | None


class Module:
    """One net that trains on several contexts at the same time, as if they were one.

    Each batch is cut into one slice per context; the contexts compute side by side, each with
    its own copy of the net, and the gradients are averaged by sample counts. So unequal shares,
    ragged last batches, and batches smaller than the number of contexts give the same update as
    one device does with the whole batch, up to rounding. Two kinds of layers see the difference,
    as in every data-parallel system: BatchNorm normalises with the statistics of its slice (the
    running ones are averaged by :meth:`sync_buffers`, which ``fit`` calls after each epoch), and
    dropout draws other random numbers.

    Args:
        net: The net. The first context keeps this very object where it is there already; the
            other contexts hold copies of it.
        loss: ``loss(pred, label)`` returns the mean over its samples: a function such as
            ``torch.nn.functional.cross_entropy``, or a loss module. Needed for training. A mean
            weighed by class, or over unpadded tokens, is averaged over slices by samples.
        context: One context or a list: ``[bireme.gpu(0), bireme.gpu(2)]``, ``"cpu(0)"``. Where
            the net is, by default.
        work_load_list: One number per context, in whose proportion batches are split; equal
            slices by default. ``"auto"`` measures the contexts over the first steps and keeps
            the shares at their speeds; see :class:`bireme.train.balancer.Balancer`.
        compression: Gradient compression of the trainer's store, as for
            :meth:`bireme.kvstore.KVStore.set_gradient_compression`.
        amp_dtype: ``torch.bfloat16`` computes in mixed precision under ``torch.autocast``.
        overlap: Exchange gradients and weights while the contexts compute, as
            :class:`~bireme.train.trainer.Trainer` does; for stores on servers.

    Raises:
        ConfigError: An argument is not as above, or a context does not exist here.
        UnsupportedError: ``amp_dtype`` is another type; float16 would need loss scaling.

    Example:
        >>> net = nn.Linear(2, 1)
        >>> module = Module(net, nn.functional.mse_loss, ["cpu(0)", "cpu(1)"], [3, 1])
        >>> data = [(torch.ones(8, 2), torch.zeros(8, 1))]
        >>> module.fit(data, num_epoch=20, optimizer_params={"lr": 0.1}, eval_metric="mse")
        >>> module.score(data, "mse")["mse"] < 0.01
        True

    Source:
        MXNet 1.9 ``module.Module``, whose names and meaning are kept.
    """

    def __init__(
        self,
        net: nn.Module,
        loss: contexts.Loss | None = None,
        context: split.ContextLike | Sequence[split.ContextLike] | None = None,
        work_load_list: Sequence[float] | Literal["auto"] | None = None,
        *,
        compression: Mapping[str, object] | Compressor | None = None,
        amp_dtype: torch.dtype | None = None,
        overlap: bool = False,
    ) -> None:
        if not isinstance(net, nn.Module):
            raise ConfigError(f"net must be a torch.nn.Module, got {net!r:.80}")
        if amp_dtype not in (None, torch.bfloat16):
            raise UnsupportedError(f"amp_dtype must be torch.bfloat16 or None, got {amp_dtype}")
        found = contexts.contexts_of(net, context)
        shares = balancer.shares_of(work_load_list, len(found))
        replicas = contexts.Replicas(net, loss, found)
        self._computing = computing.Computing(replicas, shares, amp_dtype)
        self._compression = compression
        self._overlap = overlap
        self._sizes: Sequence[int] | None = None
        self._portions = loaders.Portions()
        self._keeper = resuming.TrainingKeeper()

    @property
    def net(self) -> nn.Module:
        """The first context's net, which training changes in place.

        What you change in it by hand reaches the other contexts when the trainer is made, so load
        values before the first :meth:`fit`.
        """
        return self._computing.replicas.first.net

    @property
    def context(self) -> list[Context]:
        """The contexts, in order."""
        return [replica.context for replica in self._computing.replicas]

    @property
    def shares(self) -> tuple[float, ...]:
        """The part of each batch that each context gets now; they add up to 1."""
        return self._computing.shares.shares

    @property
    def trainer(self) -> Trainer:
        """The trainer that updates the replicas.

        Raises:
            StateError: There is none before :meth:`fit` or :meth:`init_optimizer`.
        """
        return self._keeper.trainer

    def init_optimizer(
        self,
        kvstore: str | KVStoreBase | None = None,
        optimizer: resuming.OptimizerLike | None = None,
        optimizer_params: Mapping[str, Any] | None = None,
    ) -> None:
        """Make the trainer; ``fit`` calls this.

        Called again with equal arguments, or none, it keeps the trainer and its state; with
        others it makes a new one. After :meth:`load`, the state of the checkpoint goes on.

        Args:
            kvstore: A store or its type; see :func:`bireme.kvstore.create`. By default the one
                in use, else ``"device"``.
            optimizer: The name of a class of ``torch.optim``, or a spec. By default the one in
                use or in the checkpoint, else ``"sgd"``.
            optimizer_params: Its arguments; ``{"lr": 0.01}`` where there is nothing else.

        Raises:
            ConfigError: The store or optimizer is unknown, or the checkpoint was trained with
                another optimizer than the one asked for.
        """
        self._keeper.prepare(
            self._computing.nets,
            resuming.Request(
                kvstore, optimizer, optimizer_params, self._compression, self._overlap
            ),
        )

    def forward_backward(self, batch: Any, *, want_pred: bool = True) -> computing.Step:
        """Compute the gradients of one batch in all contexts; :meth:`update` applies them.

        Args:
            batch: ``(data, label)`` or ``{"data": ..., "label": ...}``; see
                :mod:`bireme.train.batches`.
            want_pred: Also collect what the net returned.

        Raises:
            StateError: There is no trainer yet.
            ConfigError: The batch has another form or no samples, or the module has no loss.
        """
        data, label = batches.pair(batch)
        trainer = self.trainer
        self._computing.need_loss()
        trainer.zero_grad()
        self._sizes = None
        begin = trainer.begin if self._overlap else None
        step = self._computing.train(data, label, want_pred=want_pred, begin=begin)
        self._sizes = step.sizes
        return step

    def update(self) -> None:
        """Apply the gradients of the last :meth:`forward_backward` to every replica.

        Raises:
            StateError: There was none since the last update.
        """
        if self._sizes is None:
            raise StateError("there are no gradients to apply; call forward_backward first")
        self.trainer.step(num_samples=self._sizes)
        self._sizes = None

    def forward(self, data: nested.Nested) -> nested.Nested:
        """Return what the net makes of ``data``, in evaluation mode and without gradients.

        Args:
            data: Inputs of one batch: a tensor or array; a tuple or list for several arguments,
                a dict for keyword arguments.

        Returns:
            The outputs of all contexts joined along axis 0, on the first context.

        Raises:
            ConfigError: The batch is empty, or an output has no batch along axis 0.
        """
        with self._computing.mode(training=False):
            return self._computing.infer(data)

    __call__ = forward

    def predict(self, data: Any) -> nested.Nested:
        """Return the net's outputs for all of ``data``, joined along axis 0, on the CPU.

        Args:
            data: An iterable of batches as for :meth:`score`, whose labels are ignored or may be
                missing; or one tensor or array of inputs. A pair counts as ``(data, label)``.

        Raises:
            ConfigError: There is no data, or an output has no batch along axis 0.
        """
        return evaluating.predict(self._computing, data)

    def score(self, data: Any, metric: MetricLike = "acc") -> dict[str, float]:
        """Return each metric over all of ``data``, by name.

        Args:
            data: An iterable of batches ``(data, label)``.
            metric: See :data:`bireme.train.metrics.MetricLike`; ``"loss"`` is the module's own.

        Raises:
            ConfigError: A metric is unknown, or a batch has another form or no samples.

        Example:
            >>> module = Module(nn.Identity())
            >>> module.score([(torch.eye(2), torch.tensor([0, 0]))], "acc")
            {'accuracy': 0.5}
        """
        return evaluating.score(self._computing, data, metric)

    def fit(  # noqa: PLR0913 (the names are a contract)
        self,
        train_data: Any,
        eval_data: Any = None,
        eval_metric: MetricLike | None = "acc",
        *,
        num_epoch: int,
        kvstore: str | KVStoreBase | None = None,
        optimizer: resuming.OptimizerLike | None = None,
        optimizer_params: Mapping[str, Any] | None = None,
        begin_epoch: int | None = None,
        lr_scheduler: fitting.SchedulerLike | None = None,
        work_load_list: WorkLoads = None,
        batch_end_callback: events.BatchCallback | Sequence[events.BatchCallback] = (),
        epoch_end_callback: events.EpochCallback | Sequence[events.EpochCallback] = (),
    ) -> None:
        """Train.

        Each epoch goes through ``train_data``, brings the buffers together, steps the scheduler,
        scores ``eval_data`` and calls the callbacks, in this order. The net trains in training
        mode; afterwards each part is in the mode that it had before, and every worker has the
        same parameters (:meth:`bireme.Trainer.sync_parameters`).

        Args:
            train_data: An iterable of batches ``(data, label)`` or ``{"data", "label"}`` that
                starts again each time it is iterated; a ``set_epoch`` of it or its sampler is
                called before each epoch.
            eval_data: As ``train_data``; nothing is evaluated without.
            eval_metric: Metrics to compute on both; see :data:`bireme.train.metrics.MetricLike`.
            num_epoch: The epoch before which to stop, so ``num_epoch - begin_epoch`` are run.
            kvstore: As for :meth:`init_optimizer`.
            optimizer: As for :meth:`init_optimizer`.
            optimizer_params: As for :meth:`init_optimizer`.
            begin_epoch: Number of the first epoch: by default the epochs done by the checkpoint
                that :meth:`load` read, else 0.
            lr_scheduler: A scheduler of ``torch.optim.lr_scheduler`` over ``module.trainer``, or
                a function that makes one of it, as ``lambda trainer: StepLR(trainer, 10)``. It
                steps once per epoch; ``ReduceLROnPlateau`` with the first metric of
                ``eval_data``, or the training loss.
            work_load_list: How the workers of a synchronous store on servers share each batch:
                one number for each worker, or ``"auto"`` for their measured speeds. Then
                ``train_data`` is a ``DataLoader`` over the whole data set, whose ``batch_size`` is
                that of all workers together, and each worker loads its portion of every batch.
                (The contexts within a worker have the list given to :class:`Module`.) A loader
                whose batches come from a :class:`bireme.data.BalancedBatchSampler` needs no list.
            batch_end_callback: Called with a :class:`bireme.train.events.BatchEnd`.
            epoch_end_callback: Called with a :class:`bireme.train.events.EpochEnd`; one that
                returns ``True`` ends the training.

        Raises:
            ConfigError: An argument is wrong, or the data has no batches, or it is an iterator
                that cannot be gone through ``num_epoch`` times.

        Guarantees:
            After :meth:`load`, on one context without compression, the parameters become bit
            for bit what they would be had the training never stopped, given the same data in the
            same order (random numbers that torch draws in the main process continue too).
        """
        begin = self._keeper.begin_epoch if begin_epoch is None else begin_epoch
        plan = fitting.Plan(
            train_data=train_data,
            eval_data=eval_data,
            eval_metric=eval_metric,
            begin_epoch=begin,
            num_epoch=num_epoch,
            batch_callbacks=fitting.callbacks_of("batch_end_callback", batch_end_callback),
            epoch_callbacks=fitting.callbacks_of("epoch_end_callback", epoch_end_callback),
        )
        self._computing.need_loss()
        self.init_optimizer(kvstore, optimizer, optimizer_params)
        loader, sampler = self._portions.of(train_data, work_load_list, self.trainer.kvstore)
        if sampler is not None:
            self.trainer.balance(sampler)
        plan = dataclasses.replace(plan, train_data=loader)
        scheduler = self._keeper.resume(lr_scheduler)
        with self._computing.mode(training=True):
            fitting.run(self, plan, scheduler)
        self.trainer.sync_parameters()

    def sync_buffers(self) -> None:
        """Average the replicas' buffers, such as BatchNorm's running statistics.

        Each counts as many times as its context has trained on samples since the last call; a
        context without samples only receives. Integer buffers, such as counts of batches,
        become the largest.

        Raises:
            StateError: There is no trainer yet.
        """
        trainer, counts = self.trainer, self._computing.take_counts()
        if any(counts):
            trainer.sync_buffers(num_samples=counts)

    def save_checkpoint(self, prefix: str | os.PathLike[str], epoch: int) -> None:
        """Write the net and, once there is a trainer, all that resuming needs.

        Buffers are brought together first. The files are described in
        :mod:`bireme.train.checkpoint`.

        Args:
            prefix: Folder and start of the file names.
            epoch: Epochs done, >= 0; part of the names.

        Raises:
            ConfigError: The folder cannot be written, or ``epoch`` is negative.
            UnsupportedError: The state holds something that no file without code can hold.
        """
        if self._keeper.has_trainer:
            self.sync_buffers()
        checkpoint.write(
            prefix,
            checkpoint.Checkpoint(
                epoch=epoch,
                net_class=rebuilding.class_path(self.net),
                net_state=self.net.state_dict(),
                training=self._keeper.state(),
            ),
        )

    @classmethod
    def load(
        cls,
        prefix: str | os.PathLike[str],
        epoch: int,
        net: nn.Module | None = None,
        *,
        load_optimizer_states: bool = True,
        **options: Unpack[ModuleOptions],
    ) -> Self:
        """Return a module with the net of a checkpoint, ready for :meth:`fit` to go on.

        Args:
            prefix: As for :meth:`save_checkpoint`.
            epoch: As for :meth:`save_checkpoint`.
            net: A net of the same structure, whose values are replaced. By default one is made
                of the class that was saved, if it can be imported and takes no arguments.
            load_optimizer_states: Whether :meth:`fit` continues the optimizer and the epochs
                of the checkpoint, or starts afresh from its net.
            options: As for :class:`Module`.

        Raises:
            DataError: A file is missing, corrupt, or does not fit ``net``.
            ConfigError: The net cannot be made from its class; pass ``net``.
        """
        saved = checkpoint.read(prefix, epoch, with_training=load_optimizer_states)
        target = net if net is not None else rebuilding.make_net(saved.net_class)
        if not isinstance(target, nn.Module):
            raise ConfigError(f"net must be a torch.nn.Module, got {target!r:.80}")
        rebuilding.load_state(target, saved.net_state, f"checkpoint {prefix}-{epoch:04d}")
        module = cls(target, **options)
        if load_optimizer_states:
            module._keeper = resuming.TrainingKeeper(saved.epoch, saved.training)
        return module

    def __repr__(self) -> str:
        return f"Module({type(self.net).__name__}, context={self.context}, shares={self.shares})"

    def __getstate__(self) -> dict[str, object]:
        raise UnsupportedError(
            "a Module cannot be copied or pickled, as its threads cannot; use save_checkpoint"
        )
