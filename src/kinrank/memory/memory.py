"""Memory for any retriever: its hits in a better order, by what people chose for similar questions. No training.

What people say is written to a ledger. What is asked is answered from a snapshot of it in main memory.
"""

from __future__ import annotations

import hashlib
import math
import os
import shutil
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import date
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, Protocol, Self, TypeVar
from uuid import UUID

import numpy as np

from kinrank.arrays import Float32, Float64, Int64
from kinrank.data.queryset import QuerySet
from kinrank.data.texts import TEXT, normalize_text
from kinrank.errors import DataError, ParameterError, StoreError
from kinrank.kin.letters import FAMILY
from kinrank.kin.questions import TextQuestions, VectorQuestions
from kinrank.memory import tables
from kinrank.memory._reasons import listed
from kinrank.memory.ledger import (
    SKIPPED,
    Changes,
    Cursor,
    Entry,
    KnownQuestion,
    List,
    Said,
    Selection,
    open_ledger,
)
from kinrank.memory.snapshot import SHARES, TAUGHT, Snapshot

Id = str | int | UUID | np.integer[Any]
"""What identifies a document or a person."""
_IDS = str, int, UUID, np.integer


class Given(NamedTuple):
    """A document as it is known."""

    name: str
    given: Id


Document = Id | tuple[Id, str] | Given
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
_TENTHS = 10
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
_EPOCH = date(1970, 1, 1).toordinal()
_FIRST_LEARNED = 500  # votes from elsewhere that are learned at once, before twice as many
_POLL_SECONDS = 0.25  # between two looks at a database for which asking takes long
_REMEMBERED = 10_000  # changes that are compared with those of a database that was restored
_WRITTEN = 20_000  # questions from which a snapshot is kept in a file, so that a memory opens at once


class Hit(NamedTuple):
    """A document in its new place."""

    id: Id
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
    """The number under which the votes of a person are stored; those without a name have negative ones."""


@dataclass(frozen=True)
class Health:
    """What went wrong with the database of a memory since it was opened."""

    failures: int = 0
    """How often the database could not be read, so that answers came from what was known before."""
    restored: int = 0
    """How often the database turned out to be an older copy that was restored."""
    lost: int = 0
    """How many changes, such as votes, were known here and not in such a copy."""


@dataclass(frozen=True)
class MemoryStats:
    """How much a memory knows."""

    questions: int
    """Questions with a vote."""
    documents: int
    people: int
    """Those with a name."""
    votes: dict[str, int]
    """How many votes of each kind were learned."""
    days: dict[date, dict[str, int]]
    """The same by day."""
    bytes: int
    """What the database takes, of all tenants."""


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
        of one machine can share a file: what one of them learns, the others know. For several machines, the address
        of a PostgreSQL database, ``postgresql://USER@HOST/DATABASE``.
    people
        How many people it takes to be half sure: what n people say of a document for a question counts in proportion to
        n / (n + people). Raise it if anybody may vote.
    neighbors
        How many similar questions count.
    tenant
        Whose memory it is: many can share a database, and nothing crosses.
    folder
        Where files are kept that must outlive the database: who is forgotten, so that a dump that is restored brings
        nobody back, and a copy that opens fast. None: next to a SQLite file, and nowhere for PostgreSQL.

    Examples
    --------
    >>> memory = Memory(":memory:")
    >>> for user in ("ann", "bob", "eve"):
    ...     memory.learn("How do I reset my password?", ["billing", "account"], chosen=["account"], user=user)
    >>> hits = memory.rerank("I want to reset my password", ["billing", "account"])
    >>> hits[0].id, hits[0].reason
    ('account', 'chosen for *How do I reset my password?*')
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        people: float = 1.0,
        neighbors: int = NEIGHBORS,
        tenant: str = "",
        folder: str | os.PathLike[str] | None = None,
    ) -> None:
        if not people >= 0:
            raise ParameterError(f"people must be 0 or more, got {people!r}")
        if neighbors < 1:
            raise ParameterError(f"neighbors must be 1 or more, got {neighbors!r}")
        self.path = os.fspath(path)
        self.people = people
        self.neighbors = neighbors
        self.tenant = tenant
        self.health = Health()
        self._ledger = open_ledger(path, folder)
        self._lock = threading.RLock()  # of what is in main memory
        self._following = threading.Lock()
        self._closed = threading.Event()
        self._version: object = None
        self._passed: deque[Cursor] = deque(maxlen=_REMEMBERED)
        self._agreement = np.append(_PRIOR, 1.0)
        self._take(self._written() or Snapshot())
        self._follow(wait=True)
        if self._ledger.polls:
            threading.Thread(target=self._poll, name="kinrank-memory", daemon=True).start()

    def __len__(self) -> int:
        """Return the number of known questions."""
        with self._reading():
            return len(self._snapshot)

    def __repr__(self) -> str:
        tenant = f", tenant={self.tenant!r}" if self.tenant else ""
        return f"Memory({str(self._ledger)!r}{tenant})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the database, after the calls that are under way in other threads."""
        with self._lock:
            if not self._closed.is_set():
                self._write()
                self._closed.set()
                self._ledger.close()

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
            The hits: ids, texts, or pairs of id and text. What is known of an id holds for its text as it is now.
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
        asked = self._asked(question, vector)
        found: dict[int, _Known] = {}
        places, similar = self._nearest(asked, self.neighbors)
        weights = np.interp(similar, _SIMILARITIES, self._agreement).tolist()
        doubt = _TENTHS * self.people
        cells = self._snapshot.kin_cells(places.tolist(), n_near=int(np.sum(similar >= FAMILY)))
        for kin, document, amount, good in zip(*(values.tolist() for values in cells), strict=True):
            known = found.get(document)
            if known is None:
                known = found[document] = _Known()
            w = weights[kin]
            known.kin_amount += w * amount / (amount + doubt)
            known.kin_good += w * good / (amount + doubt)
            if w > _NAMED:
                (known.right if good > 0 else known.wrong).append(int(places[kin]))
        ids = {each.name: self._ledger.document(each.name) for each in given}
        for number, amount, good in self._everyone(list(ids.values())):
            if amount:
                known = found.setdefault(number, _Known())
                known.amount, known.good = amount, good
        return found, {name: number for name, number in ids.items() if number in found}

    def _everyone(self, documents: list[int]) -> Iterable[tuple[int, float, float]]:
        return zip(documents, *(values.tolist() for values in self._snapshot.everyone(documents)), strict=True)

    def _recalled(
        self, kin: dict[int, _Known], known: dict[str, int], without: set[str], n: int
    ) -> list[tuple[str, _Known]]:
        """Return the names of the documents that helped most and are not given, with what is known of them."""
        here = set(known.values())
        helped = [number for number, found in kin.items() if found.kin_good > 0 and number not in here]
        names = {number: self._snapshot.name(number) for number in helped} if n > 0 else {}
        wanted = [number for number, name in names.items() if name is not None and name not in without]
        wanted = sorted(wanted, key=lambda number: (-kin[number].kin_good, names[number]))[:n]
        for number, amount, good in self._everyone(wanted):
            kin[number].amount, kin[number].good = amount, good
        return [(names[number] or "", kin[number]) for number in wanted]

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
            f"{how} for {listed([self._snapshot.texts[place] for place in places])}"
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
        user: Id | None = None,
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
            Who it was. One person has one vote on a document of a question, the last one, and counts once for a
            document, however many similar questions they ask. Calls without a user are yours, who teach: each
            question counts, with its near-duplicates once. Only a hash is kept, with a key that lies in the database.
        vector
            The vector of the question, if questions are compared by vectors: give it with every question or with none.
        """
        votes: dict[str, str] = {}
        given = {each.name: each for each in map(given_document, shown)}
        above = list(given)
        said = {"chosen": chosen, "cited": cited, "liked": liked, "disliked": disliked}
        for how, documents in said.items():
            if isinstance(documents, str):
                raise DataError(f"{how} must be a list of documents, got {documents!r}: put it into a list")
            for each in map(given_document, documents):
                if how == "disliked" and each.name in votes:
                    raise DataError(f"document {each.given!r} is disliked and also chosen, liked or cited: give one")
                given.setdefault(each.name, each)
                votes[each.name] = how
        if not votes:
            return
        last = max((place for place, name in enumerate(above) if votes.get(name, "disliked") != "disliked"), default=0)
        skipped = [name for name in above[:last] if name not in votes]
        person = TAUGHT - time.time_ns() if user is None else self.person(user)
        with self._reading():
            asked = self._asked(question, vector)
            counts = (self._snapshot.said_in_full(self._ledger.document(name), person) for name in votes)
            kin = self._compared(question, asked) if all(counts) else []
        said_of = [Said(name, SKIPPED, *_SKIPPED) for name in skipped]
        said_of += [Said(name, how, *VOTES[how]) for name, how in votes.items()]
        self._ledger.append(
            self.tenant,
            Entry(
                storable(question),
                person,
                said_of,
                vector=None if isinstance(asked, str) else asked.tobytes(),
                kin=kin,
            ),
        )
        self._follow(wait=True)

    def unlearn(self, question: str, documents: Iterable[Document], *, user: Id | None = None) -> int:
        """Take back votes of a person on documents of a question, and return how many there were.

        Without `user`, the latest vote without one is taken back for each document.
        """
        if isinstance(documents, str):
            raise DataError(f"documents must be a list, got {documents!r}: put it into a list")
        numbers = [self._ledger.document(given_document(document).name) for document in documents]
        person = None if user is None else self.person(user)
        taken = self._ledger.retract(self.tenant, self._ledger.question(storable(question)), numbers, person)
        self._follow(wait=True)
        return taken

    def forget(
        self,
        *,
        user: Id | None = None,
        document: Document | None = None,
        question: str | None = None,
        before: float | None = None,
    ) -> int:
        """Forget all votes of a person, on a document, on a question, or before a time; return how many there were.

        Questions and documents without a vote are forgotten, too. A call that is killed is finished when the memory is
        opened again.

        Parameters
        ----------
        user, document, question
            Whose votes, or on what. If several are given, votes that match all of them are forgotten.
        before
            Seconds since 1970; whole days are forgotten.
        """
        if user is None and document is None and question is None and before is None:
            raise ParameterError("forget needs a user, a document, a question or a time: pass one of them")
        selection = Selection(
            None if user is None else self.person(user),
            None if document is None else self._ledger.document(given_document(document).name),
            None if question is None else self._ledger.question(storable(question)),
            None if before is None else int(before // _DAY),
        )
        forgotten = self._ledger.forget(self.tenant, selection)
        if self._file is not None:
            shutil.rmtree(self._file, ignore_errors=True)
        self._follow(wait=True)
        return forgotten

    def person(self, user: Id) -> Person:
        """Return the number of a person, who may be given by it: a hash with a key that lies in the database."""
        return user if isinstance(user, Person) else Person(self._ledger.person(user))

    def unnamed(self, event: str) -> Person:
        """Return the number of somebody without a name, who is known by an event only, such as the id of a list."""
        return Person(-1 - (self._ledger.person(event) >> 2))  # above those of `TAUGHT`

    # --- looking into it --------------------------------------------------------------------------------------------

    def stats(self) -> MemoryStats:
        """Return how many questions, documents and people are known, and how many votes were learned on each day."""
        days: dict[date, dict[str, int]] = {}
        votes: dict[str, int] = {}
        for day, kind, count in self._ledger.counts(self.tenant):
            days.setdefault(date.fromordinal(_EPOCH + day), {})[kind] = count
            votes[kind] = votes.get(kind, 0) + count
        with self._reading():
            questions, documents = len(self._snapshot), self._snapshot.n_documents
        return MemoryStats(questions, documents, self._ledger.people(self.tenant), votes, days, self._ledger.size())

    def questions(self, containing: str = "", most: int = 20) -> list[KnownQuestion]:
        """Return the questions of which something was said last, latest first, with a text in them."""
        return self._ledger.questions(self.tenant, storable(containing), most)

    def votes(self, question: str | None = None) -> Iterator[tables.Said]:
        """Yield the votes that count, on all questions or on one. Whose they are, numbers tell, no names."""
        number = None if question is None else self._ledger.question(storable(question))
        for vote in self._ledger.votes(self.tenant, number):
            yield tables.Said(vote.question, vote.document, vote.kind, None, vote.person, vote.day * _DAY)

    def learn_votes(
        self, votes: Iterable[tables.Said], source: str = "", progress: Callable[[int], None] = lambda _: None
    ) -> None:
        """Learn votes from elsewhere, such as those that `kinrank.memory.tables.read_votes` reads.

        Parameters
        ----------
        votes
            The votes.
        source
            What they come from: the same source counts once.
        progress
            Called with how many were learned since the last time.
        """
        size = _FIRST_LEARNED
        numbered = enumerate(votes)
        while some := list(islice(numbered, size)):
            entries = [self._entry(vote, source, number) for number, vote in some]
            with self._reading():
                new = {each.question: self._asked(each.question, None) for each in entries}
                kin = {question: self._compared(question, asked) for question, asked in new.items()}
            self._ledger.append_all(self.tenant, (replace(each, kin=kin[each.question]) for each in entries))
            self._follow(wait=True)
            progress(len(some))
            size *= 2  # what follows is compared with all that was learned before

    def _entry(self, vote: tables.Said, source: str, number: int) -> Entry:
        if vote.kind not in (*VOTES, SKIPPED):
            raise DataError(f"a vote must be one of {', '.join(VOTES)}, got {vote.kind!r}")
        person = vote.person
        if person is None and vote.user is not None:
            person = self.person(vote.user)
        elif person is None:  # taught: somebody else for each vote, and the same if it is learned again
            person = TAUGHT - (self._ledger.person(f"{source or time.time_ns()} {number}") >> 2)
        amounts = VOTES.get(vote.kind, _SKIPPED)
        said = Said(given_document(vote.document).name, vote.kind, *amounts)
        day = None if vote.time is None else int(vote.time // _DAY)
        return Entry(storable(vote.question), person, [said], source, str(number) if source else "", day=day)

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
            places = np.arange(self._snapshot.n_places)
            questions = [self._snapshot.texts[place] for place in places[self._snapshot.is_known(places)]]
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
                rates = self._rates(question)
                X.append(_prior(len(given), scores))
                y += [round(_BEST * rates.get(self._ledger.document(each.name), 0.0)) for each in given]
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

    # --- lists that were handed out ---------------------------------------------------------------------------------

    def add_list(self, handed_out: List) -> None:
        """Keep a list for some days, so that votes can name it."""
        self._ledger.add_list(self.tenant, handed_out)

    def find_list(self, name: str) -> List | None:
        """Return a list by its id; None if it is not known."""
        return self._ledger.find_list(self.tenant, name)

    def _rates(self, question: str) -> dict[int, float]:
        """Return how good each document is for a question, by the votes on it."""
        place = self._snapshot.place(self._ledger.question(storable(question)))
        cells = self._snapshot.kin_cells([] if place is None else [place])
        rates = cells.good / (cells.amount + _TENTHS * self.people)
        return dict(zip(cells.document.tolist(), rates.tolist(), strict=True))

    # --- what is in main memory -------------------------------------------------------------------------------------

    def _asked(self, question: str, vector: Any) -> Any:
        """Return what the index compares: the question, or its vector."""
        if not isinstance(question, str):
            raise DataError(f"question must be a str, got {question!r}")
        width = self._index.width if isinstance(self._index, VectorQuestions) else 0
        if len(self._snapshot) and bool(width) != (vector is not None):
            how, fix = ("vectors", "pass vector=") if width else ("texts", "leave vector out")
            raise DataError(f"the questions of this memory are compared by {how}: {fix}, or start another memory")
        if vector is None:
            return question
        values = np.asarray(vector, dtype=np.float32)
        if values.ndim != 1 or not len(values) or not np.isfinite(values).all() or (width and len(values) != width):
            wanted = f"of {width} finite numbers" if width else "of finite numbers"
            raise DataError(f"vector must be a list {wanted}, got shape {values.shape}: use one encoder for all")
        return values

    def _nearest(self, asked: Any, n: int) -> tuple[Int64, Float32]:
        """Return the places and similarities of at most n questions with a vote, most similar first."""
        wanted = n
        if not len(self._snapshot):
            return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.float32)
        while True:
            places, similar = self._index.nearest(asked, wanted)
            known = self._snapshot.is_known(places)
            if len(places) < wanted or known.sum() >= n:
                return places[known][:n], similar[known][:n]
            wanted *= 2

    def _compared(self, question: str, asked: Any) -> list[tuple[int, float]]:
        """Return the questions with which a new one is compared, to see how far such questions agree."""
        key, n = normalize_text(storable(question)), len(self._snapshot)
        if not n or self._snapshot.place(self._ledger.question(key)) is not None or _hash(key) % n >= _ALL_COMPARED:
            return []
        places, similar = self._nearest(asked, _COMPARED)
        return [(self._snapshot.id(place), w) for place, w in zip(places.tolist(), similar.tolist(), strict=True)]

    def _take(self, snapshot: Snapshot) -> None:
        """Answer from another snapshot."""
        index: TextQuestions | VectorQuestions = TextQuestions() if snapshot.vectors is None else VectorQuestions()
        _grow(index, snapshot)
        with self._lock:
            self._snapshot, self._index = snapshot, index
            self._learn_agreement()

    def _learn_agreement(self) -> None:
        pairs = self._snapshot.pairs
        compared = pairs.same >= 0
        bins = np.minimum((pairs.similarity[compared] * _BINS).astype(np.int64), _BINS - 1)
        counted = np.bincount(bins, minlength=_BINS), np.bincount(bins, pairs.same[compared], _BINS) / SHARES
        # Bins next to each other are alike.
        number, same = (np.convolve(each, (0.5, 1.0, 0.5), "same") for each in counted)
        self._agreement = np.append((same + _PRIOR_AMOUNT * _PRIOR) / (number + _PRIOR_AMOUNT), 1.0)

    def _follow(self, *, wait: bool = False) -> None:
        """Learn what is new in the ledger; without `wait`, leave that to another thread that is just at it.

        If the ledger cannot be read, what was known before is still known.
        """
        if self._closed.is_set():
            raise StoreError(f"{self.path}: this memory is closed: open it again")
        if not self._following.acquire(blocking=wait):
            return
        try:
            version = self._ledger.version()
            if version != self._version:
                self._read()
                self._version = version
        except StoreError:
            if self._version is None:
                raise
            self.health = replace(self.health, failures=self.health.failures + 1)
        finally:
            self._following.release()

    def _read(self) -> None:
        cursor = self._snapshot.cursor
        changes = self._ledger.since(self.tenant, cursor)
        if changes.cursor == cursor:
            return
        self._passed.append(cursor)
        if changes.restored:
            self._ledger.recover()  # what such a copy brings back is forgotten again
        elif self._apply(changes):
            return
        self._take(Snapshot.of(self._ledger.since(self.tenant, Cursor())))
        if changes.restored:
            common = self._ledger.common(self.tenant, self._passed) or min(cursor.seq, self._snapshot.cursor.seq)
            lost = cursor.seq - common
            self.health = replace(self.health, restored=self.health.restored + 1, lost=self.health.lost + lost)

    def _apply(self, changes: Changes) -> bool:
        """Add what came since, and return whether that was worth it: else read everything again."""
        with self._lock:
            vectors = self._snapshot.vectors is not None
            worth = self._snapshot.apply(changes) and vectors == (self._snapshot.vectors is not None)
            if worth:
                _grow(self._index, self._snapshot)
                self._learn_agreement()
        return worth

    # --- the file of a snapshot -------------------------------------------------------------------------------------

    @property
    def _file(self) -> Path | None:
        name = f"snapshot-{_digest(self.tenant, 8).hex()}"
        return None if self._ledger.folder is None else self._ledger.folder / name

    def _written(self) -> Snapshot | None:
        """Return the snapshot that was written when this memory was closed; what came since is read from the ledger."""
        try:
            return None if self._file is None else Snapshot.read(self._file)
        except StoreError:  # there is none, or it is of no use
            return None

    def _write(self) -> None:
        """Write the snapshot if reading everything takes long."""
        if self._file is not None and self._snapshot.n_places >= _WRITTEN:
            self._follow()
            with suppress(OSError, StoreError):
                self._snapshot.write(self._file)

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Use what is in main memory."""
        if not self._ledger.polls:
            self._follow()
        with self._lock:
            if self._closed.is_set():
                raise StoreError(f"{self.path}: this memory is closed: open it again")
            yield

    def _poll(self) -> None:
        while not self._closed.wait(_POLL_SECONDS):
            with suppress(StoreError):
                self._follow(wait=True)


def given_document(document: Document) -> Given:
    """Return the name under which a document is known, and the hash of its content if that is told."""
    if isinstance(document, Given):
        return document
    identifier, text = document if isinstance(document, tuple) and len(document) == 2 else (document, "")
    if not isinstance(identifier, _IDS) or not isinstance(text, str):
        raise DataError(f"a document must be an id, a text or a pair of both, got {document!r}")
    name = str(identifier)
    if len(name) > _LONGEST_NAME or name != storable(name):
        name = _digest(name, 16).hex()
    return Given(name, identifier)


def storable(text: str) -> str:
    """Return a text as SQLite can store and look it up, without NUL and parts of characters (lone surrogates)."""
    return text.replace("\0", "").encode(errors="replace").decode()


def _hash(text: str) -> int:
    """Return a hash of 64 bits."""
    return int.from_bytes(_digest(text, 8), "big")


def _digest(text: str, size: int) -> bytes:
    return hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=size).digest()


def _grow(index: TextQuestions | VectorQuestions, snapshot: Snapshot) -> None:
    """Add the questions that an index does not have."""
    known = len(index)
    if isinstance(index, TextQuestions):
        index.add(snapshot.texts[known:])
    elif snapshot.vectors is not None:
        index.add(list(snapshot.vectors.rows[known:]))


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
