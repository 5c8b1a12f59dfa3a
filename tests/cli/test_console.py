from __future__ import annotations

import threading

import pytest
from rich.progress import Progress
from rich.table import Table

from kinrank.cli import console
from kinrank.progress import Parts, report_progress
from tests.processes import PATIENCE


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make Rich treat stderr as a terminal."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(console._stderr, "is_interactive", True)  # set when the console was created


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Start bars without delay; the event is set when a bar has started."""
    event = threading.Event()
    start = Progress.start

    def start_and_signal(bar: Progress) -> None:
        start(bar)
        event.set()

    monkeypatch.setattr(console, "PROGRESS_DELAY", 0.0)
    monkeypatch.setattr(Progress, "start", start_and_signal)
    return event


def wait_for(event: threading.Event) -> None:
    assert event.wait(PATIENCE)
    event.clear()


def test_short_task_shows_no_bar(terminal, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(console, "PROGRESS_DELAY", 3600.0)
    with console.progress("reading", 10) as advance:
        advance(10)
    assert capsys.readouterr() == ("", "")


def test_long_task_shows_a_bar_on_stderr(terminal, started, capsys: pytest.CaptureFixture[str]):
    with console.progress("reading", 10) as advance:
        advance(4)
        wait_for(started)
    out, err = capsys.readouterr()
    assert out == ""
    assert "reading" in err
    assert "4/10" in err


def test_no_bar_without_a_terminal(started, capsys: pytest.CaptureFixture[str]):
    with console.progress("reading"):
        wait_for(started)
    assert capsys.readouterr() == ("", "")


def test_failure_stops_the_bar(terminal, started):
    def fail_later() -> None:
        with console.progress("reading"):
            wait_for(started)
            raise ZeroDivisionError("division")

    with pytest.raises(ZeroDivisionError, match="division"):
        fail_later()
    with console.progress("reading again"):  # Rich allows one bar at a time
        wait_for(started)


def test_messages_print_text_without_markup(capsys: pytest.CaptureFixture[str]):
    console.info("[bold]" + 200 * "x")
    console.warn("a [b]")
    console.error("c [d]")
    out, err = capsys.readouterr()
    assert (out, err) == ("", "[bold]" + 200 * "x" + "\nwarning: a [b]\nerror: c [d]\n")


def test_bar_names_the_stage(terminal, started, capsys: pytest.CaptureFixture[str]):
    with console.progress("fitting"):
        report_progress("tree models", 3, 8)
        wait_for(started)
    assert "fitting: tree models 3 of 8" in capsys.readouterr().err


def test_a_log_gets_a_line_now_and_then(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    with console.progress("fitting"):
        report_progress("tree models", 1, 8)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(console, "LINE_INTERVAL", 0.0)
    with console.progress("fitting"):
        report_progress("tree models", 2, 8)
    assert capsys.readouterr().err == "fitting: tree models 2 of 8\n"


def test_parts_of_a_study_have_names_and_a_time_left(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(console, "LINE_INTERVAL", 0.0)
    clock = iter(range(0, 1000, 10))
    monkeypatch.setattr(console.time, "monotonic", lambda: next(clock))
    parts = Parts(20)
    with console.progress("measuring"):
        with parts.part("fold 1 of 2: LightGBM", 5):
            pass
        with parts.part("fold 1 of 2: kin", 5):
            report_progress("tree models", 3, 8)
    first, done, *_, inside, last = capsys.readouterr().err.splitlines()
    assert first == "measuring: fold 1 of 2: LightGBM, in all 0 of 20"
    assert done.startswith("measuring: fold 1 of 2: LightGBM, in all 5 of 20, about ")
    assert inside.startswith("measuring: fold 1 of 2: kin: tree models 3 of 8, in all 5 of 20, about ")
    assert last.startswith("measuring: fold 1 of 2: kin, in all 10 of 20, about 1:40 left")


def test_lines_of_a_table_in_a_pipe_end_without_spaces(capsys: pytest.CaptureFixture[str]):
    table = Table("name", "note", box=None, pad_edge=False)
    table.add_row("a", "")
    table.add_row("b", "a long note")
    console.print_result(table)
    assert capsys.readouterr().out == "name  note\na\nb     a long note\n"
