"""Every registered store of judgments passes the same checks, and survives what may happen to its database."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kinrank.errors import NotStoredError
from kinrank.serve import _database
from kinrank.serve._database import DATABASES as STORES
from kinrank.serve._judgments import JudgmentRow, JudgmentStore, open_store
from tests.processes import PATIENCE
from tests.serve.databases import DATABASES
from tests.serve.judgment_store_checks import judgment_store_checks


@pytest.fixture(params=[pytest.param(name, marks=DATABASES[name].marks) for name in STORES])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    with DATABASES[request.param].empty(tmp_path) as address:
        yield address


@pytest.fixture
def opened(address: str) -> Iterator[Callable[[], JudgmentStore]]:
    stores: list[JudgmentStore] = []

    def make() -> JudgmentStore:
        stores.append(open_store(address))
        return stores[-1]

    yield make
    for store in stores:
        store.close()


@pytest.mark.parametrize("check", judgment_store_checks(), ids=lambda check: check.__name__)
def test_store_passes_the_checks(check: Callable[[Callable[[], JudgmentStore]], None], opened) -> None:
    check(opened)


APPEND = """
import sys
from kinrank.serve._judgments import JudgmentRow, open_store
store = open_store(sys.argv[1])
for batch in range(10_000):
    store.append("movies", [JudgmentRow(f"{sys.argv[2]} {batch} {i}", "", "x" * 200) for i in range(100)])
    print(batch, flush=True)
"""


def test_killed_writer_keeps_whole_batches_and_all_acknowledged(address: str) -> None:
    for number in range(4):
        with subprocess.Popen(
            [sys.executable, "-c", APPEND, address, str(number)], stdout=subprocess.PIPE, text=True
        ) as writer:
            assert writer.stdout is not None
            writer.stdout.readline()
            time.sleep(0.008 * number)  # to hit every stage of an append
            writer.send_signal(signal.SIGKILL)
            acknowledged = 1 + len([line for line in writer.stdout if line.endswith("\n")])
        store = open_store(address)
        sizes: dict[str, int] = {}
        for query in read_all(store):
            run, batch, _ = query.split()
            if run == str(number):
                sizes[batch] = sizes.get(batch, 0) + 1
        store.close()
        assert set(sizes.values()) == {100}
        assert len(sizes) >= acknowledged


def read_all(store: JudgmentStore) -> list[str]:
    return [query for changes in store.pages("movies") for query in changes.queries]


def test_unreadable_tail_loses_no_acknowledged_judgment(tmp_path: Path) -> None:
    file = tmp_path / "judgments.db"
    store = open_store(f"sqlite:///{file}")
    for number in range(3):
        store.append("movies", [JudgmentRow(f"q{number}", "", "kept")])
    log = Path(f"{file}-wal")
    # What a machine may leave that loses power while it writes an append that was not acknowledged.
    torn = log.read_bytes() + bytes(4096) + os.urandom(5000)
    copy = tmp_path / "after.db"
    copy.write_bytes(file.read_bytes())
    Path(f"{copy}-wal").write_bytes(torn)
    store.close()
    recovered = open_store(f"sqlite:///{copy}")
    assert read_all(recovered) == ["q0", "q1", "q2"]
    assert recovered.append("movies", [JudgmentRow("q3", "", "kept")]) == 4
    recovered.close()


FILL = """
import resource, signal, sys
from kinrank.errors import NotStoredError
from kinrank.serve._judgments import JudgmentRow, open_store
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
store = open_store(sys.argv[1])
for batch in range(1000):
    try:
        store.append("movies", [JudgmentRow(f"{batch} {i}", "", "x" * 1000) for i in range(3)])
    except NotStoredError:
        break
else:
    sys.exit("the file did not fill up")
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 30, resource.RLIM_INFINITY))
store.append("movies", [JudgmentRow("there is space again", "", "x")])
print(3 * batch)
"""


def test_full_disk_loses_no_judgment(tmp_path: Path) -> None:
    address, limit = f"sqlite:///{tmp_path}/judgments.db", 200_000
    done = subprocess.run(
        [sys.executable, "-c", FILL, address],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        # The maximum file size of the process: beyond it, writes fail as on a full disk.
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY)),
    )
    assert done.returncode == 0, done.stderr
    store = open_store(address)
    assert len(read_all(store)) == int(done.stdout) + 1
    store.close()


def test_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "judgments.db").write_text("this is not a database, and long enough to be read as one" * 40)
    store = open_store(f"sqlite:///{tmp_path}/judgments.db")
    with pytest.raises(NotStoredError, match="file is not a database"):
        store.append("movies", [JudgmentRow("q1", "", "x")])


def test_database_of_an_earlier_version_is_migrated_and_keeps_its_judgments(opened, monkeypatch) -> None:
    opened().append("movies", [JudgmentRow("q1", "", "a")])
    more = "ALTER TABLE kinrank_texts ADD COLUMN language TEXT", "INSERT INTO kinrank_news VALUES ('migrated')"
    monkeypatch.setattr(_database, "MIGRATIONS", (*_database.MIGRATIONS, more))
    for _ in range(2):  # the second one finds nothing to do
        later = opened()
        assert read_all(later) == ["q1"]
        with later.database.reading() as execute:
            assert execute("SELECT version FROM kinrank_schema", ()) == [(len(_database.MIGRATIONS),)]
            assert execute("SELECT * FROM kinrank_news", ()) == [("migrated",)]
            assert execute("SELECT language FROM kinrank_texts", ()) == []


def test_database_of_a_later_version_is_left_alone(opened) -> None:
    later = opened()
    with later.database.writing() as execute:
        execute("UPDATE kinrank_schema SET version = 1000", ())
    assert opened().append("movies", [JudgmentRow("q1", "", "a")]) == 1
    with later.database.reading() as execute:
        assert execute("SELECT version FROM kinrank_schema", ()) == [(1000,)]
