"""The ladder: from one linear model to `KinRanker`, one ingredient at a time, on the same queries.

one linear model -> a linear model per query -> one tuned LightGBM model -> a bag of such models -> KinRanker without
the queries' own models -> KinRanker. What per-query learning adds to the recommended ranker is the last step; the
difference between the first and the last rung is mostly that of trees.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, cast

import numpy as np
from sklearn.base import clone

from kinrank.data.queryset import QuerySet
from kinrank.errors import ParameterError
from kinrank.learn.lambdamart import HIGHEST_GRADE
from kinrank.measure import Measure
from kinrank.rankers import RANKERS
from kinrank.rankers.capabilities import capabilities_of
from kinrank.rankers.kin.ranker import KinRanker
from kinrank.rankers.knn.ranker import KnnRanker
from kinrank.rankers.single import SingleRanker
from kinrank.study.answer import MIN_GAIN, RUNGS, Answer, answer
from kinrank.study.comparison import Entrant, Fittable
from kinrank.study.entrants import fit_and_evaluate
from kinrank.study.peers import PEERS

DECISIVE = ("linear", "trees", "without", "kin")
"""Rungs that decide the answer."""
_LINEAR = ("linear", "local")
_LOCAL = ("knn", "cells", "cluster", "query-class")


def rung_of(ranker: object) -> str | None:
    """Return the rung that a ranker stands on; None if it is none of them.

    Examples
    --------
    >>> rung_of(KinRanker()), rung_of(KinRanker(local=False)), rung_of(SingleRanker("lambdamart"))
    ('kin', 'without', 'trees')
    """
    for registry in (RANKERS, PEERS):
        with suppress(ParameterError):
            return _rung(registry.name_of(type(ranker)), ranker)
    return None


def _rung(name: str, ranker: Any) -> str | None:
    if name == "kin":
        return "kin" if ranker.local else "without"
    if name == "single":
        return "linear" if capabilities_of(ranker).weights else "trees"
    return {"lightgbm": "trees", "lightgbm-bag": "bag", **dict.fromkeys(_LOCAL, "local")}.get(name)


def missing_trees(queries: QuerySet) -> str:
    """Return why the ladder ends before trees on these queries; an empty text if it does not."""
    if importlib.util.find_spec("lightgbm") is None:
        return "Trees were not measured: they need pip install 'kinrank[lightgbm]'."
    grades = queries.grades
    if np.any((grades < 0) | (grades > HIGHEST_GRADE) | (grades != np.floor(grades))):
        return f"Trees were not measured: they need whole grades from 0 to {HIGHEST_GRADE}."
    return ""


def ladder(kin: KinRanker) -> dict[str, Callable[[], Fittable]]:
    """Return how to make each rung: unfitted, with the description and the preparation of features of `kin`.

    Examples
    --------
    >>> list(ladder(KinRanker()))
    ['linear', 'local', 'trees', 'bag', 'without', 'kin']
    """
    shared: dict[str, Any] = {"scale": kin.scale, "missing": kin.missing}
    described: dict[str, Any] = {"describe": kin.describe, "encoder": kin.encoder, "reference": kin.reference}
    return {
        "linear": lambda: SingleRanker("rankrls", **shared),
        "local": lambda: KnnRanker(**described, **shared, group_column=kin.group_column),
        "trees": lambda: PEERS["lightgbm"](group_column=kin.group_column),
        "bag": lambda: PEERS["lightgbm-bag"](kin.n_members, group_column=kin.group_column),
        "without": lambda: clone(kin).set_params(local=False),
        "kin": lambda: clone(kin).set_params(local=True),
    }


def climb(
    kin: Fittable,
    train: QuerySet,
    test: QuerySet,
    measure: Measure,
    *,
    rungs: Iterable[str] = DECISIVE,
    known: Mapping[str, Entrant] | None = None,
    advance: Callable[[int], None] = lambda _: None,
) -> dict[str, Entrant]:
    """Fit and measure the rungs that are not known yet; without LightGBM, the linear ones.

    Parameters
    ----------
    kin
        The ranker at the top, a `KinRanker`; it is not fitted again.
    train, test
        Judged queries to fit on, and to measure on.
    measure
        The measure.
    rungs
        The rungs to measure.
    known
        Rungs that have been measured on `test`.
    advance
        Called with 1 after every rung.
    """
    found = dict(known or {})
    made = ladder(cast(KinRanker, kin))
    for rung in rungs:
        if rung not in found and (rung in _LINEAR or not missing_trees(train)):
            found[rung] = fit_and_evaluate(RUNGS[rung], made[rung](), train, test, [measure])
        advance(1)
    return {rung: found[rung] for rung in RUNGS if rung in found}


def rungs_of(entrants: Sequence[Entrant], subject: str | None = None) -> dict[str, Entrant]:
    """Return the first entrant on each rung, `subject` before others."""
    found: dict[str, Entrant] = {}
    for entrant in sorted(entrants, key=lambda each: each.name != subject):
        rung = rung_of(entrant.ranker)
        if rung is not None:
            found.setdefault(rung, entrant)
    return found


def answer_of(
    rungs: Mapping[str, Entrant], measure: Measure, *, min_gain: float = MIN_GAIN, note: str = ""
) -> Answer | None:
    """Return what measured rungs say, under the names of their entrants; see `kinrank.study.answer.answer`."""
    values = {rung: entrant.per_query(measure) for rung, entrant in rungs.items()}
    names = {rung: entrant.name for rung, entrant in rungs.items()}
    return answer(values, names, min_gain=min_gain, note=note)
