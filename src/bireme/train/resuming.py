"""The trainer of a :class:`bireme.Module`: when to make it, what to keep, how to go on.

Kept in a checkpoint besides the net: the optimizer's name, arguments and state, the learning-rate
scheduler's state, and the state of torch's random number generators.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.optim import lr_scheduler as schedulers

from bireme.compress.base import Compressor
from bireme.errors import ConfigError, DataError, StateError
from bireme.kvstore.base import KVStore, KVStoreBase
from bireme.train import trees
from bireme.train.fitting import SchedulerLike
from bireme.train.trainer import Trainer
from bireme.update.spec import OptimizerSpec

__all__ = ("OptimizerLike", "Request", "TrainingKeeper")

OptimizerLike = str | OptimizerSpec | torch.optim.Optimizer
"""A class of ``torch.optim`` by name, a spec, or an optimizer of the first replica's parameters."""

DEFAULT_PARAMS: Mapping[str, Any] = {"lr": 0.01}


@dataclass(frozen=True, slots=True, eq=False)
class Request:
    """What the caller of ``fit`` or ``init_optimizer`` asked for; ``None`` is no wish."""

    kvstore: str | KVStoreBase | None = None
    optimizer: OptimizerLike | None = None
    optimizer_params: Mapping[str, Any] | None = None
    compression: Mapping[str, object] | Compressor | None = None
    overlap: bool = False


@dataclass(frozen=True, slots=True)
class _Choice:
    """A store and an optimizer, comparable."""

    kvstore: str | KVStoreBase
    optimizer: OptimizerLike
    params: Mapping[str, Any] | None


class TrainingKeeper:
    """Makes the trainer once, keeps it while requests agree, and resumes from a checkpoint.

    Args:
        begin_epoch: Epochs done by the checkpoint.
        training: What :meth:`state` returned when it was written; ``None`` for a fresh start.
    """

    def __init__(self, begin_epoch: int = 0, training: trees.Tree = None) -> None:
        self.begin_epoch = begin_epoch
        self._restored: Any = _checked(training)
        self._choice: _Choice | None = None
        self._described: Any = None
        self._trainer: Trainer | None = None
        self._scheduler: schedulers.LRScheduler | None = None

    @property
    def has_trainer(self) -> bool:
        """Whether :meth:`prepare` has made a trainer."""
        return self._trainer is not None

    @property
    def trainer(self) -> Trainer:
        """The trainer.

        Raises:
            StateError: There is none yet.
        """
        if self._trainer is None:
            raise StateError("there is no trainer yet; call fit or init_optimizer first")
        return self._trainer

    def prepare(self, nets: Sequence[nn.Module], request: Request) -> None:
        """Make the trainer that ``request`` asks for, unless it is in use already.

        Raises:
            ConfigError: The request is wrong, or differs from what the checkpoint was trained
                with. The trainer in use stays then.
        """
        choice = self._choose(request)
        if self._trainer is not None and choice == self._choice:
            return
        trainer = Trainer(
            list(nets),
            choice.optimizer,
            choice.kvstore,
            optimizer_params=None if choice.params is None else dict(choice.params),
            compression=request.compression,
            overlap=request.overlap,
        )
        described = _described(choice, trainer)
        try:
            self._compare(described)
            if self._restored is not None:
                _load(trainer, self._restored["trainer"])
        except BaseException:
            _release(trainer, choice)
            raise
        if self._trainer is not None and self._choice is not None:
            _release(self._trainer, self._choice)
        self._trainer, self._choice, self._scheduler = trainer, choice, None
        self._described = described

    def resume(self, scheduler: SchedulerLike | None) -> schedulers.LRScheduler | None:
        """Return the scheduler to step, with everything as the checkpoint left it.

        The checkpoint takes effect once: a later call starts from where the training is.

        Raises:
            ConfigError: ``scheduler`` is none, belongs to another optimizer, or differs from
                the checkpoint's.
        """
        found = _scheduler_of(scheduler, self.trainer)
        if self._restored is not None:
            saved = self._restored["scheduler"]
            kind = None if found is None else type(found).__name__
            if (saved and saved["name"]) != kind:
                raise ConfigError(
                    f"the checkpoint was trained with lr_scheduler {saved and saved['name']}, not "
                    f"{kind}; pass the same, or load it with load_optimizer_states=False"
                )
            # Again, because making a scheduler sets the optimizer's learning rates.
            _load(self.trainer, self._restored["trainer"])
            if found is not None:
                found.load_state_dict(saved["state"])
            _set_random_state(self._restored["random"])
            self._restored = None
        self.begin_epoch = 0
        self._scheduler = found
        return found

    def state(self) -> trees.Tree:
        """Return everything that resuming needs, as plain values; ``None`` before any training."""
        if self._trainer is None:
            return self._restored
        scheduler = self._scheduler
        return {
            "optimizer": self._described,
            "trainer": self._trainer.state_dict(),
            "scheduler": scheduler
            and {"name": type(scheduler).__name__, "state": scheduler.state_dict()},
            "random": _random_state(),
        }

    def _compare(self, described: Mapping[str, Any]) -> None:
        """Refuse another optimizer than the checkpoint's; names of arguments do not matter."""
        if self._restored is None:
            return
        saved = self._restored["optimizer"]
        if any(saved[part] != described[part] for part in ("name", "groups")):
            raise ConfigError(
                f"the checkpoint was trained with {_written(saved)}, not {_written(described)}; "
                "ask for the same or for none, or load it with load_optimizer_states=False to "
                "start the optimizer afresh"
            )

    def _choose(self, request: Request) -> _Choice:
        """Fill what ``request`` leaves open from what is in use or in the checkpoint."""
        kvstore = request.kvstore
        if kvstore is None:
            kvstore = "device" if self._choice is None else self._choice.kvstore
        optimizer, params = request.optimizer, request.optimizer_params
        if optimizer is None and params is None:
            if self._choice is not None:
                return _Choice(kvstore, self._choice.optimizer, self._choice.params)
            if self._restored is not None:
                return _Choice(kvstore, **_arguments(self._restored["optimizer"]))
            return _Choice(kvstore, "sgd", DEFAULT_PARAMS)
        if isinstance(optimizer, type):
            raise ConfigError(
                f"optimizer is the class {optimizer.__name__}; pass its name and optimizer_params"
            )
        if optimizer is None:
            optimizer = self._known_name()
        if isinstance(optimizer, str):
            return _Choice(kvstore, optimizer, {} if params is None else dict(params))
        if params is not None:
            raise ConfigError("optimizer_params go with an optimizer's name only")
        return _Choice(kvstore, optimizer, None)

    def _known_name(self) -> str:
        if self._choice is not None and isinstance(self._choice.optimizer, str):
            return self._choice.optimizer
        if self._restored is not None:
            return str(self._restored["optimizer"]["name"])
        return "sgd"


def _arguments(described: Mapping[str, Any]) -> dict[str, Any]:
    if described["params"] is None:
        raise ConfigError(
            f"the checkpoint was trained with an optimizer object of class {described['name']}; "
            "pass one again"
        )
    return {"optimizer": described["name"], "params": described["params"]}


def _described(choice: _Choice, trainer: Trainer) -> dict[str, Any]:
    """Return the optimizer as plain values, before any step or scheduler changes them."""
    groups = [
        {name: _plain(value) for name, value in group.items() if name != "params"}
        for group in trainer.optimizer.param_groups
    ]
    named = isinstance(choice.optimizer, str)
    return {
        "name": type(trainer.optimizer).__name__,
        "params": dict(choice.params or {}) if named else None,
        "groups": groups,
    }


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, torch.Tensor) and value.numel() == 1 else value


def _written(described: Mapping[str, Any]) -> str:
    groups = described["groups"]
    shown = {name: value for name, value in groups[0].items() if value not in (None, False)}
    return f"{described['name']} {shown}"


def _release(trainer: Trainer, choice: _Choice) -> None:
    """Close the store that the trainer made for itself."""
    if isinstance(choice.kvstore, str) and isinstance(trainer.kvstore, KVStore):
        trainer.kvstore.close()


def _checked(training: Any) -> Any:
    wanted = {"optimizer", "trainer", "scheduler", "random"}
    if training is not None and (not isinstance(training, dict) or set(training) != wanted):
        raise DataError("the checkpoint's training state lacks an entry or has an unknown one")
    return training


def _load(trainer: Trainer, state: Any) -> None:
    try:
        trainer.load_state_dict(state)
    except (KeyError, ValueError, TypeError) as error:
        raise DataError(f"the checkpoint's optimizer state does not fit: {error}") from error


def _scheduler_of(
    scheduler: SchedulerLike | None, trainer: Trainer
) -> schedulers.LRScheduler | None:
    if scheduler is None:
        return None
    if not isinstance(scheduler, schedulers.LRScheduler) and callable(scheduler):
        scheduler = scheduler(trainer)
    if not isinstance(scheduler, schedulers.LRScheduler):
        raise ConfigError(
            f"lr_scheduler must be a scheduler or make one of the trainer, got {scheduler!r}; "
            "for example lambda trainer: StepLR(trainer, 10)"
        )
    if scheduler.optimizer is not trainer and scheduler.optimizer is not trainer.optimizer:
        raise ConfigError(
            "the lr_scheduler belongs to another optimizer than module.trainer; pass a function "
            "that makes it: lambda trainer: StepLR(trainer, 10)"
        )
    return scheduler


def _random_state() -> dict[str, Any]:
    return {"cpu": torch.get_rng_state(), "cuda": list(torch.cuda.get_rng_state_all())}


def _set_random_state(state: Mapping[str, Any]) -> None:
    torch.set_rng_state(state["cpu"])
    # Another number of GPUs draws other numbers anyway.
    if len(state["cuda"]) == torch.cuda.device_count():
        torch.cuda.set_rng_state_all(state["cuda"])
