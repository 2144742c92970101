"""Plain values shared by every layer. No torch, no I/O."""

from bireme.types.choices import Consistency as Consistency
from bireme.types.choices import DeathPolicy as DeathPolicy
from bireme.types.choices import Layout as Layout
from bireme.types.context import Context as Context
from bireme.types.context import cpu as cpu
from bireme.types.context import gpu as gpu
from bireme.types.context import parse_contexts as parse_contexts
from bireme.types.dtypes import DType as DType
from bireme.types.nodes import SCHEDULER as SCHEDULER
from bireme.types.nodes import NodeId as NodeId
from bireme.types.nodes import Role as Role
from bireme.types.nodes import server as server
from bireme.types.nodes import worker as worker
from bireme.types.topology import ReduceOp as ReduceOp
from bireme.types.topology import Topology as Topology

__all__ = (
    "SCHEDULER",
    "Consistency",
    "Context",
    "DType",
    "DeathPolicy",
    "Layout",
    "NodeId",
    "ReduceOp",
    "Role",
    "Topology",
    "cpu",
    "gpu",
    "parse_contexts",
    "server",
    "worker",
)
