"""How a stored value changes: what it may look like, the rule that changes it, its state on disk.

Used by stores that run an optimizer in the process, and by servers.
"""

from bireme.update.body import own_numbers as own_numbers
from bireme.update.body import spec_of as spec_of
from bireme.update.body import spec_with as spec_with
from bireme.update.body import to_body as to_body
from bireme.update.layout import Layout as Layout
from bireme.update.rule import Update as Update
from bireme.update.runner import OptimizerRunner as OptimizerRunner
from bireme.update.spec import OptimizerSpec as OptimizerSpec
from bireme.update.wholeness import needs_whole_values as needs_whole_values

__all__ = (
    "Layout",
    "OptimizerRunner",
    "OptimizerSpec",
    "Update",
    "needs_whole_values",
    "own_numbers",
    "spec_of",
    "spec_with",
    "to_body",
)
