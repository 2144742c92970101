"""What a node is told before it starts: who it is, where the others are, what the job wants.

Pure: settings are read from a mapping and written to one, so that a launcher and the nodes it
starts cannot disagree. Precedence everywhere: argument, then environment, then default.
"""

from bireme.settings.job import JobSettings as JobSettings
from bireme.settings.job import TransportChoice as TransportChoice
from bireme.settings.node import NodeSettings as NodeSettings
from bireme.settings.node import Security as Security
from bireme.settings.node import is_launched as is_launched
from bireme.settings.unused import notices as notices

__all__ = (
    "JobSettings",
    "NodeSettings",
    "Security",
    "TransportChoice",
    "is_launched",
    "notices",
)
