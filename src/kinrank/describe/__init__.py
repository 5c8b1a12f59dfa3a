"""A query as a point: what its candidates and its words say about it."""

from __future__ import annotations

from kinrank.describe.describer import Describer, make_describer
from kinrank.describe.metrics import METRICS
from kinrank.registry import Registry

__all__ = ["DESCRIBERS", "METRICS", "Describer", "make_describer"]

DESCRIBERS = Registry("describer", {"describer": "kinrank.describe.describer:Describer"})
