"""An optimizer as plain data, on its way from a worker to the servers."""

from collections.abc import Collection, Mapping
from typing import Any

from bireme.errors import ConfigError
from bireme.types.keys import Key
from bireme.update.classes import check_allowed
from bireme.update.spec import OptimizerSpec, Plain

__all__ = ("own_numbers", "spec_of", "spec_with", "to_body")


def to_body(spec: OptimizerSpec, key_ids: Mapping[Key, int]) -> dict[str, object]:
    """Return plain data from which :func:`spec_of` makes the optimizer of each key.

    Args:
        spec: The optimizer.
        key_ids: The job's number of each key that is known so far.

    Example:
        >>> body = to_body(OptimizerSpec("sgd", {"lr": 0.5}, lr_mult={"b": 2.0}), {"a": 1, "b": 2})
        >>> spec_of(body, 1).params["lr"], spec_of(body, 2).params["lr"]
        (0.5, 1.0)
    """
    special = {*spec.groups, *spec.lr_mult, *spec.wd_mult}
    own = [[key_ids[key], _listed(spec.arguments(key))] for key in key_ids if key in special]
    return {
        "name": spec.name,
        "params": _listed(spec.arguments(None)),
        "rescale_grad": spec.rescale_grad,
        "own": own,
    }


def spec_of(
    body: Mapping[str, Any], key_id: int | None, allowed: Collection[str] = ()
) -> OptimizerSpec:
    """Return the optimizer of one key, with all its numbers checked.

    Args:
        body: What :func:`to_body` made, by way of a peer.
        key_id: The key; ``None`` for the numbers that keys have by default.
        allowed: What may be imported, besides ``torch.optim``: modules and ``module:Class``.

    Raises:
        ConfigError: The body is no such thing, its class is not allowed, or torch refuses a
            number.
    """
    own = own_numbers(body)
    return (
        spec_with(body, own[key_id], allowed) if key_id in own else spec_with(body, None, allowed)
    )


def spec_with(body: Mapping[str, Any], params: Any, allowed: Collection[str] = ()) -> OptimizerSpec:
    """Return the optimizer with some key's numbers, as :func:`spec_of` does.

    Args:
        body: As for :func:`spec_of`.
        params: Of :func:`own_numbers`; ``None`` for the common ones.
        allowed: As for :func:`spec_of`.
    """
    try:
        name, rescale_grad = body["name"], body["rescale_grad"]
        params = body["params"] if params is None else params
    except (KeyError, TypeError) as error:
        raise ConfigError(f"an optimizer was sent that cannot be read: {error!r}") from error
    check_allowed(name, allowed)
    return OptimizerSpec(name, params, rescale_grad=rescale_grad)


def own_numbers(body: Mapping[str, Any]) -> dict[int | None, Any]:
    """Return the numbers, not checked, of the keys that have some of their own.

    Raises:
        ConfigError: They cannot be read.

    Example:
        >>> own_numbers(to_body(OptimizerSpec("sgd", lr_mult={"b": 0.0}), {"a": 1, "b": 2})).keys()
        dict_keys([2])
    """
    try:
        return {number: params for number, params in body["own"]}
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigError(f"an optimizer was sent that cannot be read: {error!r}") from error


def _listed(arguments: Mapping[str, Plain]) -> dict[str, object]:
    # Plain data on the wire has lists, not tuples.
    return {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in arguments.items()
    }
