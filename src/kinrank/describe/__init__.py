"""A query as a point: what its candidates and its words say about it."""

from __future__ import annotations

from kinrank.describe.describer import Describer, as_describer
from kinrank.describe.metrics import METRICS

__all__ = ["METRICS", "Describer", "as_describer"]
