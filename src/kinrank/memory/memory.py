"""Memory for any retriever: its hits in a better order, by what people chose for similar questions. No training.

Everything that is remembered is in one SQLite file. In main memory is only the index of questions.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np

from kinrank.arrays import Float64
from kinrank.data.queryset import QuerySet
from kinrank.data.texts import TEXT, normalize_text
from kinrank.errors import DataError, ForeignFolderError, NewerFormatError, ParameterError, StoreError
from kinrank.memory._questions import TextQuestions, VectorQuestions
from kinrank.memory._reasons import listed


class Given(NamedTuple):
    """A document as it is known."""

    name: str
    content: int | None
    """The hash of its text, if that is given."""
    given: str | int


Document = str | int | tuple[str | int, str] | Given
"""A document of the caller: its id, its text, or both. A text without an id is known by its hash."""

Found = tuple[Sequence[Document], Sequence[float] | None]
"""The hits of a retriever, with their scores if there are any."""

NEIGHBORS = 150
"""How many similar questions count."""
WEIGHTS = {"score": 0.6, "likely": 2.0, "times_chosen": -1.2, "everyone": 2.4}
"""The weight of each column, fitted to the streams and splits of FAQ, GOV.UK and MetaTool, and rounded; ``python -m
benchmarks memory_stream`` measures them there, and on SciFact and NFCorpus.
"""
VOTES = {"liked": (20, 20), "chosen": (10, 10), "cited": (10, 10), "disliked": (20, 0)}
"""Amount and good part of what people can say of a document, in tenths: whole numbers can be taken back exactly."""
_SKIPPED = (3, 0)  # shown above something that was chosen
_TENTHS, _SHARES = 10, 1000
_BEST = 4  # highest grade in training, which would take infinitely many people
_ENOUGH = 200  # questions for training
_DOUBT = 0.5  # votes of kin at which half of them being against a document costs it a third
_NAMED = 0.05  # agreement from which questions are named in reasons
_FIRST, _FALL, _FOUND = 0.3, 0.7, 0.005  # how likely the first hit is right, how fast that falls, and of any document
_COMPARED = 20  # similar questions with which a new one is compared
_ALL_COMPARED = 500  # questions that are all compared; of n later, a share of 500 / n
_BINS = 20  # of similarity
_SIMILARITIES = np.append((np.arange(_BINS) + 0.5) / _BINS, 1.0)  # middles of bins; then the question itself
_PRIOR = np.interp(
    _SIMILARITIES[:_BINS],
    (0.025, 0.075, 0.125, 0.175, 0.25, 0.35, 0.45, 0.55, 0.7, 0.9),
    (0.01, 0.02, 0.03, 0.05, 0.10, 0.26, 0.50, 0.68, 0.80, 0.85),
)
"""How often questions of such a similarity chose the same, about, in five collections."""
_PRIOR_AMOUNT = 10.0  # comparisons that count as much as this prior, for each bin
_LONGEST_NAME = 200  # longer texts without an id are known by their hash
_DAY = 86_400.0
_FORMAT = 1
_TABLES = """
CREATE TABLE IF NOT EXISTS setting (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS question (id INTEGER PRIMARY KEY AUTOINCREMENT, key TEXT NOT NULL UNIQUE, text TEXT NOT NULL,
    vector BLOB);
CREATE TABLE IF NOT EXISTS document (id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE, content INTEGER,
    amount INTEGER NOT NULL DEFAULT 0, good INTEGER NOT NULL DEFAULT 0);
CREATE TABLE IF NOT EXISTS vote (question INTEGER NOT NULL, document INTEGER NOT NULL, user INTEGER NOT NULL,
    day INTEGER NOT NULL, amount INTEGER NOT NULL, good INTEGER NOT NULL, PRIMARY KEY (question, document, user))
    WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS cell (question INTEGER NOT NULL, document INTEGER NOT NULL, amount INTEGER NOT NULL,
    good INTEGER NOT NULL, PRIMARY KEY (question, document)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS pair (question INTEGER NOT NULL, other INTEGER NOT NULL, bin INTEGER NOT NULL,
    same INTEGER, PRIMARY KEY (question, other)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS pair_of_other ON pair (other);
CREATE TABLE IF NOT EXISTS agreement (bin INTEGER PRIMARY KEY, pairs INTEGER NOT NULL, same INTEGER NOT NULL);
INSERT OR IGNORE INTO setting VALUES ('format', '1'), ('forgotten', '0');
"""
_SAME = """
SELECT p.question, p.other, p.bin, p.same, CASE WHEN EXISTS (
    SELECT 1 FROM cell WHERE question = p.question AND good > 0
) THEN (
    SELECT 1000 * count(mine.good) / count(*) FROM cell AS theirs
    LEFT JOIN cell AS mine ON mine.question = p.question AND mine.document = theirs.document AND mine.good > 0
    WHERE theirs.question = p.other AND theirs.good > 0
) END
FROM pair AS p
WHERE p.question IN (SELECT value FROM json_each(?1)) OR p.other IN (SELECT value FROM json_each(?1))
"""
"""The pairs of some questions: how much was the same, in thousandths, and how much is."""


class Hit(NamedTuple):
    """A document in its new place."""

    id: str | int
    """Its id or text, as given; of a recalled document, the id under which it was learned."""
    score: float
    reason: str
    place: int
    """Its position among the given documents; -1 if memory added it."""


@dataclass(eq=False, slots=True)
class _Known:
    """What is known of a document."""

    amount: float = 0.0
    """Questions for which it was shown, and chosen."""
    good: float = 0.0
    kin_amount: float = 0.0
    """Votes of similar questions, each times how often questions so similar agree, and those of them for it."""
    kin_good: float = 0.0
    right: list[int] = field(default_factory=list)
    """Positions of similar questions, most similar first, for which it was chosen and passed over."""
    wrong: list[int] = field(default_factory=list)


class Person(int):
    """The number under which the votes of a person are stored; those without a person have negative ones."""


class _Fits(Protocol):
    def fit(self, X: QuerySet, /) -> Any:
        """Learn from judged queries."""


RankerT = TypeVar("RankerT", bound=_Fits)


class Memory:
    """Reorders the hits of any retriever by what people chose for similar questions.

    Parameters
    ----------
    path
        The SQLite file, which is made if there is none; ":memory:" keeps everything in this object. Several processes
        of one machine can share a file: what one of them learns, the others know.
    people
        How many people it takes to be half sure: what n people say of a document for a question counts in proportion to
        n / (n + people). Raise it if anybody may vote.
    neighbors
        How many similar questions count.

    Examples
    --------
    >>> memory = Memory(":memory:")
    >>> for user in ("ann", "bob", "eve"):
    ...     memory.learn("How do I reset my password?", ["billing", "account"], chosen=["account"], user=user)
    >>> hits = memory.rerank("I want to reset my password", ["billing", "account"])
    >>> hits[0].id, hits[0].reason
    ('account', 'chosen for *How do I reset my password?*')
    """

    def __init__(self, path: str | os.PathLike[str], *, people: float = 1.0, neighbors: int = NEIGHBORS) -> None:
        if str(path).startswith(("postgres://", "postgresql://")):
            raise ParameterError(
                "Memory keeps what it learns in a SQLite file, and got an address of PostgreSQL: pass "
                'a path, such as "memory.db"'
            )
        if not people >= 0:
            raise ParameterError(f"people must be 0 or more, got {people!r}")
        if neighbors < 1:
            raise ParameterError(f"neighbors must be 1 or more, got {neighbors!r}")
        self.path = os.fspath(path)
        self.people = people
        self.neighbors = neighbors
        self._lock = threading.RLock()
        self._database = _opened(self.path)
        self._version: tuple[int, int] | None = None
        self._forgotten = ""
        self._agreement = np.append(_PRIOR, 1.0)
        self._start()

    def __len__(self) -> int:
        """Return the number of known questions."""
        with self._reading():
            return len(self._ids)

    def close(self) -> None:
        """Close the file, after the calls that are under way in other threads."""
        with self._lock:
            self._database.close()

    # --- asking -----------------------------------------------------------------------------------------------------

    def rerank(
        self,
        question: str,
        documents: Sequence[Document],
        scores: Sequence[float] | None = None,
        *,
        vector: Any = None,
        recall: int = 0,
    ) -> list[Hit]:
        """Return the hits of a retriever, best first.

        Where nothing is known of any of them, they keep their order.

        Parameters
        ----------
        question
            The question.
        documents
            The hits: ids, texts, or pairs of id and text. A document whose text is not the one that was learned is new.
        scores
            The score of each hit, higher is better; None: the documents are in the order of the retriever.
        vector
            The vector of the question, if questions were learned with vectors.
        recall
            How many documents to add, at most, that helped for similar questions and are not among the hits.
        """
        given = [given_document(document) for document in documents]
        prior = _prior(len(given), scores)
        with self._reading():
            kin, known = self._look_up(question, vector, given)
            added = self._recalled(kin, known, {each.name for each in given}, recall)
            values = self._scores(prior, [kin.get(known.get(each.name, -1)) for each in given], [k for _, k in added])
            return sorted(
                [
                    *(
                        Hit(each.given, score, self._reason(kin.get(known.get(each.name, -1))), place)
                        for place, (each, score) in enumerate(zip(given, values, strict=False))
                    ),
                    *(
                        Hit(name, score, self._reason(found), -1)
                        for (name, found), score in zip(added, values[len(given) :], strict=True)
                    ),
                ],
                key=lambda hit: -hit.score,
            )

    def recall(self, question: str, n: int = 5, *, exclude: Iterable[Document] = (), vector: Any = None) -> list[Hit]:
        """Return the documents that helped most for similar questions, best first.

        Parameters
        ----------
        question
            The question.
        n
            How many to return, at most.
        exclude
            Documents to leave out, such as the hits that are there already.
        vector
            The vector of the question, if questions were learned with vectors.
        """
        without = {given_document(document).name for document in exclude}
        with self._reading():
            kin, known = self._look_up(question, vector, [])
            added = self._recalled(kin, known, without, n)
            scores = self._scores(np.empty((0, 2)), [], [found for _, found in added])
            return sorted(
                (Hit(name, score, self._reason(found), -1) for (name, found), score in zip(added, scores, strict=True)),
                key=lambda hit: -hit.score,
            )

    def _look_up(self, question: str, vector: Any, given: Sequence[Given]) -> tuple[dict[int, _Known], dict[str, int]]:
        """Return what is known by document, for similar questions and of the given documents, whose ids come, too."""
        places, similar = self._index.nearest(self._asked(question, vector), self.neighbors)
        found: dict[int, _Known] = {}
        if len(places):
            near = list(zip(places.tolist(), np.interp(similar, _SIMILARITIES, self._agreement).tolist(), strict=True))
            doubt = _TENTHS * self.people
            nearest_first = self._execute(
                "SELECT k.key, c.document, c.amount, c.good FROM json_each(?) AS k CROSS JOIN cell AS c "
                "ON c.question = k.value ORDER BY k.key, c.document",
                json.dumps([self._ids[place] for place, _ in near]),
            )
            for number, document, amount, good in nearest_first:
                place, w = near[number]
                known = found.get(document)
                if known is None:
                    known = found[document] = _Known()
                known.kin_amount += w * amount / (amount + doubt)
                known.kin_good += w * good / (amount + doubt)
                if w > _NAMED:
                    (known.right if good > 0 else known.wrong).append(place)
        ids: dict[str, int] = {}
        rows = self._execute(
            "SELECT name, id, content, amount, good FROM document WHERE name IN (SELECT value FROM json_each(?))",
            json.dumps([each.name for each in given]),
        )
        content = {each.name: each.content for each in given}
        for name, number, stored, amount, good in rows:
            if None in (stored, content[name]) or stored == content[name]:  # else it has changed since
                ids[name] = number
                known = found.setdefault(number, _Known())
                known.amount, known.good = amount / _SHARES, good / _SHARES
        return found, ids

    def _recalled(
        self, kin: dict[int, _Known], known: dict[str, int], without: set[str], n: int
    ) -> list[tuple[str, _Known]]:
        """Return the names of the documents that helped most and are not given, with what is known of them."""
        here = set(known.values())
        helped = [number for number, found in kin.items() if found.kin_good > 0 and number not in here]
        helped.sort(key=lambda number: (-kin[number].kin_good, number))
        helped = helped[: n + len(without)]
        rows = (
            self._execute(
                "SELECT id, name, amount, good FROM document WHERE id IN (SELECT value FROM json_each(?))",
                json.dumps(helped),
            )
            if n > 0 and helped
            else []
        )
        named = {}
        for number, name, amount, good in rows:
            named[number] = name
            kin[number].amount, kin[number].good = amount / _SHARES, good / _SHARES
        wanted = [number for number in helped if number in named and named[number] not in without]
        return [(named[number], kin[number]) for number in wanted[:n]]

    def _scores(self, prior: Float64, given: Sequence[_Known | None], added: Sequence[_Known]) -> list[float]:
        """Return the scores of given documents and of those that memory adds."""
        scores: list[float] = (self._columns(prior, given, added) @ np.array(list(WEIGHTS.values()))).tolist()
        return scores

    def _columns(self, prior: Float64, given: Sequence[_Known | None], added: Sequence[_Known]) -> Float64:
        """Return the columns of `WEIGHTS` of given documents and of those that memory adds."""
        found = np.zeros((len(given) + len(added), len(WEIGHTS)))
        found[: len(given), 0] = prior[:, 1]
        likely = np.full(len(found), _FOUND)
        likely[: len(given)] += _FIRST * np.exp(_FALL * prior[:, 0])
        for place, known in enumerate((*given, *added)):
            if known is not None:
                # What kin say adds to what the place says: a document may be right for either.
                likely[place] += known.kin_good
                likely[place] *= (_DOUBT + known.kin_good) / (_DOUBT + known.kin_amount)
                found[place, 2:] = math.log1p(known.good), (known.good + 1.0) / (known.amount + 4.0) - 0.25
        found[:, 1] = np.log(likely)
        return found

    def _reason(self, known: _Known | None) -> str:
        if known is None:
            return "the retriever's place: nothing is known of it"
        said = [
            f"{how} for {listed([self._texts[place] for place in places])}"
            for how, places in (("chosen", known.right), ("passed over", known.wrong))
            if places
        ]
        if not said and known.good > 0:
            said = ["chosen before, but for no question like this"]
        return ", ".join(said) or "the retriever's place: not chosen for any question like this"

    # --- learning and forgetting ------------------------------------------------------------------------------------

    def learn(
        self,
        question: str,
        shown: Sequence[Document] = (),
        chosen: Iterable[Document] = (),
        *,
        liked: Iterable[Document] = (),
        disliked: Iterable[Document] = (),
        cited: Iterable[Document] = (),
        user: str | int | None = None,
        vector: Any = None,
    ) -> None:
        """Learn what one person did with an answer.

        If nothing was chosen, liked, disliked or cited, nothing is learned.

        Parameters
        ----------
        question
            The question.
        shown
            The documents that were shown, in this order. Those above the last one that was chosen, liked or cited
            count a little as not chosen.
        chosen
            Those that the person clicked or used.
        liked, disliked
            Those with a thumb up or down, which counts twice.
        cited
            Those that the answer of an assistant cites.
        user
            Who it was. One person has one vote on a document of a question, the last one. Without it, each call counts
            as another person. Only a hash of it is kept.
        vector
            The vector of the question, if questions are compared by vectors: give it with every question or with none.
        """
        votes: dict[str, tuple[int, int]] = {}
        given = {each.name: each for each in map(given_document, shown)}
        above = list(given)
        said = {"chosen": chosen, "cited": cited, "liked": liked, "disliked": disliked}
        for how, documents in said.items():
            if isinstance(documents, str):
                raise DataError(f"{how} must be a list of documents, got {documents!r}: put it into a list")
            for each in map(given_document, documents):
                if how == "disliked" and votes.get(each.name, _SKIPPED)[1]:
                    raise DataError(f"document {each.given!r} is disliked and also chosen, liked or cited: give one")
                if each.name not in given or each.content is not None:
                    given[each.name] = each
                votes[each.name] = VOTES[how]
        if not votes:
            return
        last = max((place for place, name in enumerate(above) if votes.get(name, _SKIPPED)[1] > 0), default=0)
        skipped = dict.fromkeys((name for name in above[:last] if name not in votes), _SKIPPED)
        person = -time.time_ns() if user is None else person_of(user)
        with self._writing():
            asked = self._asked(question, vector)
            number = self._question(question, asked)
            for name, vote in {**skipped, **votes}.items():
                self._vote(number, self._document(given[name]), person, vote, weak=name in skipped)
            self._compare([number])

    def unlearn(self, question: str, documents: Iterable[Document], *, user: str | int | None = None) -> int:
        """Take back votes of a person on documents of a question, and return how many there were.

        Without `user`, the latest vote without one is taken back for each document.
        """
        if isinstance(documents, str):
            raise DataError(f"documents must be a list, got {documents!r}: put it into a list")
        names = json.dumps([given_document(document).name for document in documents])
        least, most = (-(2**63), -1) if user is None else (person_of(user),) * 2
        return self._delete(
            "SELECT v.question, v.document, min(v.user) FROM vote AS v JOIN question AS q ON q.id = v.question "
            "JOIN document AS d ON d.id = v.document WHERE q.key = ? AND d.name IN (SELECT value FROM json_each(?)) "
            "AND v.user BETWEEN ? AND ? GROUP BY v.question, v.document",
            (normalize_text(question), names, least, most),
        )

    def forget(
        self,
        *,
        user: str | int | None = None,
        document: Document | None = None,
        question: str | None = None,
        before: float | None = None,
    ) -> int:
        """Forget all votes of a person, on a document, on a question, or before a time; return how many there were.

        Questions and documents without a vote are forgotten, too. Takes time in proportion to the memory.

        Parameters
        ----------
        user, document, question
            Whose votes, or on what. If several are given, votes that match all of them are forgotten.
        before
            Seconds since 1970; whole days are forgotten.
        """
        if user is None and document is None and question is None and before is None:
            raise ParameterError("forget needs a user, a document, a question or a time: pass one of them")
        values = (
            None if user is None else person_of(user),
            None if document is None else given_document(document).name,
            None if question is None else normalize_text(question),
            None if before is None else int(before // _DAY),
        )
        return self._delete(
            "SELECT v.question, v.document, v.user FROM vote AS v JOIN question AS q ON q.id = v.question "
            "JOIN document AS d ON d.id = v.document WHERE v.user = coalesce(?, v.user) "
            "AND d.name = coalesce(?, d.name) AND q.key = coalesce(?, q.key) AND v.day < coalesce(?, v.day + 1)",
            values,
        )

    def _delete(self, select: str, values: tuple[Any, ...]) -> int:
        """Delete the votes that a statement selects."""
        with self._writing():
            votes = self._execute(select, *values)
            for question, document, person in votes:
                self._vote(question, document, person, None)
            if votes:
                self._compare(sorted({question for question, _, _ in votes}))
                self._execute("DELETE FROM document WHERE id NOT IN (SELECT document FROM vote)")
                self._execute("DELETE FROM question WHERE id NOT IN (SELECT question FROM vote)")
                self._execute("DELETE FROM pair WHERE question NOT IN (SELECT id FROM question)")
                self._execute("DELETE FROM pair WHERE other NOT IN (SELECT id FROM question)")
                self._execute("UPDATE setting SET value = value + 1 WHERE name = 'forgotten'")
        return len(votes)

    def _vote(
        self, question: int, document: int, person: int, vote: tuple[int, int] | None, *, weak: bool = False
    ) -> None:
        """Store the vote of a person in place of the one before; None deletes it. A weak one replaces none."""
        key = question, document, person
        before = self._execute("SELECT amount, good FROM vote WHERE question = ? AND document = ? AND user = ?", *key)
        if before and weak:
            return
        if vote is None:
            self._execute("DELETE FROM vote WHERE question = ? AND document = ? AND user = ?", *key)
        else:
            self._execute(
                "INSERT OR REPLACE INTO vote VALUES (?, ?, ?, ?, ?, ?)", *key, int(time.time() // _DAY), *vote
            )
        old, new = before[0] if before else (0, 0), vote or (0, 0)
        cell = self._execute("SELECT amount, good FROM cell WHERE question = ? AND document = ?", question, document)
        had = cell[0] if cell else (0, 0)
        has = had[0] + new[0] - old[0], had[1] + new[1] - old[1]
        if has[0]:
            self._execute("INSERT OR REPLACE INTO cell VALUES (?, ?, ?, ?)", question, document, *has)
        else:
            self._execute("DELETE FROM cell WHERE question = ? AND document = ?", question, document)
        change = (now - then for now, then in zip(_share(*has), _share(*had), strict=True))
        self._execute("UPDATE document SET amount = amount + ?, good = good + ? WHERE id = ?", *change, document)

    def _question(self, text: str, asked: Any) -> int:
        """Return the number of a question. A new one is stored, with those it will be compared with."""
        key = normalize_text(text)
        found = self._execute("SELECT id FROM question WHERE key = ?", key)
        if found:
            return int(found[0][0])
        blob = None if isinstance(asked, str) else asked.tobytes()
        self._execute("INSERT INTO question (key, text, vector) VALUES (?, ?, ?)", key, text, blob)
        number = int(self._execute("SELECT last_insert_rowid()")[0][0])
        if self._ids and _hash(key) % len(self._ids) < _ALL_COMPARED:
            for place, w in zip(*self._index.nearest(asked, _COMPARED), strict=True):
                bin_ = min(int(w * _BINS), _BINS - 1)
                self._execute("INSERT INTO pair VALUES (?, ?, ?, NULL)", number, self._ids[place], bin_)
        return number

    def _compare(self, questions: Sequence[int]) -> None:
        """Count again which of the documents chosen for similar questions were chosen for some questions, too.

        That is in thousandths, and nothing while one of a pair has no choice.
        """
        pairs = self._execute(_SAME, json.dumps(questions))
        for question, other, bin_, before, now in pairs:
            if now != before:
                self._execute("UPDATE pair SET same = ? WHERE question = ? AND other = ?", now, question, other)
                self._execute(
                    "INSERT INTO agreement VALUES (?, ?, ?) ON CONFLICT (bin) DO UPDATE SET pairs = pairs + "
                    "excluded.pairs, same = same + excluded.same",
                    *(bin_, (now is not None) - (before is not None), (now or 0) - (before or 0)),
                )

    def _document(self, given: Given) -> int:
        """Return the number of a document, which is stored if it is new. What is known of another text is deleted."""
        found = self._execute("SELECT id, content FROM document WHERE name = ?", given.name)
        if found and given.content is not None and found[0][1] != given.content:
            number, stored = found[0]
            if stored is None:
                self._execute("UPDATE document SET content = ? WHERE id = ?", given.content, number)
            else:
                self._execute("DELETE FROM vote WHERE document = ?", number)
                self._execute("DELETE FROM cell WHERE document = ?", number)
                self._execute("DELETE FROM document WHERE id = ?", number)
                found = []
        if not found:
            self._execute("INSERT INTO document (name, content) VALUES (?, ?)", given.name, given.content)
            found = self._execute("SELECT last_insert_rowid()")
        return int(found[0][0])

    # --- training ---------------------------------------------------------------------------------------------------

    def train(self, ranker: RankerT, retrieve: Callable[[str], Found]) -> RankerT:
        """Fit a ranker on everything that was learned, and return it.

        Each known question is asked again. Those for which a document was chosen that is found teach the ranker; it
        takes at least 200. A `KinRanker` remembers them, too, and learns how much memory counts next to the retriever.

        Parameters
        ----------
        ranker
            The ranker, such as ``KinRanker()``.
        retrieve
            Returns the hits for a question, with their scores or None, as passed to `rerank`.

        Examples
        --------
        ::

            ranker = memory.train(KinRanker(), retrieve)
            scores = ranker.predict(memory.to_queries({question: retrieve(question)}))
        """
        with self._reading():
            questions = list(self._texts)
        queries = self.to_queries({question: retrieve(question) for question in questions})
        queries = queries[np.maximum.reduceat(queries.grades, queries.offsets[:-1]) > 0] if len(queries) else queries
        if len(queries) < _ENOUGH:
            raise DataError(
                f"training takes {_ENOUGH} questions for which a document was chosen that the retriever finds, got "
                f"{len(queries)} of {len(questions)}: use rerank, which needs no training, until more is learned"
            )
        ranker.fit(queries)
        return ranker

    def to_queries(self, found: Mapping[str, Found]) -> QuerySet:
        """Return hits as rankers take them: features *rank* and *score*, and votes as grades from 0 to 4.

        Parameters
        ----------
        found
            The hits of each question, with their scores or None. Questions without hits are left out.
        """
        X, y, sizes, names = [np.empty((0, 2))], list[int](), list[int](), list[str]()
        asked = [question for question, (documents, _) in found.items() if documents]
        with self._reading():
            for question in asked:
                documents, scores = found[question]
                given = [given_document(document) for document in documents]
                votes = {
                    name: (content, good / (amount + _TENTHS * self.people))
                    for name, content, amount, good in self._execute(
                        "SELECT d.name, d.content, c.amount, c.good FROM question AS q JOIN cell AS c "
                        "ON c.question = q.id JOIN document AS d ON d.id = c.document WHERE q.key = ?",
                        normalize_text(question),
                    )
                }
                X.append(_prior(len(given), scores))
                for each in given:
                    content, rate = votes.get(each.name, (None, 0.0))
                    y.append(round(_BEST * rate) if None in (content, each.content) or content == each.content else 0)
                sizes.append(len(given))
                names += [each.name for each in given]
        return QuerySet.from_arrays(
            np.concatenate(X),
            y,
            group=sizes,
            doc_id=np.array(names, dtype=np.str_),
            feature_names=["rank", "score"],
            query_columns={TEXT: np.array(asked, dtype=np.str_)},
        )

    # --- the file and the index -------------------------------------------------------------------------------------

    def _asked(self, question: str, vector: Any) -> Any:
        """Return what the index compares: the question, or its vector."""
        if not isinstance(question, str):
            raise DataError(f"question must be a str, got {question!r}")
        width = self._index.width if isinstance(self._index, VectorQuestions) else 0
        if self._ids and bool(width) != (vector is not None):
            how, fix = ("vectors", "pass vector=") if width else ("texts", "leave vector out")
            raise DataError(f"the questions of this memory are compared by {how}: {fix}, or start another memory")
        if vector is None:
            return question
        values = np.asarray(vector, dtype=np.float32)
        if values.ndim != 1 or not len(values) or not np.isfinite(values).all() or (width and len(values) != width):
            wanted = f"of {width} finite numbers" if width else "of finite numbers"
            raise DataError(f"vector must be a list {wanted}, got shape {values.shape}: use one encoder for all")
        return values

    def _start(self) -> None:
        """Forget what is in main memory."""
        self._ids: list[int] = []
        self._texts: list[str] = []
        self._index: TextQuestions | VectorQuestions = TextQuestions()

    def _refresh(self) -> None:
        """Read what was learned since, here or by other processes."""
        version = self._execute("PRAGMA data_version")[0][0], self._database.total_changes
        if version == self._version:
            return
        forgotten = self._execute("SELECT value FROM setting WHERE name = 'forgotten'")[0][0]
        if forgotten != self._forgotten:
            self._start()
        last = self._ids[-1] if self._ids else 0
        new = self._execute("SELECT id, text, vector FROM question WHERE id > ? ORDER BY id", last)
        if new:
            if new[0][2] is not None and not self._ids:
                self._index = VectorQuestions()
            numbers, texts, vectors = (list(values) for values in zip(*new, strict=True))
            if isinstance(self._index, VectorQuestions):
                self._index.add([np.frombuffer(each, dtype=np.float32) for each in vectors])
            else:
                self._index.add(texts)
            self._ids += numbers
            self._texts += texts
        counted = np.zeros((2, _BINS))
        for bin_, pairs, same in self._execute("SELECT bin, pairs, same FROM agreement"):
            counted[:, bin_] = pairs, same / _SHARES
        # Bins next to each other are alike.
        pairs, same = (np.convolve(each, (0.5, 1.0, 0.5), "same") for each in counted)
        self._agreement[:_BINS] = (same + _PRIOR_AMOUNT * _PRIOR) / (pairs + _PRIOR_AMOUNT)
        self._version, self._forgotten = version, forgotten

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Read one state of the file, with an index that knows it."""
        with self._lock, self._transaction("BEGIN"):
            self._refresh()
            yield

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Write all or nothing."""
        with self._lock:
            with self._transaction("BEGIN IMMEDIATE"):
                self._refresh()
                yield
            with self._transaction("BEGIN"):
                self._refresh()

    @contextmanager
    def _transaction(self, begin: str) -> Iterator[None]:
        try:
            self._execute(begin)
            try:
                yield
            except BaseException:
                self._execute("ROLLBACK")
                raise
            self._execute("COMMIT")
        except sqlite3.Error as error:
            raise StoreError(
                f"{self.path}: the memory cannot be used ({error}): check the file and its disk"
            ) from error

    def _execute(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        return self._database.execute(statement, values).fetchall()


def _opened(path: str) -> sqlite3.Connection:
    """Open a file, or make one."""
    try:
        database = sqlite3.connect(path, timeout=10.0, isolation_level=None, check_same_thread=False)
        with suppress(sqlite3.OperationalError):  # another process is just setting it, or it is in main memory
            database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = NORMAL")
        others = database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        if others and ("cell",) not in others:
            raise ForeignFolderError(f"{path} is a database of something else: pass another file")
        database.executescript(_TABLES)
        written = int(database.execute("SELECT value FROM setting WHERE name = 'format'").fetchone()[0])
    except sqlite3.Error as error:
        raise StoreError(f"{path} cannot be opened as a memory ({error}): pass a path that can be written") from error
    if written > _FORMAT:
        raise NewerFormatError(f"{path} was written by a newer kinrank (format {written}): upgrade kinrank")
    return database


def given_document(document: Document) -> Given:
    """Return the name under which a document is known, and the hash of its content if that is told."""
    if isinstance(document, Given):
        return document
    identifier, text = document if isinstance(document, tuple) else (document, None)
    if not isinstance(identifier, str | int) or not isinstance(text, str | None):
        raise DataError(f"a document must be an id, a text or a pair of both, got {document!r}")
    name = str(identifier)
    if len(name) > _LONGEST_NAME:
        name = _digest(name, 16).hex()
    return Given(name, None if text is None else _hash(text), identifier)


def _share(amount: int, good: int) -> tuple[int, int]:
    """Return what one question says of a document: together, its votes count as one at most."""
    most = max(amount, _TENTHS)
    return _SHARES * amount // most, _SHARES * good // most


def _hash(text: str) -> int:
    """Return a signed hash of 64 bits, as SQLite stores integers."""
    return int.from_bytes(_digest(text, 8), "big", signed=True)


def _digest(text: str, size: int) -> bytes:
    return hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=size).digest()


def person_of(user: str | int) -> Person:
    """Return the number of a person, who may be given by it."""
    return user if isinstance(user, Person) else Person(_hash(str(user)) & 0x7FFF_FFFF_FFFF_FFFF)


def _prior(n: int, scores: Sequence[float] | None) -> Float64:
    """Return the columns *rank* and *score* of hits.

    Scores are divided by their range. Without scores, they fall with the rank.
    """
    if scores is None:
        rank: Float64 = np.arange(n, dtype=np.float64)
        values: Float64 = 1.0 / np.sqrt(rank + 1.0)
    else:
        values = np.asarray(scores, dtype=np.float64)
        if values.shape != (n,) or not np.isfinite(values).all():
            raise DataError(f"scores must be one finite number per document ({n}), got {scores!r}")
        rank = np.empty(n)
        rank[np.argsort(-values, kind="stable")] = np.arange(n)
    low, high = (values.min(), values.max()) if n else (0.0, 0.0)
    return np.column_stack([-np.log(rank + 1.0), (values - low) / (high - low) if high > low else np.zeros(n)])
