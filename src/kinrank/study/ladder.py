"""The ladder: from one linear model to `KinRanker`, one ingredient at a time, on the same queries.

one linear model -> a linear model per query -> one tuned LightGBM model -> the same with memory -> a bag of such models
-> KinRanker without weights per query -> KinRanker. What weights per query add to the recommended ranker is the last
step; the difference between the first and the last rung is mostly that of trees. Memory is measured if queries share
documents.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, cast

import numpy as np
from sklearn.base import clone

from kinrank.data.hashes import hash_texts
from kinrank.data.queryset import QuerySet
from kinrank.data.split import groups_of
from kinrank.data.texts import TEXT
from kinrank.errors import ParameterError
from kinrank.learn.lambdamart import HIGHEST_GRADE
from kinrank.parallel import Threads, map_ordered, usable_threads, use_threads
from kinrank.progress import Parts
from kinrank.rankers import RANKERS
from kinrank.rankers.capabilities import capabilities_of
from kinrank.rankers.kin.ranker import KinRanker
from kinrank.rankers.knn.ranker import KnnRanker
from kinrank.rankers.single import SingleRanker
from kinrank.study.answer import RUNGS
from kinrank.study.comparison import Entrant, Fittable
from kinrank.study.peers import PEERS, LightGBMPeer
from kinrank.study.study import Study

DECISIVE = ("linear", "trees", "without", "kin")
"""Rungs that decide the answer."""
COSTS = {"linear": 1, "local": 2, "trees": 15, "memory": 5, "bag": 35, "without": 25, "kin": 25}
"""About how long each rung takes, to estimate the time left."""
_LINEAR = ("linear", "local")
_TUNED = ("memory", "bag")  # rungs that take the shape of the trees from the rung of one tuned model
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
    peers = {"lightgbm": "trees", "lightgbm-bag": "bag", "lightgbm-memory": "memory"}
    return {**peers, **dict.fromkeys(_LOCAL, "local")}.get(name)


def missing_trees(queries: QuerySet) -> str:
    """Return why the ladder ends before trees on these queries; an empty text if it does not."""
    if importlib.util.find_spec("lightgbm") is None:
        return "Trees were not measured: they need pip install 'kinrank[lightgbm]'."
    grades = queries.grades
    if np.any((grades < 0) | (grades > HIGHEST_GRADE) | (grades != np.floor(grades))):
        return f"Trees were not measured: they need whole grades from 0 to {HIGHEST_GRADE}."
    return ""


def missing_memory(queries: QuerySet, group: str | None = None) -> str:
    """Return why there is nothing to remember for other queries; an empty text if there may be something."""
    if queries.doc_id is None or TEXT not in queries.query_columns:
        lacking = "documents have no ids" if queries.doc_id is None else "queries have no texts"
        return f"Memory was not measured: {lacking}."
    owner = np.arange(len(queries)) if group is None else np.unique(groups_of(queries, group), return_inverse=True)[1]
    document, owner = hash_texts(queries.doc_id), owner[queries.query_of_row]
    order = np.lexsort((owner, document))
    document, owner = document[order], owner[order]
    if not ((document[1:] == document[:-1]) & (owner[1:] != owner[:-1])).any():
        two = "two queries" if group is None else "queries of two groups"
        return f"Memory was not measured: no document is a candidate of {two}."
    return ""


def ladder(kin: KinRanker) -> dict[str, Callable[[], Fittable]]:
    """Return how to make each rung: unfitted, with the description and the preparation of features of `kin`.

    Examples
    --------
    >>> list(ladder(KinRanker()))
    ['linear', 'local', 'trees', 'memory', 'bag', 'without', 'kin']
    """
    shared: dict[str, Any] = {"scale": kin.scale, "missing": kin.missing}
    described: dict[str, Any] = {"describe": kin.describe, "encoder": kin.encoder, "reference": kin.reference}
    return {
        "linear": lambda: SingleRanker("rankrls", **shared),
        "local": lambda: KnnRanker(**described, **shared, group_column=kin.group_column),
        "trees": lambda: PEERS["lightgbm"](group_column=kin.group_column),
        "memory": lambda: PEERS["lightgbm-memory"](keys=kin.keys, group_column=kin.group_column),
        "bag": lambda: PEERS["lightgbm-bag"](kin.n_members, group_column=kin.group_column),
        "without": lambda: clone(kin).set_params(local=False),
        "kin": lambda: clone(kin).set_params(local=kin.local or "auto"),
    }


def climb(
    kin: Fittable,
    study: Study,
    *,
    rungs: Iterable[str] = DECISIVE,
    measured: Mapping[str, Entrant] | None = None,
    progress: Parts | None = None,
) -> dict[str, Entrant]:
    """Fit and measure the rungs that are not measured yet; without LightGBM, the linear ones.

    Parameters
    ----------
    kin
        The ranker at the top, a `KinRanker`; it is not fitted again.
    study
        Queries to fit on and to measure on.
    rungs
        The rungs to measure.
    measured
        Rungs that have been measured on the same queries.
    progress
        Progress of the whole study; a rung counts `COSTS`.
    """
    climbed = dict(measured or {})
    wanted, trees = rungs_to_fit(study, rungs, climbed), climbed.get("trees")
    if "memory" in wanted and trees is not None and not _learned(trees, study):
        wanted.remove("memory")  # others would be compared with these trees
    fitted = fit_rungs(cast(KinRanker, kin), study, wanted, progress, trees)
    climbed |= {rung: study.pool(of_folds) for rung, of_folds in fitted.items()}
    return {rung: climbed[rung] for rung in RUNGS if rung in climbed}


def fit_rungs(
    kin: KinRanker, study: Study, rungs: Sequence[str], progress: Parts | None = None, trees: Entrant | None = None
) -> dict[str, list[Entrant]]:
    """Fit rungs on every fold, one on each core, and return their entrants by fold.

    Memory and the bag take the shape of the trees from the rung of one tuned model, which is not tuned again;
    `trees` is that rung if it is measured already.
    """
    made = ladder(kin)
    chains = [[rung] for rung in rungs if rung not in _TUNED or "trees" not in rungs]
    if "trees" in rungs:
        chains[chains.index(["trees"])] = ["trees", *(rung for rung in _TUNED if rung in rungs)]

    def fit(job: tuple[int, list[str]]) -> dict[str, Entrant]:
        number, chain = job
        entrants: dict[str, Entrant] = {}
        for rung in chain:
            tuned = entrants["trees"].ranker if "trees" in entrants else _on_fold(trees, number)
            ranker = _tuned(rung, made[rung](), tuned)
            entrants[rung] = study.fit_on(number, RUNGS[rung], ranker, progress, COSTS[rung])
        return entrants

    jobs = [(number, chain) for chain in chains for number in range(len(study.folds))]
    n_workers = min(len(jobs), usable_threads())
    if n_workers < 2:
        fitted = [fit(job) for job in jobs]
    else:
        with use_threads(max(1, usable_threads() // n_workers)):
            fitted = list(map_ordered(Threads(n_workers), fit, jobs))
    by_job = list(zip(jobs, fitted, strict=True))
    return {rung: [entrants[rung] for (_, chain), entrants in by_job if rung in chain] for rung in rungs}


def _on_fold(entrant: Entrant | None, number: int) -> object:
    """Return the ranker of an entrant that was fitted on a fold; None if there is none."""
    return None if entrant is None else (entrant.parts or (entrant,))[number].ranker


def _learned(trees: Entrant, study: Study) -> bool:
    """Return whether trees were learned on each fold, so that they can be learned with memory, too."""
    parts = trees.parts or (trees,)
    fixed = any(not getattr(getattr(part.ranker, "learner_", None), "learns", True) for part in parts)
    return trees.origin != "model" and len(parts) == len(study.folds) and not fixed


def _tuned(rung: str, ranker: Any, trees: Any) -> Any:
    """Return an unfitted ranker with the shape of tuned trees, if it takes it."""
    return ranker.set_params(peer=trees) if rung in _TUNED and isinstance(trees, LightGBMPeer) else ranker


def rungs_to_fit(study: Study, rungs: Iterable[str], measured: Container[str] = ()) -> list[str]:
    """Return the rungs that are not measured yet and that can be fitted on these queries."""
    trees = bool(study.folds) and not missing_trees(study.folds[0].train)
    wanted = [rung for rung in rungs if rung not in measured and (trees or rung in _LINEAR)]
    if "memory" in wanted and missing_memory(study.folds[0].train, study.group):
        wanted.remove("memory")
    return wanted


def rungs_of(entrants: Sequence[Entrant], subject: str | None = None) -> dict[str, Entrant]:
    """Return the first entrant on each rung, `subject` before others."""
    rungs: dict[str, Entrant] = {}
    for entrant in sorted(entrants, key=lambda each: each.name != subject):
        rung = rung_of(entrant.ranker)
        if rung is not None:
            rungs.setdefault(rung, entrant)
    return rungs
