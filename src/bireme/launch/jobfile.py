"""Job files: the flags of ``bireme run`` as YAML, and the configuration files of ``horovodrun``.

A file gives defaults; what the command line says comes before it. Pure but for reading the file.
"""

import argparse
import difflib
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from bireme.errors import ConfigError

__all__ = ("defaults_of", "read_job_file", "set_defaults")

_HOROVODRUN = {
    "params": {
        "fusion_threshold_mb": "fusion-threshold-mb",
        "cycle_time_ms": "cycle-time-ms",
        "cache_capacity": "cache-capacity",
        "hierarchical_allreduce": "hierarchical-allreduce",
        "hierarchical_allgather": "hierarchical-allgather",
        "torus_allreduce": "torus-allreduce",
    },
    "autotune": {
        "enabled": "autotune",
        "log_file": "autotune-log-file",
        "warmup_samples": "autotune-warmup-samples",
        "steps_per_sample": "autotune-steps-per-sample",
        "bayes_opt_max_samples": "autotune-bayes-opt-max-samples",
        "gaussian_process_noise": "autotune-gaussian-process-noise",
    },
    "timeline": {"filename": "timeline-filename", "mark_cycles": "timeline-mark-cycles"},
    "stall_check": {
        "enabled": "stall-check",
        "warning_time_seconds": "stall-check-warning-time-seconds",
        "shutdown_time_seconds": "stall-check-shutdown-time-seconds",
    },
    "library_options": {
        "mpi_threads_disable": "mpi-threads-disable",
        "num_nccl_streams": "num-nccl-streams",
        "thread_affinity": "thread-affinity",
        "gloo_timeout_seconds": "gloo-timeout-seconds",
    },
    "logging": {"level": "log-level", "with_timestamp": "log-with-timestamp"},
}
"""The sections of horovodrun's files, and the flag for each of their keys."""

_IN_SECTIONS = {"controller": {"gloo": "gloo", "mpi": "mpi", "jsrun": "jsrun"}}
_NEVER = frozenset({"help", "version", "config", "arguments", "dry_run", "check_build"})


def read_job_file(path: str) -> dict[str, object]:
    """Return what a YAML file holds: keys and values.

    Raises:
        ConfigError: It cannot be read, or is no mapping.
    """
    try:
        found = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the job file: {error}") from error
    except yaml.YAMLError as error:
        raise ConfigError(f"{path} is no YAML: {error}") from error
    if found is None:
        return {}
    if not isinstance(found, dict) or not all(isinstance(key, str) for key in found):
        raise ConfigError(f"{path} must have keys and values, such as 'num-workers: 2'")
    return found


def set_defaults(parser: argparse.ArgumentParser, path: str) -> None:
    """Have a parser take what a file says where the command line says nothing.

    Raises:
        ConfigError: A key is unknown, or its value is none of its flag's.
    """
    parser.set_defaults(**defaults_of(parser, read_job_file(path), path))


def defaults_of(
    parser: argparse.ArgumentParser, found: Mapping[str, object], path: str
) -> dict[str, object]:
    """Return the parser's defaults that keys and values mean.

    Args:
        parser: Whose flags are the keys, without dashes before, with dashes or underscores between.
        found: What a file holds. ``command`` is the command, as a list or as a shell would split
            it; ``env``, ``env-server`` and ``env-worker`` are mappings; sections of horovodrun's
            files are understood.
        path: Its name, for messages.

    Raises:
        ConfigError: A key is unknown, or its value is none of its flag's.
    """
    actions = {
        name.lstrip("-"): action
        for action in parser._actions
        for name in action.option_strings
        if name.startswith("--") and action.dest not in _NEVER
    }
    defaults: dict[str, object] = {}
    for key, value in _flat(found, path).items():
        if key == "command":
            defaults["arguments"] = _command(value, path)
            continue
        action = actions.get(key)
        if action is None:
            close = difflib.get_close_matches(key, [*actions, "command"], n=1)
            hint = f"; did you mean {close[0]}?" if close else f"; there are {', '.join(actions)}"
            raise ConfigError(f"{path}: unknown key {key!r}{hint}")
        defaults[action.dest] = _value(action, key, value, path)
    return {name: value for name, value in defaults.items() if value is not None}


def _flat(found: Mapping[str, object], path: str) -> dict[str, object]:
    """Return every key as a flag's name, those of sections too."""
    flat: dict[str, object] = {}
    for key, value in found.items():
        if key in _IN_SECTIONS:
            flat[_key(_IN_SECTIONS[key], str(value), path)] = True
        elif key in _HOROVODRUN and isinstance(value, dict):
            section = _HOROVODRUN[key]
            flat |= {_key(section, str(name), path): each for name, each in value.items()}
        else:
            flat[key.replace("_", "-")] = value
    return flat


def _key(section: Mapping[str, str], name: str, path: str) -> str:
    if name not in section:
        raise ConfigError(f"{path}: unknown key {name!r}; there are {', '.join(section)}")
    return section[name]


def _command(value: object, path: str) -> list[str]:
    if isinstance(value, str):
        return shlex.split(value)
    if isinstance(value, list) and all(isinstance(each, str | int | float) for each in value):
        return [str(each) for each in value]
    raise ConfigError(f"{path}: command must be a string or a list of words, got {value!r}")


def _value(action: argparse.Action, key: str, value: Any, path: str) -> object:
    if isinstance(action, argparse._AppendAction):
        return _several(key, value, path)
    if action.nargs == 0:
        if not isinstance(value, bool):
            raise ConfigError(f"{path}: {key} must be true or false, got {value!r}")
        return action.const if value else None
    if isinstance(value, list) and key == "hosts":
        value = ",".join(map(str, value))
    if isinstance(value, bool | list | dict) or value is None:
        raise ConfigError(f"{path}: {key} takes one value, got {value!r}")
    text = str(value)
    try:
        made = action.type(text) if callable(action.type) else text
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{path}: {key} cannot be {text!r}") from error
    if action.choices is not None and made not in action.choices:
        raise ConfigError(f"{path}: {key} is one of {', '.join(action.choices)}; got {text!r}")
    return made


def _several(key: str, value: object, path: str) -> list[str]:
    if isinstance(value, dict):
        return [
            str(name) if each is None else f"{name}={_text(each)}" for name, each in value.items()
        ]
    if isinstance(value, list):
        return [str(each) for each in value]
    raise ConfigError(f"{path}: {key} takes a list, or names and values; got {value!r}")


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
