"""Decide between two interleaved rankings by the clicks on them, with a result that may be looked at every day.

Every list is a contest: the ranking whose documents got more clicks wins. If users do not care, each ranking wins half
of the decided contests. The evidence against a share p of wins is the mixture likelihood ratio

    E(p) = B(a + wins, a + losses) / (B(a, a) p^wins (1 - p)^losses),

a martingale of mean 1 if p is the true share (Robbins, 1970). By Ville's inequality it ever reaches 1/α with
probability α at most. So the shares with E(p) < 1/α are an interval that covers the true share at all times at once,
however often and at whatever time one looks, and one may stop as soon as it excludes 1/2.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq
from scipy.special import betaln

from kinrank.data.files import PathLike, open_bytes
from kinrank.errors import FileFormatError, ParameterError

_PRIOR = 20.0  # a of Beta(a, a): the interval is shortest for shares of wins around 0.4 and 0.6
_EDGE = 1e-12


@dataclass(frozen=True)
class Contest:
    """The result of interleaving two models."""

    first: str
    second: str
    """The models."""
    wins: int
    losses: int
    ties: int
    """Sessions (or lists without a session) in which the first got more clicks than the second, fewer, or as many."""
    low: float
    high: float
    """The always-valid interval of the share of wins of the first model among decided sessions."""
    alpha: float
    """The probability that the interval ever misses the true share."""

    @property
    def share(self) -> float:
        """The share of wins of the first model; 1/2 if nothing is decided."""
        decided = self.wins + self.losses
        return self.wins / decided if decided else 0.5

    @property
    def verdict(self) -> str:
        """What may be concluded now."""
        if self.low > 0.5:
            return f"{self.first} is better: you may stop."
        if self.high < 0.5:
            return f"{self.second} is better: you may stop."
        return "Undecided: go on, or stop and keep what you have."


def share_interval(wins: int, losses: int, alpha: float = 0.05) -> tuple[float, float]:
    """Return the always-valid interval of the share of wins.

    Examples
    --------
    >>> [round(bound, 3) for bound in share_interval(60, 40)]
    [0.455, 0.734]
    >>> [round(bound, 3) for bound in share_interval(600, 400)]
    [0.549, 0.65]
    """
    if not 0 < alpha < 1:
        raise ParameterError(f"alpha must be between 0 and 1, got {alpha}")

    def excess(p: float) -> float:
        evidence = betaln(_PRIOR + wins, _PRIOR + losses) - betaln(_PRIOR, _PRIOR)
        return float(evidence - wins * np.log(p) - losses * np.log1p(-p) + np.log(alpha))

    best = min(max(wins / max(wins + losses, 1), _EDGE), 1 - _EDGE)
    low = brentq(excess, _EDGE, best) if wins and excess(_EDGE) > 0 else 0.0
    high = brentq(excess, best, 1 - _EDGE) if losses and excess(1 - _EDGE) > 0 else 1.0
    return float(low), float(high)


def read_contest(files: Sequence[PathLike], alpha: float = 0.05) -> Contest:
    r"""Read interleaved lists with their clicks: one JSON object per line.

    Each has ``ids`` and ``teams`` as the service returned them, ``clicked`` with the ids that were clicked, and
    optionally a ``session``: the lists of a session count as one contest, because they are the choices of one user.
    Lists that ``explored`` are left out: no model chose their order.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "lists.ndjson"
    >>> _ = path.write_text('{"ids": ["a", "b"], "teams": ["kin", "global"], "clicked": ["a"]}\n' * 40)
    >>> contest = read_contest([path])
    >>> contest.wins, contest.losses, contest.verdict
    (0, 40, 'kin is better: you may stop.')
    """
    credit: dict[str, dict[str, int]] = {}
    teams: dict[str, None] = {}
    for path in files:
        with open_bytes(path, "rb") as stream:
            for number, line in enumerate(stream, 1):
                found = _read_list(path, number, line) if line.strip() else None
                if found is not None:
                    session, clicks, shown = found
                    teams.update(dict.fromkeys(shown))
                    counted = credit.setdefault(session, {})
                    for team in clicks:
                        counted[team] = counted.get(team, 0) + 1
    if len(teams) != 2:
        raise FileFormatError(files[0], 0, f"expected lists of two models, got {len(teams)}: {', '.join(teams)}")
    first, second = sorted(teams)
    leads = [counted.get(first, 0) - counted.get(second, 0) for counted in credit.values()]
    wins, losses = sum(lead > 0 for lead in leads), sum(lead < 0 for lead in leads)
    low, high = share_interval(wins, losses, alpha)
    return Contest(first, second, wins, losses, len(leads) - wins - losses, low, high, alpha)


def _read_list(path: PathLike, number: int, line: bytes) -> tuple[str, Iterable[str], list[str]] | None:
    """Return the session of a list, the models of its clicks, and those of its documents; None if it explored."""
    try:
        shown = json.loads(line)
        if shown.get("explored"):
            return None
        team_of = dict(zip(shown["ids"], shown["teams"], strict=True))
        clicks = [team_of[document] for document in dict.fromkeys(shown["clicked"]) if document in team_of]
        return str(shown.get("session", f"{path}:{number}")), clicks, shown["teams"]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise FileFormatError(
            path, number, f"expected an object with ids, teams and clicked, got {line[:80]!r} ({error!r})"
        ) from None
