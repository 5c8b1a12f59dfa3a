from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import kinrank
from kinrank import SingleRanker, folder
from kinrank.checks import linear_queries
from kinrank.errors import ForeignFolderError, NewerFormatError, ParameterError, StoreError
from kinrank.learn.rankrls import RankRLS
from kinrank.rankers import Ranker


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "model"
    SingleRanker("rankrls").fit(linear_queries()).save(path)
    return path


def test_damaged_folders_raise(model: Path, tmp_path: Path) -> None:
    # A thousand times: a flipped bit, a truncated file, a missing file or a newer format.
    rng = np.random.default_rng(0)
    names = sorted(str(file.relative_to(model)) for file in model.rglob("*.*"))
    for case in range(1000):
        broken = tmp_path / "broken"
        shutil.copytree(model, broken)
        victim = broken / names[rng.integers(len(names))]
        raw = victim.read_bytes()
        kind = case % 4
        if kind == 0:
            at = int(rng.integers(len(raw)))
            victim.write_bytes(raw[:at] + bytes([raw[at] ^ (1 << int(rng.integers(8)))]) + raw[at + 1 :])
        elif kind == 1:
            victim.write_bytes(raw[: int(rng.integers(len(raw)))])
        elif kind == 2:
            victim.unlink()
        else:
            _reseal(broken, format=int(rng.integers(folder.FORMAT + 1, 1000)))
        with pytest.raises(StoreError, match=r"broken"):
            kinrank.load(broken)
        shutil.rmtree(broken)


def test_newer_format_raises(model: Path, tmp_path: Path) -> None:
    newer = shutil.copytree(model, tmp_path / "newer")
    _reseal(newer, format=folder.FORMAT + 1)
    with pytest.raises(
        NewerFormatError, match=rf"format {folder.FORMAT + 1}, this kinrank reads up to {folder.FORMAT}: upgrade"
    ):
        kinrank.load(newer)


def test_foreign_folders_raise(tmp_path: Path) -> None:
    with pytest.raises(ForeignFolderError, match=r"no manifest\.json"):
        kinrank.load(tmp_path)
    linear_queries().save(tmp_path / "queries")
    with pytest.raises(ForeignFolderError, match="holds 'queries', expected 'model'"):
        kinrank.load(tmp_path / "queries")


def test_unknown_ranker_raises(model: Path, tmp_path: Path) -> None:
    other = shutil.copytree(model, tmp_path / "other")
    meta = json.loads((other / folder.MANIFEST).read_bytes())["meta"]
    _reseal(other, meta=meta | {"ranker": "os.system"})
    with pytest.raises(ParameterError, match=r"unknown ranker 'os\.system'"):
        kinrank.load(other)


def test_saving_over_a_foreign_folder_raises(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(ForeignFolderError, match=r"no manifest\.json"):
        SingleRanker("rankrls").fit(linear_queries()).save(tmp_path)
    assert (tmp_path / "thesis.txt").read_text() == "years of work"


def test_saving_again_replaces_the_model(tmp_path: Path) -> None:
    first, second = SingleRanker("rankrls"), SingleRanker(RankRLS(penalty=5.0))
    first.fit(linear_queries()).save(tmp_path / "model")
    second.fit(linear_queries()).save(tmp_path / "model")
    loaded = kinrank.load(tmp_path / "model")
    assert isinstance(loaded, SingleRanker)
    assert loaded.learner.penalty == 5.0
    assert [entry.name for entry in tmp_path.iterdir()] == ["model"]


def test_saving_over_a_link_replaces_its_target(tmp_path: Path) -> None:
    ranker = SingleRanker("rankrls").fit(linear_queries())
    ranker.save(tmp_path / "v1")
    (tmp_path / "current").symlink_to(tmp_path / "v1")
    SingleRanker(RankRLS(penalty=5.0)).fit(linear_queries()).save(tmp_path / "current")
    assert (tmp_path / "current").is_symlink()
    assert kinrank.load(tmp_path / "v1").get_params(deep=False)["learner"].penalty == 5.0


def test_arrays_are_memory_mapped(model: Path) -> None:
    ranker = kinrank.load(model)
    assert isinstance(ranker.get_state()["preparer.center"], np.memmap)


def test_settings_that_cannot_be_saved_raise(tmp_path: Path) -> None:
    class Mine(RankRLS):
        pass

    ranker: Ranker = SingleRanker(Mine()).fit(linear_queries())
    with pytest.raises(StoreError, match="type Mine cannot be saved"):
        ranker.save(tmp_path / "model")


def _reseal(path: Path, **changes: object) -> None:
    """Change a manifest and update its checksum."""
    manifest = json.loads((path / folder.MANIFEST).read_bytes()) | changes
    manifest["sha256"] = folder._checksum(manifest)
    (path / folder.MANIFEST).write_bytes(folder._dump(manifest))
