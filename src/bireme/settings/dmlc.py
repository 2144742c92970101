"""The variables of MXNet and ps-lite that mean the same as ours.

``BIREME_*`` comes first. Called by the settings classes; ``settings.unused`` names those that
have no counterpart.

Source: ps-lite ``docs/env.md`` and ``src/postoffice.cc``, MXNet 1.9 ``docs/faq/env_var.md``.
"""

from collections.abc import Callable, Mapping

from bireme.errors import ConfigError

__all__ = ("SPELLINGS", "translate")

SPELLINGS: Mapping[str, str] = {
    "BIREME_ROLE": "DMLC_ROLE",
    "BIREME_NUM_WORKERS": "DMLC_NUM_WORKER",
    "BIREME_NUM_SERVERS": "DMLC_NUM_SERVER",
    "BIREME_SCHEDULER_HOST": "DMLC_PS_ROOT_URI",
    "BIREME_SCHEDULER_PORT": "DMLC_PS_ROOT_PORT",
    "BIREME_RANK": "DMLC_TASK_ID",
    "BIREME_HOST": "DMLC_NODE_HOST",
    "BIREME_INTERFACE": "DMLC_INTERFACE",
    "BIREME_BIND": "DMLC_USE_KUBERNETES",
    "BIREME_LOG": "PS_VERBOSE",
    "BIREME_HEARTBEAT_INTERVAL": "PS_HEARTBEAT_INTERVAL",
    "BIREME_HEARTBEAT_TIMEOUT": "PS_HEARTBEAT_TIMEOUT",
    "BIREME_RESEND_TIMEOUT": "PS_RESEND_TIMEOUT",
}
"""Our variables and the ones that MXNet's launchers and users set for the same."""


def translate(mapping: Mapping[str, str]) -> dict[str, str]:
    """Return ``mapping`` with our own variables filled in from MXNet's where they are not set.

    Raises:
        ConfigError: A value has a meaning that cannot be carried over.

    Example:
        >>> translate({"DMLC_ROLE": "server", "PS_RESEND_TIMEOUT": "2000"})["BIREME_RESEND_TIMEOUT"]
        '2.0'
    """
    result = dict(mapping)
    for ours, theirs in SPELLINGS.items():
        text = mapping.get(theirs, "").strip()
        if not text or mapping.get(ours, "").strip():
            continue
        carried = _CARRY.get(theirs, _as_it_is)(text, mapping)
        if carried is not None:
            result[ours] = carried
    return result


def _as_it_is(text: str, _mapping: Mapping[str, str]) -> str | None:
    return text


def _rank(text: str, mapping: Mapping[str, str]) -> str | None:
    """A worker's task number is its rank; servers are numbered after the workers or not at all."""
    role = mapping.get("BIREME_ROLE") or mapping.get("DMLC_ROLE", "")
    return text if role.strip().lower() == "worker" else None


def _bind(text: str, mapping: Mapping[str, str]) -> str | None:
    return None if text == "0" else "0.0.0.0"


def _log_level(text: str, _mapping: Mapping[str, str]) -> str | None:
    return {"0": None, "1": "info"}.get(text, "debug")


def _seconds(text: str, _mapping: Mapping[str, str]) -> str | None:
    """Zero meant no heartbeats; they are always on here."""
    return None if text == "0" else text


def _milliseconds(text: str, _mapping: Mapping[str, str]) -> str | None:
    try:
        return str(float(text) / 1000)
    except ValueError as error:
        raise ConfigError(
            f"PS_RESEND_TIMEOUT must be a number of milliseconds, got {text!r}"
        ) from error


_CARRY: Mapping[str, Callable[[str, Mapping[str, str]], str | None]] = {
    "DMLC_TASK_ID": _rank,
    "DMLC_USE_KUBERNETES": _bind,
    "PS_VERBOSE": _log_level,
    "PS_HEARTBEAT_INTERVAL": _seconds,
    "PS_HEARTBEAT_TIMEOUT": _seconds,
    "PS_RESEND_TIMEOUT": _milliseconds,
}
