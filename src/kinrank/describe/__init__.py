"""Query descriptions: represent a query as a point, from its candidates and its text."""

from __future__ import annotations

from kinrank.describe.describer import Describer, make_describer
from kinrank.registry import Registry

__all__ = ["DESCRIBERS", "Describer", "make_describer"]

DESCRIBERS = Registry("describer", {"describer": "kinrank.describe.describer:Describer"})
