"""Ask the questions of a log again, in their order: what memory would have gained on them, and what its rivals would.

Each search is answered by what was learned before it, and learned afterwards. The rivals are what anyone could do with
the same votes: put first what is chosen most for any question, or what was right for the nearest known question, or let
the 20 nearest ones vote.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from kinrank.arrays import Float64, Int64
from kinrank.data.texts import normalize_text
from kinrank.errors import DataError
from kinrank.measure import PairedComparison, compare_paired
from kinrank.memory.memory import VOTES, Memory
from kinrank.memory.tables import Said
from kinrank.memory.why import Similar

RETRIEVER, POPULAR, NEAREST = "the order of the log", "what is chosen most", "the nearest question"
VOTING, MEMORY = "voting", "memory"
_DEPTH = 10  # documents that are measured
_RECALLED = 10  # documents that memory and its rivals may add to the hits
_VOTERS, _POWER = 20, 8.0  # of voting: how many questions, and the power of their similarity
_ALL = ""  # the name of all questions together
_FEWEST = 20  # searches that a verdict takes
_DAY = 86_400.0


@dataclass
class Search:
    """What one person asked, was shown and found right."""

    question: str
    user: str | int | None
    time: float
    shown: tuple[str, ...]
    votes: dict[str, str] = field(default_factory=dict)
    """The kind of the vote by document."""

    @property
    def right(self) -> set[str]:
        """The documents with a vote for them."""
        return {document for document, kind in self.votes.items() if kind in VOTES and VOTES[kind][1] > 0}


@dataclass(frozen=True, eq=False)
class Replay:
    """NDCG@10 of each system on each search of a log for which a document was right.

    Attributes
    ----------
    systems
        The values of each system, in the order of time.
    days
        The day of each search, since 1970.
    question
        The number of the question of each search. Searches for one question are not independent.
    """

    systems: dict[str, Float64]
    days: Int64
    question: Int64

    @property
    def rivals(self) -> list[str]:
        """The systems other than memory, the strongest first."""
        others = [name for name in self.systems if name != MEMORY]
        return sorted(others, key=lambda name: -float(self.systems[name].mean()))

    def gain(self, over: str, since: int | None = None) -> PairedComparison:
        """Return what memory gains over another system, on all searches or from a day on."""
        rows = slice(None) if since is None else self.days >= since
        own, other = self.systems[MEMORY][rows], self.systems[over][rows]
        return compare_paired(own, other, groups=self.question[rows])

    def pays(self, over: str) -> bool:
        """Return whether memory gains over another system by more than chance."""
        gain = self.gain(over)
        return gain.mean_difference > 0 and gain.p < 0.05

    def first_day(self, over: str) -> int | None:
        """Return the day, counted from the first one, from which memory is ahead of another system for good."""
        if not self.pays(over):
            return None
        difference = self.systems[MEMORY] - self.systems[over]
        cumulative = np.cumsum(difference)
        behind = np.flatnonzero(cumulative <= 0)
        first = 0 if not len(behind) else min(int(behind[-1]) + 1, len(difference) - 1)
        return int(self.days[first] - self.days[0]) + 1

    def __str__(self) -> str:
        strongest, several = self.rivals[0], len(np.unique(self.question)) > 1
        enough = several and len(self.days) >= _FEWEST
        lines = [f"{len(self.days):,} searches with a right document, on {len(np.unique(self.days)):,} days. NDCG@10:"]
        for name in (MEMORY, *self.rivals):
            over = f"; memory {self._difference(name)}" if enough and name != MEMORY else ""
            lines.append(f"  {name}: {_short(self.systems[name].mean())}{over}")
        if not enough:
            verdict = f"Too few searches for a verdict: it takes {_FEWEST}, and two questions."
        elif all(map(self.pays, self.rivals)):
            day = self.first_day(strongest)
            verdict = f"Memory pays: it is ahead of {strongest}, the strongest rival, from day {day} on."
        elif RETRIEVER in self.systems and self.pays(RETRIEVER):
            verdict = f"Memory is ahead of {RETRIEVER}, but not surely of {strongest}, which anyone can have."
        else:
            verdict = "On this log, memory does not pay."
        return "\n".join([*lines, verdict])

    def _difference(self, over: str) -> str:
        gain = self.gain(over)
        low, high = gain.interval
        return f"{_short(gain.mean_difference, '+')} (95% interval {_short(low, '+')} to {_short(high, '+')})"


def replay(
    votes: Iterable[Said], memory: Memory | None = None, progress: Callable[[int], None] = lambda _: None
) -> Replay:
    """Ask the questions of a log again.

    Parameters
    ----------
    votes
        The votes of the log, as `kinrank.memory.tables.read_votes` reads them. If they have what was shown, that is the
        order that memory is compared with.
    memory
        An empty memory, such as one with an encoder; None: one by letters.
    progress
        Called with how many searches were asked since the last time.

    Examples
    --------
    >>> shown = "prices", "account"
    >>> texts = [f"please reset password {n}" for n in range(40)]
    >>> votes = [Said(text, "account", "liked", "ann", None, n * 86_400.0, shown) for n, text in enumerate(texts)]
    >>> found = replay(votes)
    >>> found.pays("the order of the log"), found.first_day("the order of the log")
    (True, 2)
    """
    memory = memory or Memory(":memory:")
    if len(memory):
        raise DataError(f"{memory}: replay takes an empty memory, got one with {len(memory):,} questions")
    known: dict[str, Counter[str]] = defaultdict(Counter)
    values: dict[str, list[float]] = defaultdict(list)
    days, questions = [], []
    for search in searches(votes):
        if search.right:
            for name, order in _answers(search, memory, known).items():
                values[name].append(_ndcg(order, search.right))
            days.append(int(search.time // _DAY))
            questions.append(normalize_text(search.question))
        said = {kind: [each for each, own in search.votes.items() if own == kind] for kind in VOTES}
        memory.learn(search.question, search.shown, user=search.user, **said)
        for question in (normalize_text(search.question), _ALL):
            known[question].update(search.right)
        progress(1)
    if not days:
        raise DataError("no search of this log has a right document: a replay takes votes for documents")
    return Replay(
        {name: np.array(each) for name, each in values.items()},
        np.array(days, dtype=np.int64),
        np.unique(questions, return_inverse=True)[1].astype(np.int64),
    )


def searches(votes: Iterable[Said]) -> list[Search]:
    """Return the searches of a log in the order of time: votes of one person on one question at one time are one."""
    found: dict[tuple[object, ...], Search] = {}
    for number, vote in enumerate(votes):
        person = vote.user if vote.user is not None else vote.person
        alone = number if person is None and vote.time is None else None
        key = vote.question, person, vote.time, alone
        search = found.get(key)
        if search is None:
            search = found[key] = Search(vote.question, person, vote.time or 0.0, vote.shown)
        search.votes[vote.document] = vote.kind
    return sorted(found.values(), key=lambda search: search.time)


def _answers(search: Search, memory: Memory, known: dict[str, Counter[str]]) -> dict[str, list[str]]:
    """Return the documents of each system, best first."""
    similar = memory.similar(search.question, _VOTERS)
    nearest = max(similar, key=lambda each: each.similarity, default=None)
    of_nearest = Counter[str]() if nearest is None else known[normalize_text(nearest.question)]
    hits = memory.rerank(search.question, search.shown, recall=_RECALLED)
    orders = {
        MEMORY: [str(hit.id) for hit in hits],
        NEAREST: _first(of_nearest, search.shown),
        VOTING: _first(_votes(similar, known), search.shown),
        POPULAR: _first(known[_ALL], search.shown),
    }
    return orders | ({RETRIEVER: list(search.shown)} if search.shown else {})


def _votes(similar: Sequence[Similar], known: dict[str, Counter[str]]) -> Counter[str]:
    votes: Counter[str] = Counter()  # of shares, which are no whole numbers
    for each in similar:
        for document, count in known[normalize_text(each.question)].items():
            votes[document] += each.similarity**_POWER * count
    return votes


def _first(best: Counter[str], shown: Sequence[str]) -> list[str]:
    """Return what has most votes, then what was shown."""
    first = [document for document, _ in best.most_common(_RECALLED)]
    return [*first, *(document for document in shown if document not in best)]


def _ndcg(order: Sequence[str], right: set[str]) -> float:
    gains = np.array([document in right for document in order[:_DEPTH]], dtype=np.float64)
    discount = 1.0 / np.log2(np.arange(2, _DEPTH + 2))
    return float(gains @ discount[: len(gains)] / discount[: min(len(right), _DEPTH)].sum())


def _short(value: float, sign: str = "") -> str:
    return f"{value:{sign}.3f}".replace("0.", ".", 1)
