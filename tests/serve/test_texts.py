"""The service encodes query texts by itself."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from kinrank import KinRanker, KnnRanker
from kinrank.kin.encoders import make_encoder
from kinrank.kin.encoders.guard import EncoderGuard
from kinrank.serve import CandidateSet, Service
from kinrank.serve._served_model import QueryEncoder
from kinrank.serve.messages import Fallback, JudgedQuery, Observer
from tests.processes import wait_until
from tests.rankers.test_texts import Camps, camps_by_text
from tests.serve.conftest import PATIENT
from tests.serve.databases import sqlite_address

FEATURES = np.array([[0.2, 0], [0.9, 0], [0.5, 0]], dtype=np.float32)


def candidates(text: str | None) -> CandidateSet:
    return CandidateSet(["a", "b", "c"], FEATURES, text=text)


class Stages(Observer):
    """Keeps the stages that were reported."""

    def __init__(self) -> None:
        self.stages: list[str] = []
        self.errors: list[str] = []

    def stage(self, stage: str, seconds: float, queries: int = 1) -> None:
        self.stages.append(stage)

    def error(self, where: str, error: BaseException) -> None:
        self.errors.append(where)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    queries, folder = camps_by_text(), tmp_path_factory.mktemp("texts")
    settings = {"n_neighbors": 10, "prior": "global"}
    KnnRanker(**settings).fit(queries).save(folder / "ngrams", examples=queries[:3])
    KnnRanker(**settings, encoder=Camps()).fit(queries).save(folder / "custom")
    return folder


@pytest.fixture
def observer() -> Stages:
    return Stages()


@pytest.fixture
def service(models: Path, tmp_path: Path, observer: Stages) -> Iterator[Service]:
    folders = {name: models / name for name in ("ngrams", "custom")}
    with Service(folders, settings=PATIENT, observer=observer, judgments=sqlite_address(tmp_path)) as service:
        yield service


def test_the_text_decides_the_order(service: Service):
    orders = {text: service.rank(candidates(text)).ids for text in ("cheap phone 0", "best movie 0")}
    assert sorted(map(tuple, orders.values())) == [("a", "c", "b"), ("b", "c", "a")]


def test_weights_and_explanations_take_texts(service: Service):
    weights = service.weights(candidates("cheap phone 0")).weights
    others = service.weights(candidates("best movie 0")).weights
    assert weights is not None
    assert others is not None
    assert weights["value"] * others["value"] < 0
    explained = service.explain(candidates("cheap phone 0"))
    assert explained is not None
    assert len(explained.neighbors) == 10


def test_encoding_is_a_stage_and_repeated_texts_are_remembered(service: Service, observer: Stages):
    service.rank(candidates("cheap phone 0"))
    assert "encode" in observer.stages
    served = service.slots["ngrams"].current
    assert served is not None
    first = served.encoder(candidates("cheap case 1"), observer).vector
    assert served.encoder(candidates("cheap case 1"), observer).vector is first


def test_a_vector_takes_precedence_and_other_models_ignore_texts(service: Service, observer: Stages):
    served = service.slots["ngrams"].current
    assert served is not None
    given = CandidateSet(["a"], FEATURES[:1], vector=np.ones(3, dtype=np.float32), text="cheap phone 0")
    assert served.encoder(given, observer) is given
    plain = QueryEncoder(KnnRanker(5).fit(camps_by_text().replace(query_columns={})))
    asked = candidates("cheap phone 0")
    assert plain(asked, observer) is asked


def test_a_failing_encoder_falls_back_and_reports(service: Service):
    ranking = service.rank(candidates("cheap phone 0"), model="custom")
    assert (ranking.ids, ranking.fallback) == (["a", "b", "c"], Fallback.ENCODER)
    assert "load it with kinrank.load" in str(ranking.detail)
    assert service.weights(candidates("cheap phone 0"), model="custom").fallback is Fallback.ENCODER


def test_a_ranker_that_finds_kin_by_letters_too_ranks_on(observer: Stages):
    settings = {"memory": False, "settings": {"n_members": 2, "n_repeats": 1}, "trees": "lambdamart(n_trees=5)"}
    ranker = KinRanker(5, encoder=Camps(), **settings).fit(camps_by_text())
    assert ranker.guard_ is not None

    def down(texts: list[str]) -> None:
        raise ConnectionError(texts)

    ranker.guard_ = EncoderGuard(make_encoder(down), ranker.guard_.width)
    encoder = QueryEncoder(ranker)
    for failures in (1, 2):
        vector = encoder(candidates("cheap phone 0"), observer).vector
        assert vector is not None
        assert vector.tolist() == [0.0] * ranker.guard_.width
        assert ranker.guard_.failures == failures
    assert observer.errors == ["encode"] * 2
    ranker.guard_ = EncoderGuard(make_encoder(Camps()), ranker.guard_.width)
    assert QueryEncoder(ranker)(candidates("cheap phone 0"), observer).vector.any()


def test_a_query_without_text_falls_back(service: Service):
    ranking = service.rank(candidates(None))
    assert ranking.fallback is service.weights(candidates(None)).fallback is Fallback.MODEL_ERROR
    assert "pass query_text=" in str(ranking.detail)


def test_judgments_keep_their_text_over_a_restart(models: Path, tmp_path: Path):
    texts = ["zebra stripes 1", "zebra stripes 2", "zebra stripes 3"]
    judged = [JudgedQuery(f"new {i}", candidates(text), [0.0, 1.0, 0.5]) for i, text in enumerate(texts)]

    def start() -> Service:
        return Service({"ngrams": models / "ngrams"}, settings=PATIENT, judgments=sqlite_address(tmp_path))

    with start() as service:
        before = service.slots["ngrams"].current
        service.judge(judged)
        wait_until(lambda: (current := service.slots["ngrams"].current) is not None and current.judgments == 3)
        after = service.slots["ngrams"].current
        assert before is not None
        assert after is not None
        assert after.encoder is before.encoder  # with the vectors it remembers
    with start() as service:
        wait_until(lambda: (current := service.slots["ngrams"].current) is not None and current.judgments == 3)
