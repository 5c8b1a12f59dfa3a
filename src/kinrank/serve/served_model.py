"""A model in use: the fitted model and the judgments learned since."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from kinrank.rankers import RANKERS
from kinrank.rankers.base import Ranker
from kinrank.rankers.capabilities import can_adapt, takes_evidence
from kinrank.serve.encoding import QueryEncoder
from kinrank.store import Examples

FIT_SHARE = 0.1  # of the judged queries not seen by trees: then a fit is recommended


@dataclass(frozen=True, eq=False)
class ServedModel:
    """A model in use. It never changes, so a request keeps the model it started with."""

    fitted: str
    """The first digits of the manifest's SHA-256; identical folders have identical versions."""
    ranker: Ranker
    """The model with the judgments learned since it was fitted."""
    base: Ranker
    """The model as it was fitted."""
    tested: bool
    """Whether its folder had examples for the self-test."""
    encoder: QueryEncoder
    """Adds the vector of a query's text. It stays the same when judgments are learned, with what it remembers."""
    judgments: int = 0
    """Judged queries learned since it was fitted."""
    consolidated: int = 0
    """How many of those were learned when the ranker was last written to disk and read again."""
    revision: int | None = None
    """The revision of the judgment store that the ranker has learned; None if there is no store."""
    mark: str = ""
    """Identifies the history of the judgment store up to the revision."""
    evidence: int = 0
    """The revision of the choices that the ranker has; 0 if it has none."""
    evidence_mark: str = ""
    """Identifies the history of the choices up to the revision."""
    examples: Examples | None = None
    """The stored queries, and the scores they had when the model was written."""

    @property
    def version(self) -> str:
        """What ranks: the fitted model, the judgments learned since, and the choices.

        The revision of the judgments follows a plus sign, that of the choices a tilde, and each has its mark: after
        restoring a copy of the database, numbers are used again.
        """
        learned = "" if self.revision is None else f"+{self.revision}{self.mark and '.' + self.mark}"
        chosen = f"~{self.evidence}{self.evidence_mark and '.' + self.evidence_mark}" if self.evidence else ""
        return f"{self.fitted}{learned}{chosen}"

    @cached_property
    def choices(self) -> Any | None:
        """The ranker if it takes what people chose, which takes too long to find out for each query; else None."""
        return self.ranker if takes_evidence(self.ranker) else None

    @property
    def ranker_name(self) -> str:
        """The registered name of the ranker."""
        return RANKERS.name_of(type(self.ranker))

    @property
    def judged_queries(self) -> int | None:
        """The number of judged queries that the model holds; None if it does not keep them."""
        return self.ranker.n_judged_ if can_adapt(self.ranker) else None

    @property
    def unseen_judgments(self) -> int:
        """The number of judged queries that a part of the model learns from only with the next fit."""
        return self.ranker.n_unseen_ if can_adapt(self.ranker) else 0

    @property
    def fit_recommended(self) -> bool:
        """Whether enough judged queries await a new fit."""
        return self.unseen_judgments >= FIT_SHARE * (self.judged_queries or math.inf)
