"""Which server holds what: how keys are cut into slots, and how slots are spread. Pure."""

from bireme.placement.balance import Balancer as Balancer
from bireme.placement.slices import Span as Span
from bireme.placement.slices import cut as cut

__all__ = ("Balancer", "Span", "cut")
