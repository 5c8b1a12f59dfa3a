from __future__ import annotations

import time

import pytest

from kinrank.cli import messages


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let Rich believe in a terminal that understands cursor movements."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(messages._stderr, "is_interactive", True)  # decided when the console was made


def test_quick_work_shows_no_bar(terminal, capsys: pytest.CaptureFixture[str]):
    with messages.working("reading", 10) as advance:
        advance(10)
    assert capsys.readouterr() == ("", "")


def test_long_work_shows_a_bar_on_stderr(terminal, capsys: pytest.CaptureFixture[str], monkeypatch):
    monkeypatch.setattr(messages, "PATIENCE", 0.0)
    with messages.working("reading", 10) as advance:
        advance(4)
        time.sleep(0.5)
    out, err = capsys.readouterr()
    assert out == ""
    assert "reading" in err
    assert "4/10" in err


def test_no_bar_without_a_terminal(capsys: pytest.CaptureFixture[str], monkeypatch):
    monkeypatch.setattr(messages, "PATIENCE", 0.0)
    with messages.working("reading"):
        time.sleep(0.2)
    assert capsys.readouterr() == ("", "")


def test_a_failure_ends_the_bar(terminal, monkeypatch):
    monkeypatch.setattr(messages, "PATIENCE", 0.0)

    def fail_later() -> None:
        with messages.working("reading"):
            time.sleep(0.2)
            raise ZeroDivisionError("division")

    with pytest.raises(ZeroDivisionError, match="division"):
        fail_later()
    with messages.working("reading again"):  # Rich allows one bar at a time
        time.sleep(0.2)


def test_messages_take_text_as_it_is(capsys: pytest.CaptureFixture[str]):
    messages.say("[bold]" + 200 * "x")
    messages.warn("a [b]")
    messages.fail("c [d]")
    out, err = capsys.readouterr()
    assert (out, err) == ("", "[bold]" + 200 * "x" + "\nwarning: a [b]\nerror: c [d]\n")
