"""A model folder is data: loading one runs no code that it names."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import kinrank
from kinrank import KnnRanker
from kinrank.errors import DamagedFolderError, EncoderError
from kinrank.kin.encoders._pretrained import SentenceTransformersEncoder
from kinrank.serve import Service, Settings
from kinrank.store import VersionStore
from tests.rankers.test_texts import Camps, camps_by_text

NAME = "sentence-transformers:/tmp/somebody-elses"


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The models that the library was asked for."""
    names: list[str] = []

    def load(self: SentenceTransformersEncoder) -> object:
        names.append(self.model)
        return Camps()

    monkeypatch.setattr(SentenceTransformersEncoder, "load", load)
    monkeypatch.setattr(SentenceTransformersEncoder, "version", "1.0")
    monkeypatch.setattr(SentenceTransformersEncoder, "_encode", lambda _, model, texts: model.encode(texts))
    return names


@pytest.fixture
def model(tmp_path: Path, loaded: list[str]) -> Path:
    queries = camps_by_text()
    KnnRanker(10, encoder=f"{NAME}-{tmp_path.name}").fit(queries).save(tmp_path / "model", examples=queries[:2])
    loaded.clear()
    return tmp_path / "model"


def named(model: Path) -> str:
    return f"{NAME}-{model.parent.name}"


def test_encoder_that_a_folder_names_is_not_loaded_without_consent(model: Path, loaded: list[str]):
    with pytest.raises(EncoderError, match=r"names the encoder 'sentence-transformers:.*allow_encoders="):
        kinrank.load(model)
    assert loaded == []


def test_consent_is_given_by_argument_or_environment(model: Path, monkeypatch: pytest.MonkeyPatch):
    queries = camps_by_text()
    expected = kinrank.load(model, encoder=named(model)).predict(queries)
    np.testing.assert_array_equal(kinrank.load(model, allow_encoders=[named(model)]).predict(queries), expected)
    with pytest.raises(EncoderError, match="KINRANK_ENCODERS"):
        kinrank.load(model, allow_encoders=["sentence-transformers:another"])
    monkeypatch.setenv("KINRANK_ENCODERS", f"model2vec:other, {named(model)}")
    np.testing.assert_array_equal(kinrank.load(model).predict(queries), expected)


def test_service_needs_consent(model: Path, loaded: list[str]):
    service = Service({"texts": model}, settings=Settings(deadline=60.0))
    service.start(strict=False)
    assert "KINRANK_ENCODERS" in str(service.slots["texts"].refusal)
    assert loaded == []
    service.close()
    with Service({"texts": model}, settings=Settings(deadline=60.0, encoders=(named(model),))) as allowed:
        assert allowed.ready


def test_file_that_kinrank_did_not_write_is_refused(model: Path, tmp_path: Path):
    (model / "modeling.py").write_text("raise SystemExit('this must not run')")
    with pytest.raises(DamagedFolderError, match=r"'modeling.py', which kinrank did not write"):
        kinrank.load(model, allow_encoders=[named(model)])
    with pytest.raises(DamagedFolderError, match=r"'modeling.py'"):
        VersionStore(tmp_path / "store").publish(model)
