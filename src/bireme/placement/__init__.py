"""Which server holds what: how keys are cut into slots, and how slots are spread. Pure."""

from bireme.placement.balance import Balancer as Balancer
from bireme.placement.links import Site as Site
from bireme.placement.links import Spread as Spread
from bireme.placement.links import spread as spread
from bireme.placement.slices import Span as Span
from bireme.placement.slices import cut as cut

__all__ = ("Balancer", "Site", "Span", "Spread", "cut", "spread")
