"""Query descriptions: represent a query as a point, from its candidates and its text."""

from __future__ import annotations

from kinrank.kin.describer import Describer, make_describer
from kinrank.registry import Registry

__all__ = ["DESCRIBERS", "Describer", "make_describer"]

DESCRIBERS = Registry("describer", {"describer": "kinrank.kin.describer:Describer"})
