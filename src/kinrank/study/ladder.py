"""The ladder: from the engine as it is to `KinRanker`, one ingredient at a time, on the same queries.

the engine -> one tuned LightGBM model -> the same with what everyone chose -> and with what kin chose -> KinRanker
without weights per query -> KinRanker. Memory is measured if queries share documents. The details are linear models,
one for all queries and one per query, and a bag of LightGBM models. No rung is fitted twice: where KinRanker leaves
weights per query out, it is the rung without them.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, cast

import numpy as np
from sklearn.base import clone

from kinrank.data.hashes import hash_texts
from kinrank.data.queryset import QuerySet
from kinrank.data.split import groups_of
from kinrank.data.tables import ENGINE_RANK
from kinrank.data.texts import TEXT
from kinrank.errors import ParameterError
from kinrank.learn.lambdamart import HIGHEST_GRADE
from kinrank.parallel import Threads, map_ordered, usable_threads, use_threads
from kinrank.progress import Parts
from kinrank.rankers import RANKERS
from kinrank.rankers.capabilities import capabilities_of
from kinrank.rankers.kin._parts import WEIGHTS
from kinrank.rankers.kin.ranker import KinRanker
from kinrank.rankers.kin.settings import KinSettings
from kinrank.rankers.knn import KnnRanker
from kinrank.rankers.single import SingleRanker
from kinrank.registry import how_to_install
from kinrank.study._answer import RUNGS
from kinrank.study.comparison import Entrant, Fittable
from kinrank.study.peers import PEERS, LightGBMPeer
from kinrank.study.study import Study

DECISIVE = ("linear", "trees", "without", "kin")
"""Rungs that decide the answer."""
DETAILS = ("bag",)
"""Rungs that are measured only for details."""
_QUICK = {"engine": 1, "linear": 1, "local": 2}
COSTS = _QUICK | {"trees": 15, "everyone": 5, "memory": 5, "bag": 35, "without": 25, "kin": 25}
"""About how long each rung takes, to estimate the time left."""
ENGINE_SCORE = "engine_score"
"""The feature that is taken as the order of the engine, if none is named."""
_REMEMBERING = ("everyone", "memory")
_TUNED = (*_REMEMBERING, "bag")  # rungs that take the shape of the trees from the rung of one tuned model
_FOLLOWING = {**dict.fromkeys(_TUNED, "trees"), "without": "kin"}  # fitted after another rung, with what it found
_LOCAL = ("knn", "cells", "cluster", "query-class")


def rung_of(ranker: object) -> str | None:
    """Return the rung that a ranker stands on; None if it is none of them."""
    for registry in (RANKERS, PEERS):
        with suppress(ParameterError):
            return _rung(registry.name_of(type(ranker)), ranker)
    return None


def _rung(name: str, ranker: Any) -> str | None:
    if name == "kin":
        return "kin" if ranker.local else "without"
    if name == "single":
        return "linear" if capabilities_of(ranker).weights else "trees"
    if name == "lightgbm-memory":
        return "memory" if ranker.parts is None else "everyone"
    peers = {"feature": "engine", "lightgbm": "trees", "lightgbm-bag": "bag"}
    return {**peers, **dict.fromkeys(_LOCAL, "local")}.get(name)


def missing_trees(queries: QuerySet) -> str:
    """Return why the ladder ends before trees on these queries; an empty text if it does not."""
    if importlib.util.find_spec("lightgbm") is None:
        return f"Trees were not measured: they need {how_to_install('lightgbm')} in a checkout."
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


def engine_feature(queries: QuerySet) -> str | None:
    """Return what has the order of the engine: the feature `ENGINE_SCORE`, or the rank that ``kinrank log`` writes.

    None if there is neither.
    """
    if ENGINE_SCORE in queries.feature_names:
        return ENGINE_SCORE
    return ENGINE_RANK if ENGINE_RANK in queries.doc_columns else None


def ladder(kin: KinRanker, engine: str | None = None) -> dict[str, Callable[[], Fittable]]:
    """Return how to make each rung: unfitted, with the description and the preparation of features of `kin`.

    `engine` is the feature by which the engine ranks, if it is known.
    """
    settings = KinSettings.of(kin.settings)
    remembering: dict[str, Any] = {"keys": kin.keys, "group_column": kin.group_column}
    shared: dict[str, Any] = {"scale": settings.scale, "missing": settings.missing}
    described: dict[str, Any] = {"describe": kin.describe, "encoder": kin.encoder, "reference": settings.reference}
    first: dict[str, Callable[[], Fittable]] = {} if engine is None else {"engine": lambda: PEERS["feature"](engine)}
    return first | {
        "linear": lambda: SingleRanker("rankrls", **shared),
        "local": lambda: KnnRanker(**described, **shared, group_column=kin.group_column),
        "trees": lambda: PEERS["lightgbm"](group_column=kin.group_column),
        "everyone": lambda: PEERS["lightgbm-memory"](parts=("everyone",), **remembering),
        "memory": lambda: PEERS["lightgbm-memory"](**remembering),
        "bag": lambda: PEERS["lightgbm-bag"](settings.n_members, group_column=kin.group_column),
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

    `kin`, the ranker at the top, is not fitted again; `measured` has the rungs that were measured on the same queries.
    """
    climbed = dict(measured or {})
    wanted, trees = rungs_to_fit(study, rungs, climbed), climbed.get("trees")
    if trees is not None and not _learned(trees, study):
        wanted = [rung for rung in wanted if rung not in _REMEMBERING]  # others would be compared with these trees
    fitted = fit_rungs(cast(KinRanker, kin), study, wanted, progress, climbed)
    climbed |= {rung: study.pool(of_folds) for rung, of_folds in fitted.items()}
    return {rung: climbed[rung] for rung in RUNGS if rung in climbed}


def fit_rungs(
    kin: KinRanker,
    study: Study,
    rungs: Sequence[str],
    progress: Parts | None = None,
    measured: Mapping[str, Entrant] | None = None,
    engine: str | None = None,
) -> dict[str, list[Entrant]]:
    """Fit rungs on every fold, one on each core, and return their entrants by fold.

    Memory and the bag take the shape of the trees from the rung of one tuned model, which is not tuned again. Where kin
    leaves weights per query out, it is also the rung without them. `measured` has the rungs that are not fitted here.
    """
    made, known = ladder(kin, engine), measured or {}
    chains = [_chain(rung, rungs) for rung in rungs if rung not in _FOLLOWING or _FOLLOWING[rung] not in rungs]

    def fit(job: tuple[int, list[str]]) -> dict[str, Entrant]:
        number, chain = job
        entrants: dict[str, Entrant] = {}
        for rung in chain:
            before = _FOLLOWING.get(rung, "")
            first = entrants.get(before) or _on_fold(known.get(before), number)
            if rung == "without" and first is not None and _without_weights(first.ranker):
                with (progress or Parts(1)).part(study.label(number, RUNGS[rung]), COSTS[rung]):
                    entrants[rung] = replace(first, name=RUNGS[rung])
                continue
            ranker = made[rung]()
            if rung in _TUNED and first is not None and isinstance(first.ranker, LightGBMPeer):
                ranker = cast(Any, ranker).set_params(peer=first.ranker)
            entrants[rung] = study.fit_on(number, RUNGS[rung], ranker, progress, COSTS[rung])
        return entrants

    jobs = [(number, chain) for chain in chains for number in range(len(study.folds))]
    n_workers = min(len(jobs), usable_threads())
    if n_workers < 2:
        fitted = [fit(job) for job in jobs]
    else:
        with use_threads(1):  # LightGBM crashes if models of one process train with different numbers of threads
            fitted = list(map_ordered(Threads(n_workers), fit, jobs))
    by_job = list(zip(jobs, fitted, strict=True))
    return {rung: [entrants[rung] for (_, chain), entrants in by_job if rung in chain] for rung in rungs}


def _chain(first: str, rungs: Sequence[str]) -> list[str]:
    """Return a rung and those that are fitted after it, with what it found."""
    return [first, *(rung for rung in rungs if _FOLLOWING.get(rung) == first)]


def _without_weights(ranker: object) -> bool:
    """Return whether a KinRanker that was fitted left weights per query out."""
    return isinstance(ranker, KinRanker) and any(part.part == WEIGHTS and not part.kept for part in ranker.model_.parts)


def _on_fold(entrant: Entrant | None, number: int) -> Entrant | None:
    """Return the entrant that was fitted on a fold; None if there is none."""
    return None if entrant is None else (entrant.parts or (entrant,))[number]


def _learned(trees: Entrant, study: Study) -> bool:
    """Return whether trees were learned on each fold, so that they can be learned with memory, too."""
    parts = trees.parts or (trees,)
    fixed = any(not getattr(getattr(part.ranker, "learner_", None), "learns", True) for part in parts)
    return trees.origin != "model" and len(parts) == len(study.folds) and not fixed


def rungs_to_fit(study: Study, rungs: Iterable[str], measured: Container[str] = ()) -> list[str]:
    """Return the rungs that are not measured yet and that can be fitted on these queries."""
    trees = bool(study.folds) and not missing_trees(study.folds[0].train)
    wanted = [rung for rung in rungs if rung not in measured and (trees or rung in _QUICK)]
    if any(rung in _REMEMBERING for rung in wanted) and missing_memory(study.folds[0].train, study.group):
        wanted = [rung for rung in wanted if rung not in _REMEMBERING]
    return wanted


def rungs_of(entrants: Sequence[Entrant], subject: str | None = None) -> dict[str, Entrant]:
    """Return the first entrant on each rung, `subject` before others."""
    rungs: dict[str, Entrant] = {}
    for entrant in sorted(entrants, key=lambda each: each.name != subject):
        rung = rung_of(entrant.ranker)
        if rung is not None:
            rungs.setdefault(rung, entrant)
    return rungs
