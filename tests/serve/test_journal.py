"""The journal keeps acknowledged records and nothing else."""

from __future__ import annotations

import resource
import subprocess
import sys
from multiprocessing import get_context
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kinrank.errors import DamagedFolderError
from kinrank.serve.journal import Journal

TEXTS = st.lists(st.text(st.characters(exclude_characters="\n", codec="utf-8")))


@given(appended=st.lists(TEXTS, max_size=5), data=st.data())
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_truncated_journal_keeps_complete_records_and_accepts_more(tmp_path: Path, appended: list[list[str]], data):
    file = tmp_path / "log"
    file.unlink(missing_ok=True)
    journal = Journal(file)
    for texts in appended:
        journal.append(texts)
    written = [text for texts in appended for text in texts]
    assert journal.read()[0] == written
    raw = file.read_bytes()
    ends = [0, *(i + 1 for i, byte in enumerate(raw) if byte == ord("\n"))]
    cut = data.draw(st.integers(0, len(raw)))
    file.write_bytes(raw[:cut])
    complete = sum(end <= cut for end in ends) - 1
    assert journal.read()[0] == written[:complete]
    journal.append(["after"])
    assert journal.read()[0] == [*written[:complete], "after"]


def test_reading_continues_from_a_position(tmp_path: Path):
    journal = Journal(tmp_path / "log")
    journal.append(["one", "two"])
    texts, end = journal.read()
    assert (texts, journal.read(end)) == (["one", "two"], ([], end))
    journal.append(["three"])
    assert journal.read(end)[0] == ["three"]


@pytest.mark.parametrize("byte", [0, 5, 9, 12])
def test_changed_byte_raises(tmp_path: Path, byte: int):
    journal = Journal(tmp_path / "log")
    journal.append(["some text", "more"])
    raw = bytearray(journal.path.read_bytes())
    raw[byte] ^= 1
    journal.path.write_bytes(raw)
    with pytest.raises(DamagedFolderError, match="the record at byte 0 has changed"):
        journal.read()


FILL = """
import resource, signal, sys
from kinrank.errors import NotStoredError
from kinrank.serve.journal import Journal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
journal = Journal(sys.argv[1])
kept = 0
for round in range(100):
    try:
        journal.append([f"record {round} " + "x" * 100] * 3)
        kept += 3
    except NotStoredError as error:
        assert "nothing was kept" in str(error), error
        break
else:
    sys.exit("the file did not fill up")
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, resource.RLIM_INFINITY))
journal.append(["there is space again"])
print(kept)
"""


def test_full_disk_loses_no_record(tmp_path: Path):
    limit = 5_000  # maximum file size of the process: beyond it, writes fail as on a full disk
    done = subprocess.run(
        [sys.executable, "-c", FILL, str(tmp_path / "log")],
        capture_output=True,
        text=True,
        timeout=60,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY)),
    )
    assert done.returncode == 0, done.stderr
    texts, _ = Journal(tmp_path / "log").read()
    assert len(texts) == int(done.stdout) + 1
    assert texts[-1] == "there is space again"


def append_many(path: str, writer: int) -> None:
    journal = Journal(path)
    for turn in range(50):
        journal.append([f"{writer} {turn}"])


def test_processes_append_concurrently(tmp_path: Path):
    context = get_context("spawn")
    writers = [context.Process(target=append_many, args=(str(tmp_path / "log"), number)) for number in range(3)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(60)
    texts, _ = Journal(tmp_path / "log").read()
    for number in range(3):
        expected = [f"{number} {turn}" for turn in range(50)]
        assert [text for text in texts if text.startswith(f"{number} ")] == expected
