"""Variables that look as if they mattered and do not: named, never dropped in silence.

Called by whoever starts a node; it logs the lines as warnings.
"""

import difflib
from collections.abc import Mapping

from bireme.settings.collective import CollectiveSettings
from bireme.settings.dmlc import SPELLINGS
from bireme.settings.job import JobSettings
from bireme.settings.node import NodeSettings
from bireme.settings.variables import variables

__all__ = ("UNUSED", "notices")

UNUSED: Mapping[str, str] = {
    "PORT": "nodes choose free ports themselves",
    "DMLC_LOCAL": "processes of one machine share memory anyway",
    "DMLC_PS_WATER_MARK": "set BIREME_WINDOW_BYTES to bound what is under way",
    "DMLC_ENABLE_RDMA": "there is no RDMA transport for the parameter server; TCP is used",
    "DMLC_ENABLE_UCX": "there is no UCX transport for the parameter server; TCP is used",
    "PS_DROP_MSG": "no messages are dropped",
    "MXNET_KVSTORE_BIGARRAY_BOUND": "set BIREME_SLICE_BYTES to cut values differently",
    "MXNET_KVSTORE_SLICE_THRESHOLD": "set BIREME_SLICE_BYTES to cut values differently",
}
"""Variables that changed something in MXNet and change nothing here, and what to do instead."""

_HARMLESS = frozenset(
    {
        "DMLC_JOB_CLUSTER",
        "DMLC_NUM_ATTEMPT",
        "DMLC_MAX_ATTEMPT",
        "DMLC_RANK",
        "DMLC_SERVER_ID",
        "DMLC_WORKER_ID",
        "DMLC_TRACKER_URI",
        "DMLC_TRACKER_PORT",
        "DMLC_PS_VAN_TYPE",
        "PS_RESEND",
    }
)
"""Known to ps-lite's launchers, of no consequence here: resending and priorities are always on."""

_SOFTWARE_VANS = frozenset({"", "zmq", "0mq", "p3"})

_CLASSES = (NodeSettings, JobSettings, CollectiveSettings)
_OURS = ("BIREME_", "DMLC_", "PS_")


def notices(mapping: Mapping[str, str]) -> list[str]:
    """Return a line for each variable of ours or of ps-lite's that has no effect.

    Args:
        mapping: Such as ``os.environ``.

    Example:
        >>> for line in notices({"DMLC_ROLE": "worker", "PS_DROP_MSG": "9", "BIREME_RANKS": "1"}):
        ...     print(line)
        BIREME_RANKS has no effect: no such variable; did you mean BIREME_RANK?
        PS_DROP_MSG=9 has no effect: no messages are dropped
    """
    lines = [_notice(name, mapping[name].strip()) for name in sorted(mapping)]
    return [line for line in lines if line]


def _notice(name: str, text: str) -> str:
    if name in UNUSED:
        return "" if text in ("", "0") else f"{name}={text} has no effect: {UNUSED[name]}"
    if name == "DMLC_PS_VAN_TYPE" and text.lower() not in _SOFTWARE_VANS:
        return f"{name}={text} has no effect: TCP or shared memory is used"
    if not name.startswith(_OURS):
        return ""
    known = _known()
    if name in known:
        return ""
    close = difflib.get_close_matches(name, known, n=1)
    hint = f"; did you mean {close[0]}?" if close else ""
    return f"{name} has no effect: no such variable{hint}"


def _known() -> list[str]:
    ours = [each.name for cls in _CLASSES for each in variables(cls).values()]
    return sorted({*ours, *SPELLINGS.values(), *_HARMLESS})
