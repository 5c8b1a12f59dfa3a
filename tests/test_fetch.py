"""Public data sets, downloaded from a server on this machine."""

from __future__ import annotations

import functools
import gzip
import hashlib
import json
import threading
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kinrank.datasets import fetch_letor, fetch_msrd, get_data_home, letor, movies
from kinrank.datasets.download import RemoteFile, require_file
from kinrank.errors import DownloadError, ParameterError
from kinrank.progress import on_progress

FILE = b"judged " * 40_000  # several chunks
SHA256 = f"sha256:{hashlib.sha256(FILE).hexdigest()}"


class Files:
    """What a server publishes: content by path, and how the next requests fail, in order."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.content: dict[str, bytes] = {}
        self.failures: list[int | str] = []
        self.requests = 0

    def publish(self, name: str, content: bytes) -> str:
        self.content[f"/{name}"] = content
        return f"{self.url}/{name}"


class Handler(BaseHTTPRequestHandler):
    def __init__(self, files: Files, *args: Any) -> None:
        self.files = files
        super().__init__(*args)

    def do_GET(self) -> None:
        self.files.requests += 1
        failure = self.files.failures.pop(0) if self.files.failures else None
        content = self.files.content.get(self.path)
        if isinstance(failure, int) or content is None:
            self.send_error(failure if isinstance(failure, int) else 404)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content[: len(content) // 2] if failure == "cut off" else content)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Files]:
    files = Files("")
    with ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, files)) as httpd:
        files.url = f"http://127.0.0.1:{httpd.server_port}"
        threading.Thread(target=httpd.serve_forever, args=(0.01,), daemon=True).start()
        yield files
        httpd.shutdown()


def test_a_file_is_downloaded_once(server: Files, tmp_path: Path) -> None:
    file = RemoteFile("judged.txt", [server.publish("judged.txt", FILE)], SHA256)
    steps: list[tuple[str, int, int]] = []
    with on_progress(lambda *step: steps.append(step)):
        path = require_file(file, tmp_path / "new")
    assert path.read_bytes() == FILE
    assert steps[-1] == ("download judged.txt", len(FILE), len(FILE))
    assert require_file(file, tmp_path / "new") == path
    assert server.requests == 1
    assert [each.name for each in path.parent.iterdir()] == ["judged.txt"]


@pytest.mark.parametrize("failures", [[503, 429], ["cut off", 500]])
def test_failures_that_pass_are_retried(server: Files, tmp_path: Path, failures: list[int | str]) -> None:
    file = RemoteFile("judged.txt", [server.publish("judged.txt", FILE)], SHA256)
    server.failures += failures
    assert require_file(file, tmp_path, delay=0).read_bytes() == FILE
    assert server.requests == 3


@pytest.mark.parametrize(
    ("change", "failures", "message", "requests"),
    [
        ({"checksum": "md5:0"}, [], r"not the published one: its md5 is [0-9a-f]{32}, not 0", 1),
        ({}, ["cut off"] * 2, r"the download fails \(IncompleteRead.* 2 times", 2),
        ({}, [404], "the server answers 404", 1),
    ],
)
def test_what_is_not_whole_and_right_is_not_kept(
    server: Files, tmp_path: Path, change: dict[str, str], failures: list[int | str], message: str, requests: int
) -> None:
    file = replace(RemoteFile("judged.txt", [server.publish("judged.txt", FILE)], SHA256), **change)
    server.failures += failures
    with pytest.raises(DownloadError, match=message):
        require_file(file, tmp_path, n_retries=1, delay=0)
    assert server.requests == requests
    assert not list(tmp_path.iterdir())


def test_the_next_mirror_is_used(server: Files, tmp_path: Path) -> None:
    urls = [f"{server.url}/gone.txt", server.publish("judged.txt", FILE)]
    assert require_file(RemoteFile("judged.txt", urls, SHA256), tmp_path).read_bytes() == FILE


def test_the_data_home_is_an_argument_a_variable_or_in_the_home_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KINRANK_DATA", str(tmp_path / "variable"))
    assert get_data_home() == tmp_path / "variable"
    assert get_data_home(tmp_path) == tmp_path
    monkeypatch.delenv("KINRANK_DATA")
    assert get_data_home() == Path.home() / "kinrank_data"
    with pytest.raises(DownloadError, match=r"movies-corpus\.jsonl\.gz is missing: pass download_if_missing=True"):
        fetch_msrd(data_home=tmp_path, download_if_missing=False)


def published(server: Files, file: RemoteFile, content: bytes) -> RemoteFile:
    checksum = f"sha256:{hashlib.sha256(content).hexdigest()}"
    return replace(file, urls=[server.publish(file.name, content)], checksum=checksum)


def test_movies(server: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus = b"".join(json.dumps({"id": i, "title": "Alien", "tags": ["ship"]}).encode() + b"\n" for i in ("7", "8"))
    judged = b"query_id\tquery\tdoc_id\tgrade\nqid:5\t2012\t7\t1\nqid:5\t2012\t9\t0\nqid:6\tship\t8\t0\n"
    monkeypatch.setattr(movies, "CORPUS", published(server, movies.CORPUS, gzip.compress(corpus)))
    monkeypatch.setattr(movies, "JUDGMENTS", published(server, movies.JUDGMENTS, gzip.compress(judged)))
    found = fetch_msrd(data_home=tmp_path)
    assert found.movies["id"].to_pylist() == ["7", "8"]
    assert found.judgments.to_pylist() == [
        {"qid": "5", "query": "2012", "doc_id": "7", "y": 1},
        {"qid": "6", "query": "ship", "doc_id": "8", "y": 0},  # movie 9 is not in the corpus
    ]
    server.content.clear()
    assert fetch_msrd(data_home=tmp_path).movies.num_rows == 2


@pytest.fixture
def parts(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    features = " ".join(f"{feature}:0.5" for feature in range(1, 47))
    texts = [f"{part % 2} qid:{part} {features} #docid = D{part}" for part in range(1, 6)]
    checksums = tuple(hashlib.sha256(text.encode()).hexdigest() for text in texts)
    monkeypatch.setattr(letor, "PARTS", dict.fromkeys(letor.PARTS, checksums))
    return texts


def publish_archive(server: Files, path: Path, files: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    content = path.read_bytes()
    path.unlink()
    archives = {name: published(server, file, content) for name, file in letor.ARCHIVES.items()}
    monkeypatch.setattr(letor, "ARCHIVES", archives)


@pytest.mark.parametrize("layout", ["MQ2008/S{part}.txt", "MQ2008/Fold{fold}/test.txt"])
def test_letor_folds(
    server: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, parts: list[str], layout: str
) -> None:
    files = {layout.format(part=i, fold=i % 5 + 1): f"{text} \r\n" for i, text in enumerate(parts, 1)}
    publish_archive(server, tmp_path / "archive.zip", files, monkeypatch)
    first = fetch_letor("MQ2008", data_home=tmp_path)
    assert [queries.qid.tolist() for queries in first] == [[1, 2, 3], [4], [5]]
    fourth = fetch_letor("MQ2008", fold=4, data_home=tmp_path)
    assert [queries.qid.tolist() for queries in fourth] == [[4, 5, 1], [2], [3]]
    assert fourth.train.n_features == 46
    np.testing.assert_array_equal(fourth.train.grades, [0, 1, 1])
    assert server.requests == 1


def test_letor_files_from_elsewhere_are_checked(server: Files, tmp_path: Path, parts: list[str]) -> None:
    folder = tmp_path / "letor" / "MQ2007"
    folder.mkdir(parents=True)
    for part, text in enumerate(parts, 1):
        (folder / f"S{part}.txt").write_text(text)
    assert fetch_letor("MQ2007", fold=5, data_home=tmp_path).test.qid.tolist() == [4]
    (folder / "S2.txt.xz").unlink()
    (folder / "S2.txt").write_text(parts[0])
    with pytest.raises(DownloadError, match=r"S2\.txt\.xz: not as published"):
        fetch_letor("MQ2007", data_home=tmp_path)
    assert not (folder / "S2.txt.xz").exists()


def test_letor_without_a_mirror_or_a_program(
    server: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, parts: list[str]
) -> None:
    gone = replace(letor.ARCHIVES["MQ2007"], urls=[f"{server.url}/gone.rar"])
    monkeypatch.setattr(letor, "ARCHIVES", {"MQ2007": gone})
    with pytest.raises(
        DownloadError, match=r"404.*Download MQ2007 from https://www\.microsoft\.com/.* by hand and put"
    ):
        fetch_letor("MQ2007", data_home=tmp_path)
    (tmp_path / "letor" / "MQ2007" / "MQ2007.rar").write_bytes(b"Rar!")
    with pytest.raises(DownloadError, match="cannot be unpacked: install one of bsdtar, unrar, 7z, unar"):
        fetch_letor("MQ2007", data_home=tmp_path)
    with pytest.raises(ParameterError, match="name must be one of MQ2007, got 'MSLR'"):
        fetch_letor("MSLR")
    with pytest.raises(ParameterError, match="fold must be 1 to 5, got 0"):
        fetch_letor("MQ2007", fold=0)
