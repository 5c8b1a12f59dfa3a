"""Team-draft interleaving."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kinrank.serve._experiments import team_draft

ORDERS = st.integers(1, 12).flatmap(
    lambda n: st.tuples(*[st.permutations([f"d{i}" for i in range(n)]) for _ in range(2)])
)


@given(orders=ORDERS, seed=st.text())
def test_each_pick_is_the_best_left_and_turns_alternate(orders: tuple[list[str], list[str]], seed: str):
    ids, teams = team_draft(*orders, seed)
    assert sorted(ids) == sorted(orders[0])
    for place, (document, team) in enumerate(zip(ids, teams, strict=True)):
        assert document == next(d for d in orders[team] if d not in ids[:place])
        assert abs(teams[: place + 1].count(0) - teams[: place + 1].count(1)) <= 1


def test_seed_fixes_the_list_and_either_ranking_may_start():
    first, second = ["a", "b", "c"], ["c", "b", "a"]
    assert team_draft(first, second, "r") == team_draft(first, second, "r")
    leaders = [team_draft(first, second, str(seed))[1][0] for seed in range(400)]
    assert 140 < sum(leaders) < 260  # 6 standard deviations of a fair coin
