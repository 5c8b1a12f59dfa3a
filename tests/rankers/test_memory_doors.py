"""Memory behind every door: however a model is asked, a candidate has the same score, and the same rank."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from kinrank import KinRanker, QuerySet, load
from kinrank.arrays import Float64
from kinrank.cli.app import app
from kinrank.memory.evidence import Evidence
from kinrank.serve import CandidateSet, Service, Settings
from tests.rankers.test_kin_memory import FEW, shop

N_TRAIN = 120
Door = Callable[[KinRanker, QuerySet, Path], Float64]


@pytest.fixture(scope="module")
def queries() -> QuerySet:
    return shop()


@pytest.fixture(scope="module")
def new(queries: QuerySet) -> QuerySet:
    """New queries: people have chosen for half of their texts."""
    return queries[N_TRAIN:].replace(y=None)


def evidence_of(days: slice) -> Evidence:
    """Return what people chose on some of twenty days."""
    rng, watched = np.random.default_rng(0), shop()[40 : N_TRAIN + 20]
    looks = rng.integers(0, 3, (20, watched.n_rows))
    choices = rng.binomial(looks, np.where(watched.grades > 0, 0.6, 0.1))
    day = np.broadcast_to(np.arange(20_000, 20_020)[:, None], looks.shape)
    text = np.broadcast_to(watched.query_columns["text"][watched.query_of_row], looks.shape)
    document = np.broadcast_to(watched.doc_id, looks.shape)
    return Evidence.from_cells(*(cells[days].ravel() for cells in (text, document, looks, choices, day)))


@pytest.fixture(scope="module")
def ranker(queries: QuerySet) -> KinRanker:
    fitted = KinRanker(keys=["brand"], evidence=evidence_of(slice(None)), trees=FEW, settings={"n_repeats": 1}).fit(
        queries[:N_TRAIN]
    )
    assert fitted.memory_ is not None
    return fitted


def one_by_one(ranker: KinRanker, new: QuerySet, _: Path) -> Float64:
    return np.concatenate([ranker.predict(query) for query in new])


def as_arrays(ranker: KinRanker, new: QuerySet, _: Path) -> Float64:
    texts = dict(zip(new.qid.tolist(), new.query_columns["text"].tolist(), strict=True))
    qid, keys = np.repeat(new.qid, new.sizes), {"brand": new.doc_columns["brand"]}
    return ranker.predict(new.X, qid=qid, doc_id=new.doc_id, query_text=texts, keys=keys)


def saved_and_loaded(ranker: KinRanker, new: QuerySet, folder: Path) -> Float64:
    ranker.save(folder / "model")
    return load(folder / "model").predict(new)


def with_evidence_on_disk(ranker: KinRanker, new: QuerySet, folder: Path) -> Float64:
    ranker.evidence.save(folder / "evidence")
    ranker.copy().set_params(evidence=folder / "evidence").save(folder / "model")
    loaded = load(folder / "model")
    assert not isinstance(loaded.evidence, Evidence)
    return loaded.predict(new)


def chosen_since(ranker: KinRanker, new: QuerySet, _: Path) -> Float64:
    """The model has the first days, and a service has counted the others; one day is in both and counts once."""
    early, late = copy(ranker), evidence_of(slice(10, None))
    early.chosen_ = replace(ranker.chosen_, evidence=evidence_of(slice(11)))
    return early.with_recent(late).predict(new)


def added_and_removed(ranker: KinRanker, new: QuerySet, _: Path) -> Float64:
    adapted = ranker.copy()
    more = shop(4, seed=5).replace(qid=np.arange(900, 904))
    adapted.add(more)
    assert not np.array_equal(adapted.predict(new), ranker.predict(new))
    return adapted.remove(more.qid).predict(new)


def served(ranker: KinRanker, new: QuerySet, folder: Path) -> Float64:
    ranker.save(folder / "model")
    found = []
    with Service({"model": folder / "model"}, settings=Settings(deadline=60.0, max_novelty=1e9)) as service:
        for query in new:
            ids, text = query.doc_id.tolist(), str(query.query_columns["text"][0])
            keys = {"brand": query.doc_columns["brand"].tolist()}
            ranking = service.rank(CandidateSet(ids, query.X, text=text, keys=keys))
            assert ranking.fallback is None, ranking
            scores = dict(zip(ranking.ids, ranking.scores, strict=True))
            found.append([scores[name] for name in ids])
    return np.concatenate(found)


DOORS: tuple[Door, ...] = (
    one_by_one,
    as_arrays,
    saved_and_loaded,
    with_evidence_on_disk,
    chosen_since,
    added_and_removed,
    served,
)


@pytest.mark.parametrize("door", DOORS, ids=lambda door: door.__name__)
def test_scores_are_the_same_behind_every_door(door: Door, ranker: KinRanker, new: QuerySet, tmp_path: Path):
    np.testing.assert_allclose(door(ranker, new, tmp_path), ranker.predict(new), atol=1e-5)


def test_explanations_have_the_ranks_of_the_scores(ranker: KinRanker, new: QuerySet):
    for query, explained in zip(new, ranker.explain(new), strict=True):
        order = np.argsort(-ranker.predict(query), kind="stable")
        assert explained.rank[order].tolist() == list(range(1, query.n_rows + 1))


def test_the_command_line_ranks_alike(ranker: KinRanker, new: QuerySet, tmp_path: Path):
    ranker.save(tmp_path / "model")
    new.save(tmp_path / "new")
    run = tmp_path / "new.run"
    done = CliRunner().invoke(app, ["rank", str(tmp_path / "model"), str(tmp_path / "new"), "--out", str(run)])
    assert done.exit_code == 0, done.output
    ranked: dict[str, list[str]] = {}
    for line in run.read_text().splitlines():
        qid, _, name, *_ = line.split()
        ranked.setdefault(qid, []).append(name)
    for query in new:
        order = np.argsort(-ranker.predict(query), kind="stable")
        assert ranked[str(query.qid[0])] == query.doc_id[order].tolist()


def test_boosts_of_weights_lift_what_was_chosen(ranker: KinRanker, new: QuerySet):
    """A weighted sum cannot have the columns of memory; what people chose for the query is added to it."""
    for query in new[:10]:
        found = ranker.boosted_weights(query)
        looked = ranker.chosen_.totals(query).looks > 0
        assert (found.boosts[~looked] == 0).all()
