from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from kinrank.clicks._interleaving import read_contest, share_interval
from kinrank.errors import FileFormatError, ParameterError


def test_the_interval_holds_at_all_times_at_once():
    rng = np.random.default_rng(0)
    looks = [20, 50, 100, 200, 400, 800]
    for truth in (0.5, 0.6):
        missed = 0
        for _ in range(400):
            won = np.cumsum(rng.random(looks[-1]) < truth)[np.array(looks) - 1]
            bounds = [share_interval(int(wins), look - int(wins)) for wins, look in zip(won, looks, strict=True)]
            missed += any(not low <= truth <= high for low, high in bounds)
        assert missed <= 0.05 * 400


def test_a_clear_difference_is_found():
    low, _ = share_interval(700, 300)
    assert low > 0.5
    low, high = share_interval(0, 0)
    assert (low, high) == (0.0, 1.0)
    assert share_interval(30, 50) == pytest.approx([1 - bound for bound in share_interval(50, 30)[::-1]])


def write(path: Path, *lists: dict[str, object]) -> Path:
    path.write_text("".join(json.dumps(each) + "\n" for each in lists))
    return path


def test_lists_of_a_session_are_one_contest(tmp_path: Path):
    shown = {"ids": ["a", "b"], "teams": ["kin", "global"]}
    file = write(
        tmp_path / "lists.ndjson",
        {**shown, "clicked": ["a", "a"], "session": "s1"},
        {**shown, "clicked": ["a"], "session": "s1"},
        {**shown, "clicked": ["b"], "session": "s1"},
        {**shown, "clicked": ["b"], "session": "s2"},
        {**shown, "clicked": [], "session": "s3"},
        {**shown, "clicked": ["a", "b", "other"]},
    )
    contest = read_contest([file])
    assert (contest.first, contest.second) == ("global", "kin")
    assert (contest.wins, contest.losses, contest.ties) == (1, 1, 2)
    assert contest.verdict.startswith("Undecided")


def test_errors_say_what_is_expected(tmp_path: Path):
    explored = {"ids": ["a"], "teams": None, "clicked": ["a"], "explored": 0.05}
    lists = [{"ids": ["a", "b"], "teams": ["kin", "global"], "clicked": ["a"]}, explored]
    assert read_contest([write(tmp_path / "c.ndjson", *lists)]).losses == 1  # no model chose the order of the second
    with pytest.raises(FileFormatError, match="line 1: expected an object with ids, teams and clicked"):
        read_contest([write(tmp_path / "a.ndjson", {"ids": ["a"]})])
    with pytest.raises(FileFormatError, match="expected lists of two models, got 1: kin"):
        read_contest([write(tmp_path / "b.ndjson", {"ids": ["a"], "teams": ["kin"], "clicked": []})])
    with pytest.raises(ParameterError, match="alpha must be between 0 and 1"):
        share_interval(1, 1, 2.0)
