"""Numbered versions of a model in a folder or an object store."""

from __future__ import annotations

import gc
import json
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

import kinrank.serve._models
from kinrank.cli import app
from kinrank.data.files import filesystem_of
from kinrank.errors import DamagedFolderError, IncompleteVersionError, ParameterError, RejectedModelError
from kinrank.serve import CandidateSet, Fallback, Service, Settings
from kinrank.serve._http.app import create_app
from kinrank.serve._http.metrics import Metrics
from kinrank.serve._keys import KeyRing
from kinrank.serve._ranking import Job
from kinrank.serve._sources import FolderSource
from kinrank.store import VersionStore, fingerprint
from tests.processes import wait_until
from tests.serve.asgi import Client
from tests.serve.objects import object_store
from tests.serve.observers import Deliveries, RecordingObserver

POLLING = Settings(deadline=60.0, poll_interval=0.02)


@pytest.fixture(params=["folder", "s3"])
def address(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    if request.param == "folder":
        yield str(tmp_path / "store")
    else:
        with object_store(monkeypatch) as address:
            yield address


def kinrank_command(*args: object) -> str:
    done = CliRunner().invoke(app, [str(arg) for arg in args])
    assert done.exit_code == 0, done.stderr
    return done.stdout.strip()


def overwrite(address: str, path: str, content: bytes) -> None:
    files, root = filesystem_of(address)
    with files.open_output_stream(f"{root}/{path}") as stream:
        stream.write(content)


def published(store: VersionStore, model: Path) -> str:
    version = store.publish(model)
    store.use(version)
    return version.fitted


def test_service_follows_what_is_published_and_survives_bad_versions(
    address: str, models: Path, up: CandidateSet, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(kinrank.serve._models, "RETRY_PAUSE", 0.05)
    first, second = fingerprint(models / "knn"), fingerprint(models / "single")
    assert kinrank_command("admin", "models", address, "--publish", models / "knn") == "1"
    store, observer = VersionStore(address), RecordingObserver()
    with Service({"default": address}, settings=POLLING, observer=observer) as service:
        slot = service.slots["default"]
        assert service.rank(up).version == first
        assert kinrank_command("admin", "models", address, "--publish", models / "single") == "2"
        wait_until(lambda: service.rank(up).version == second)
        kinrank_command("admin", "models", address, "--use", 1)
        wait_until(lambda: service.rank(up).version == first)
        # A version that is not there completely is refused, and used when the rest has arrived.
        version = store.find("2")
        content = (models / "single" / "manifest.json").read_bytes()
        files, root = filesystem_of(address)
        files.delete_file(f"{root}/versions/{version.name}/manifest.json")
        # Another process without a copy in its cache meets the incomplete version.
        with Service({"default": address}, settings=POLLING) as other:
            store.use(version)
            wait_until(lambda: "has no manifest.json" in str(other.slots["default"].refusal))
            assert other.rank(up).version == first
            overwrite(address, f"versions/{version.name}/manifest.json", content)
            wait_until(lambda: other.rank(up).version == second)
            assert other.slots["default"].refusal is None
        wait_until(lambda: slot.current is not None and slot.current.version == second)
    listed = json.loads(kinrank_command("admin", "models", address, "--json"))
    assert [(row["number"], row["version"], row["in_use"]) for row in listed] == [
        (1, first, False),
        (2, second, True),
    ]
    assert observer.errors == []


def test_versions_are_published_reloaded_and_rolled_back_over_http(
    tmp_path: Path, models: Path, secrets: dict[str, str]
):
    store, metrics = VersionStore(tmp_path / "store"), Metrics()
    first, second = published(store, models / "knn"), store.publish(models / "single").fitted
    settings = Settings(deadline=60.0, poll_interval=3600.0)  # only a reload looks for another version
    service = Service({"default": tmp_path / "store"}, settings=settings, observer=metrics)
    client = Client(create_app(service, metrics=metrics, keys=KeyRing(tmp_path / "keys")), secrets["admin"])
    body = {"ids": ["a", "b", "c"], "features": [[0.2, 1], [0.9, 1], [0.5, 1]]}
    with service, client.runner:
        for number, fitted in ((1, first), (2, second), (1, first)):
            kinrank_command("admin", "models", tmp_path / "store", "--use", number)
            assert client.post("/v1/model/reload", {}).json == {"model": "default", "version": fitted}
            assert client.get("/v1/model").json["models"]["default"]["loaded"]["version"] == fitted
            assert client.post("/v1/rank", body).json["version"] == fitted
        for fitted, queries in ((first, 2), (second, 1)):
            for line in (
                f'kinrank_results_total{{model="default",result="ranked",version="{fitted}"}} {queries}.0',
                f'kinrank_rank_seconds_count{{model="default",version="{fitted}"}} {queries}.0',
            ):  # counted after the response
                wait_until(lambda line=line: line in client.get("/metrics").body.decode())


def test_result_after_the_deadline_counts_as_late(models: Path, up: CandidateSet):
    results = Counter[tuple[str, str, Fallback | None]]()

    class Results(RecordingObserver):
        def result(self, model: str, version: str, fallback: Fallback | None) -> None:
            results[model, version, fallback] += 1

    with Service({"default": models / "knn"}, settings=POLLING, observer=Results()) as service:
        delivered, now = Deliveries(), time.perf_counter()
        service.workers.rankers["default"]([Job(up, now, now, delivered)])
        assert delivered.wait(1)[0].fallback is None
    assert results == {("default", fingerprint(models / "knn"), Fallback.LATE): 1}


def test_a_new_version_is_in_use_without_another_option(tmp_path: Path, models: Path):
    command = ["admin", "models", str(tmp_path), "--publish", str(models / "knn"), "--use", "1"]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 2
    assert "--publish puts the model into use: leave out --use" in done.stderr
    assert VersionStore(tmp_path).versions() == []


def test_damaged_version_is_refused_and_names_the_file(tmp_path: Path, models: Path):
    store = VersionStore(tmp_path / "store")
    name = store.publish(models / "knn").name
    array = next((tmp_path / "store" / "versions" / name).glob("*.npy"))
    raw = bytearray(array.read_bytes())
    raw[-1] ^= 1
    array.write_bytes(raw)
    with pytest.raises(DamagedFolderError, match=f"{array.name} has changed since it was written"):
        store.pull(name, tmp_path / "cache")
    array.write_bytes(raw[:-1])
    with pytest.raises(IncompleteVersionError, match=f"{array.name} of version {name} has"):
        store.pull(name, tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []


def test_version_that_is_not_complete_is_published_again(tmp_path: Path, models: Path):
    store = VersionStore(tmp_path / "store")
    name = store.publish(models / "knn").name
    folder = tmp_path / "store" / "versions" / name
    next(folder.glob("*.npy")).write_bytes(b"")
    assert store.publish(models / "knn").name == name
    store.pull(name, tmp_path / "cache")
    (folder / "manifest.json").unlink()  # as after an interrupted upload
    assert store.publish(models / "knn").name == name
    assert store.find(fingerprint(models / "knn")).name == name


def test_manifest_of_another_model_is_refused(tmp_path: Path, models: Path):
    store = VersionStore(tmp_path / "store")
    name = store.publish(models / "knn").name
    folder = tmp_path / "store" / "versions" / name
    (folder / "manifest.json").write_bytes((models / "single" / "manifest.json").read_bytes())
    with pytest.raises(DamagedFolderError, match="is not its own"):
        store.pull(name, tmp_path / "cache")


def test_damaged_copy_is_pulled_again(tmp_path: Path, models: Path):
    store = VersionStore(tmp_path / "store")
    name = store.publish(models / "knn").name
    copy = store.pull(name, tmp_path / "cache")
    (copy / "manifest.json").write_text("{}")
    assert fingerprint(store.pull(name, tmp_path / "cache")) == fingerprint(models / "knn")


def test_same_model_is_published_once(tmp_path: Path, models: Path):
    store = VersionStore(tmp_path / "store")
    assert store.publish(models / "knn") == store.publish(models / "knn")
    assert len(store.versions()) == 1


def test_unknown_and_ambiguous_versions_are_refused(tmp_path: Path, models: Path):
    store = VersionStore(tmp_path / "store")
    name = store.publish(models / "knn").name
    with pytest.raises(ParameterError, match="has no version '7': it has 1"):
        store.find("7")
    twin = tmp_path / "store" / "versions" / "000001-0123456789ab"  # published by another program at the same time
    twin.mkdir()
    (twin / "manifest.json").touch()
    with pytest.raises(ParameterError, match="several versions 1: name one of"):
        store.find("1")
    assert store.find(fingerprint(models / "knn")).name == name


@pytest.mark.parametrize("content", [b"", b"../../etc", b"\xff\0", b"1"])
def test_invalid_pointer_is_refused_and_the_model_stays(tmp_path: Path, models: Path, up: CandidateSet, content: bytes):
    store, observer = VersionStore(tmp_path / "store"), RecordingObserver()
    fitted = published(store, models / "knn")
    with Service({"default": tmp_path / "store"}, settings=POLLING, observer=observer) as service:
        overwrite(str(tmp_path / "store"), "current", content)
        wait_until(lambda: "kinrank admin models --use" in str(service.slots["default"].refusal))
        assert service.rank(up).version == fitted
        with pytest.raises(RejectedModelError, match="kinrank admin models --use"):
            service.reload()
        published(store, models / "single")
        wait_until(lambda: service.slots["default"].refusal is None and service.rank(up).version != fitted)
    assert observer.models.count(("default", "unreachable")) == 1  # not once per poll


def test_service_without_a_published_version_starts_unready(tmp_path: Path, models: Path, up: CandidateSet):
    (tmp_path / "store" / "versions").mkdir(parents=True)
    service = Service({"default": tmp_path / "store"}, settings=POLLING)
    service.start(strict=False)
    assert not service.ready
    fitted = published(VersionStore(tmp_path / "store"), models / "knn")
    wait_until(lambda: service.rank(up).version == fitted)
    service.close()


def test_passwords_in_addresses_are_not_shown():
    assert str(VersionStore("s3://user:secret@bucket/models")) == "s3://bucket/models"


def test_file_that_vanishes_while_a_folder_is_read_leaves_nothing_open(tmp_path: Path):
    (tmp_path / "manifest.json").symlink_to(tmp_path / "gone")  # listed, and not there when it is asked for its size
    assert FolderSource(tmp_path).signature() is None
    gc.collect()  # a folder left open would be reported here
