"""The trainer: a ``torch.optim.Optimizer`` for one model on several devices.

A thin face. :mod:`bireme.train.arrange` decides how it works, a
:class:`~bireme.train.mode.Mode` does the work, and the wrapped optimizer stays the owner of
parameter groups, state and hooks.
"""

import os
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from bireme.data.balanced import BalancedBatchSampler
from bireme.errors import ConfigError, UnsupportedError
from bireme.kvstore.base import KVStore, KVStoreBase
from bireme.train import states
from bireme.train.arrange import Compression, Wish, arrange
from bireme.train.balancing import Balancing, connect
from bireme.train.buffers import average_buffers
from bireme.train.counting import Counting
from bireme.train.learning_rate import check_learning_rates, get_learning_rate, set_learning_rate
from bireme.train.lineup import Lineup
from bireme.train.local_update import LocalUpdate
from bireme.train.mode import Closure
from bireme.train.optimizers import checked_group, make_optimizer, params_of, share_hooks
from bireme.train.shares import NumSamples, shares
from bireme.train.tables import with_tables
from bireme.train.tracing import Tracing
from bireme.update.spec import OptimizerSpec, Plain

if TYPE_CHECKING:
    from bireme.train.overlap import Overlap

__all__ = ("Trainer",)


class Trainer(torch.optim.Optimizer):
    """Steps an optimizer with gradients that are means over every replica's samples.

    Use it where a script used the optimizer: ``zero_grad``, ``step``, ``state_dict``, learning
    rate schedulers and ``torch.amp.GradScaler`` work as before. With one replica and no
    compression it is the torch optimizer, bit for bit.

    To clip, merge first: ``trainer.allreduce_grads()``, then clip the first replica's gradients,
    then ``trainer.step()``. With a scaler: ``allreduce_grads``, ``scaler.unscale_(trainer)``,
    clip, ``scaler.step(trainer)``. Without clipping ``scaler.step(trainer)`` is enough; a
    gradient that overflows on any replica skips the step on all.

    Args:
        model: A module, or a list of replicas: one for each context, alike but for the device.
            Replica 0's parameters and buffers are copied to the others.
        optimizer: A ``torch.optim`` instance over parameters of replica 0, or a name and
            ``optimizer_params``, or an :class:`bireme.OptimizerSpec` keyed by parameter names.
        kvstore: The store that merges gradients: a type, a store, or ``None`` for none. A
            single replica needs none, and then a one-process type makes none.
        optimizer_params: Arguments for an optimizer that is given by name.
        compression: How the store compresses gradients, such as ``{"type": "2bit"}``.
        update_on_kvstore: Whether the optimizer runs in the store. Default: on servers where the
            store has them, else here.
        overlap: Let gradients leave while the backward pass runs, and new weights arrive during
            the next forward pass. For stores on servers; the same bits as without.
            ``docs/overlap.md`` says what a script must heed.
        store_options: Options of the store's type, as :func:`bireme.kvstore.create` takes them:
            ``staleness=2`` with ``"dist_bounded"``, ``local=bireme.LocalSteps(every=64)`` with
            ``"dist_local"``.

    Raises:
        ConfigError: Replicas differ, there is nothing to train, the optimizer holds parameters
            of another model, the store cannot do what is asked, or it has integer keys.
        StateError: The store is closed.

    Guarantees:
        After a step every replica has the same parameters: those that plain torch would have
        after a step on the whole batch, up to rounding. An argument that is refused leaves
        everything as it was.

    Example:
        >>> replicas = [nn.Linear(1, 1, bias=False) for _ in range(2)]
        >>> _ = nn.init.ones_(replicas[0].weight)
        >>> trainer = Trainer(replicas, "sgd", optimizer_params={"lr": 1.0})
        >>> for replica, x in zip(replicas, [[[2.0], [2.0], [2.0]], [[6.0]]]):
        ...     replica(torch.tensor(x)).mean().backward()
        >>> trainer.step(num_samples=[3, 1])
        >>> [replica.weight.item() for replica in replicas]
        [-2.0, -2.0]

    Source:
        MXNet 1.9 ``python/mxnet/gluon/trainer.py``, with means over samples in place of sums.
    """

    def __init__(
        self,
        model: nn.Module | Sequence[nn.Module],
        optimizer: torch.optim.Optimizer | OptimizerSpec | str,
        kvstore: str | KVStoreBase | None = "device",
        *,
        optimizer_params: Mapping[str, Plain] | None = None,
        compression: Compression = None,
        update_on_kvstore: bool | None = None,
        overlap: bool = False,
        **store_options: object,
    ) -> None:
        # Optimizer.__init__ is not called: it would make groups and state a second time.
        wish = Wish(kvstore, compression, update_on_kvstore, store_options, overlap=overlap)
        self._lineup = Lineup(model)
        self._inner = make_optimizer(self._lineup.modules[0], optimizer, optimizer_params)
        if isinstance(self._inner, Trainer):
            raise ConfigError("the optimizer is a Trainer already; give it the torch optimizer")
        self._positions = self._lineup.positions(params_of(self._inner))
        if not any(param.requires_grad for param in params_of(self._inner)):
            raise ConfigError("no parameter of the optimizer requires a gradient; nothing to train")
        self._mode, self._store = arrange(self._lineup, self._inner, wish)
        self._local = self._mode if isinstance(self._mode, LocalUpdate) else None
        self._steps = with_tables(self._mode, self._lineup, self._inner)
        self._overlap: Overlap | None = getattr(self._mode, "overlap", None)
        self._counting = Counting(len(self._lineup), self._store)
        self._owns_store = isinstance(kvstore, str)
        self._tracing = Tracing(self._lineup, self._store)
        self._balancing: Balancing | None = None
        self._mode.refresh(self._positions)
        share_hooks(self._inner, self)
        self._lineup.follow_first()
        self._lineup.follow_first_buffers()

    @property
    def kvstore(self) -> KVStoreBase | None:
        """The store in use, or ``None``."""
        return self._store

    @property
    def optimizer(self) -> torch.optim.Optimizer:
        """The torch optimizer that the trainer wraps."""
        return self._inner

    @property
    def param_groups(self) -> list[dict[str, Any]]:  # type: ignore[override]
        """The optimizer's groups, of replica 0's parameters. Changes take effect at once."""
        return self._inner.param_groups

    @property
    def defaults(self) -> dict[str, Any]:  # type: ignore[override]
        """The optimizer's defaults."""
        return self._inner.defaults

    @property
    def state(self) -> Mapping[torch.Tensor, Any]:  # type: ignore[override]
        """The optimizer's state; a copy when the optimizer runs in the store."""
        self._mode.pull_state()
        return self._inner.state

    @property
    def learning_rate(self) -> float:
        """The learning rate of the first group, before its ``lr_mult``."""
        return get_learning_rate(self._inner)

    def set_learning_rate(self, lr: float) -> None:
        """Give every group the learning rate ``lr`` times its ``lr_mult`` (1 if it has none).

        Args:
            lr: The rate, finite and >= 0. It takes effect at the next step, wherever the
                optimizer runs.

        Raises:
            ConfigError: ``lr`` is out of range.
        """
        set_learning_rate(self._inner, lr)

    def step(  # type: ignore[override]
        self,
        closure: Closure | NumSamples = None,
        num_samples: NumSamples = None,
    ) -> float | None:
        """Merge the gradients of all replicas and update their parameters.

        Gradients that :meth:`allreduce_grads` has merged are taken as they are. A parameter
        without a gradient on any replica is skipped; without one on some, it counts as zero
        there. Where the optimizer runs here, every replica's ``.grad`` holds the merged gradient
        afterwards.

        Args:
            closure: Computes the loss and the gradients of every replica again. A number or
                list in its place is taken for ``num_samples``.
            num_samples: Samples behind each replica's mean gradient: a list with one number for
                each, or a number for a single one. Equal by default, or this worker's portion of
                the batch after :meth:`balance`. A replica with 0 is ignored.

        Returns:
            What the closure returned.

        Raises:
            ConfigError: ``num_samples`` is out of range, of the wrong length, or all 0; or a
                closure is needed.
            StateError: The store is closed; a parameter is frozen on some replicas only; or
                gradients that are to be compressed are not finite.
        """
        if self._balancing is None:
            return self._step(closure, num_samples)
        with self._balancing.step():
            return self._step(closure, num_samples)

    def _step(self, closure: Closure | NumSamples, num_samples: NumSamples) -> float | None:
        if closure is not None and not callable(closure):
            if num_samples is not None:
                raise ConfigError(f"a closure must be callable, got {closure!r:.60}")
            closure, num_samples = None, closure
        if closure is None and self._balancing is not None:
            self._balancing.stop()
        counts = self._counting.of_step(num_samples)
        if closure is None and isinstance(self._inner, torch.optim.LBFGS):
            raise ConfigError("LBFGS computes the loss several times; give step() a closure")
        check_learning_rates(self._inner)
        self._notice_params()
        if "found_inf" not in self.__dict__:
            with self._tracing.span("step"):
                return self._steps.step(closure, counts)
        if closure is not None:
            raise ConfigError("a GradScaler takes no closure; compute gradients before the step")
        return self._scaled_step(counts)

    def begin(self, num_samples: NumSamples) -> None:
        """Say before the backward pass how many samples the next step has.

        Needed with ``overlap=True`` where shares differ. Every worker calls it.

        Args:
            num_samples: As for :meth:`step`.

        Raises:
            ConfigError: As for :meth:`step`.
            StateError: The step has begun already.
        """
        counts = self._counting.of(num_samples)
        self._counting.refuse_begun()
        self._notice_params()
        if self._overlap is not None:
            self._overlap.begin(counts)
        self._counting.begin(counts)

    def accumulate(self) -> AbstractContextManager[None]:
        """Return a context in which backward passes only add to the gradients.

        With ``overlap=True`` no gradient leaves inside it. Wrap all backward passes of a step but
        the last; or all, if gradients are to be clipped or unscaled before :meth:`step`.
        """
        return nullcontext() if self._overlap is None else self._overlap.hold()

    def synchronize(self) -> None:
        """Return when every parameter holds its new value.

        Needed with ``overlap=True`` before a script reads or writes parameters after :meth:`step`
        by itself. A module's forward, ``state_dict`` and ``load_state_dict`` do it.

        Raises:
            BiremeError: What the exchange failed with.
        """
        if self._overlap is not None:
            self._overlap.synchronize()

    def close(self) -> None:
        """Wait for what is on the way, remove all hooks, and close the store.

        A store that was given to the trainer, not made by it, stays open.
        """
        try:
            self._tracing.close()
            if self._overlap is not None:
                self._overlap.close()
        finally:
            if self._owns_store and isinstance(self._store, KVStore):
                self._store.close()

    def allreduce_grads(self, num_samples: NumSamples = None) -> None:
        """Merge gradients now, to look at them or clip them before :meth:`step`.

        Each replica's ``.grad`` holds the merged gradient afterwards, but only the first
        replica's is used by the update. The next step does not merge again, unless a backward
        pass comes in between.

        Args:
            num_samples: As for :meth:`step`.

        Raises:
            ConfigError: As for :meth:`step`.
            StateError: The optimizer runs in the store, or the store is closed.
        """
        counts = self._counting.of_step(num_samples)
        self._notice_params()
        self._steps.merge(counts)

    def update(self, num_samples: NumSamples = None) -> None:
        """Update with the first replica's gradients as they are, without merging.

        Args:
            num_samples: Checked, as for :meth:`step`; of no effect, as nothing is merged.

        Raises:
            StateError: The optimizer runs in the store.
        """
        self._counting.of(num_samples)
        self._notice_params()
        self._steps.update(None)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clear the gradients of every replica."""
        self._notice_params()
        self._steps.forget()
        self._inner.zero_grad(set_to_none)
        self._lineup.clear_grads(self._positions, set_to_none=set_to_none)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Optimize more parameters of replica 0, as ``torch.optim.Optimizer`` does.

        Raises:
            ConfigError: They belong to another model, or are optimized already.
        """
        group = checked_group(param_group)
        named = (each[1] if isinstance(each, tuple) else each for each in group["params"])
        self._lineup.positions(named)
        try:
            self._inner.add_param_group(group)
        except (TypeError, ValueError) as error:
            raise ConfigError(f"cannot add a parameter group: {error}") from error
        self._notice_params()

    def state_dict(self) -> dict[str, Any]:
        """Return exactly what the wrapped optimizer's ``state_dict()`` is in plain torch.

        Over a ``dist_local`` store there is one entry more, ``"local"``: where the local steps
        stand, what is under way, and the outer optimizer's state. It is this worker's own.
        """
        return states.states_of(self._inner, self._local)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over the state and hyper-parameters of an optimizer of the same class.

        Args:
            state_dict: From :meth:`state_dict`, or from a plain torch optimizer. Local steps
                begin anew without an entry for them, and the entry counts for them only.

        Raises:
            ConfigError: It belongs to other parameters or to another optimizer.
        """
        self._notice_params()
        states.take_over(state_dict, self._inner, self._local)

    def save_states(self, path: str | os.PathLike[str]) -> None:
        """Write :meth:`state_dict` to ``path``, all or nothing, as ``torch.save`` would.

        Raises:
            ConfigError: The folder does not exist or cannot be written.
        """
        states.save_states(path, self.state_dict())

    def load_states(self, path: str | os.PathLike[str]) -> None:
        """Load what :meth:`save_states` wrote, or ``torch.save(optimizer.state_dict(), path)``.

        Raises:
            ConfigError: The file cannot be read, or belongs to other parameters.
            DataError: It is truncated, corrupt or of another format.
        """
        self.load_state_dict(states.load_states(path))

    def sync_parameters(self) -> None:
        """Give every worker the same parameters, before an evaluation or a checkpoint.

        Over a ``dist_local`` store, workers exchange what they have now, outside of their rhythm,
        and take exactly what the servers hold then; every worker calls it. With any other store
        it does nothing: they have what the servers hold, as new as the store's type promises.
        """
        if self._local is not None:
            self._local.settle()

    def balance(self, sampler: BalancedBatchSampler) -> None:
        """Let the portions of ``sampler`` follow the speeds of the workers.

        From now on this worker's time travels with each of its steps, so call :meth:`step` once
        after every batch of the sampler. Every worker calls this, before it begins to iterate.

        Args:
            sampler: Made on every worker with the same arguments but ``part_index``.

        Raises:
            ConfigError: It is for other workers than the store's, or differs between workers;
                or the store is asynchronous.

        Guarantees:
            The gradient of each step stays the mean over the samples of all workers, whatever
            the portions. No message is added to a step.

        Example:
            >>> net = nn.Linear(1, 1)
            >>> trainer = Trainer(net, "sgd", optimizer_params={"lr": 0.1})
            >>> sampler = BalancedBatchSampler(10, batch_size=5)
            >>> trainer.balance(sampler)
            >>> for indices in sampler:
            ...     trainer.zero_grad()
            ...     net(torch.tensor(indices).view(-1, 1).float()).mean().backward()
            ...     trainer.step()
        """
        if self._balancing is not None and self._balancing.sampler is sampler:
            return
        if self._local is not None:
            raise ConfigError(
                "local steps share no batches between workers; give each worker its own part of "
                "the data, as ShardSampler does, or use 'dist_sync'"
            )
        devices = [params[0].device for params in self._lineup.params]
        self._balancing = connect(sampler, self._store, devices)
        self._counting.sampler = sampler
        self._mode.ride(self._balancing)

    def sync_buffers(self, num_samples: NumSamples = None) -> None:
        """Give every replica the same buffers, before an evaluation or a checkpoint.

        Floating ones, such as BatchNorm's running statistics, become their mean; integer ones,
        such as its count of batches, the largest. Replicas of this process only.

        Args:
            num_samples: Weights of the mean, as for :meth:`step`.

        Raises:
            ConfigError: As for :meth:`step`.
        """
        counts = self._counting.of(num_samples)
        average_buffers(self._lineup.modules, shares(counts, sum(counts)))

    @property
    def _step_supports_amp_scaling(self) -> bool:
        # GradScaler.step asks this first, before it looks for overflows on replica 0.
        if self._balancing is not None:
            self._balancing.stop()
        self._mode.share_overflow()
        return self._steps.scales

    def _scaled_step(self, counts: Sequence[float]) -> float | None:
        scaler: Any = self
        try:
            return self._steps.scaled_step(scaler.grad_scale, scaler.found_inf, counts)
        except BaseException:
            # The scaler deletes these after a step that succeeds; left over, they would
            # multiply into the next one.
            del scaler.grad_scale, scaler.found_inf
            raise

    def _notice_params(self) -> None:
        # The optimizer is the caller's, who may have added a group to it directly.
        if sum(len(group["params"]) for group in self._inner.param_groups) != len(self._positions):
            self._positions = self._lineup.positions(params_of(self._inner))
            self._mode.refresh(self._positions)

    def __getstate__(self) -> dict[str, Any]:
        raise UnsupportedError("a Trainer cannot be copied or pickled; save its state_dict()")

    def __repr__(self) -> str:
        where = "no store" if self._store is None else f"a {self._store.type!r} store"
        return f"Trainer of {len(self._lineup)} replica(s) with {where}: {self._inner!r}"
