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

from kinrank.arrays import Float32, Float64, Int64, State
from kinrank.data.queryset import QuerySet
from kinrank.data.texts import TEXT, normalize_text
from kinrank.errors import DataError, EncoderError, ParameterError, StoreError
from kinrank.kin.encoders import EncoderSpec, make_encoder
from kinrank.kin.encoders.base import PROBE
from kinrank.kin.encoders.guard import EncoderGuard
from kinrank.kin.encoders.ngrams import NgramEncoder
from kinrank.kin.letters import FAMILY
from kinrank.kin.questions import TextQuestions, VectorQuestions
from kinrank.memory import tables
from kinrank.memory._reasons import listed
from kinrank.memory.agreement import MEANING, MOST, STATIC, Agreement, marks
from kinrank.memory.belief import FOUND, Belief, likely_by_place
from kinrank.memory.ledger import (
    SKIPPED,
    Changes,
    Cursor,
    Entry,
    KnownQuestion,
    List,
    MadeBy,
    Said,
    Selection,
    open_ledger,
)
from kinrank.memory.snapshot import TAUGHT, Snapshot
from kinrank.memory.why import Part, Similar, Why
from kinrank.progress import report_progress
from kinrank.store import nest, unnest

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

NEIGHBORS = 50
"""How many similar questions count, by their letters and by their vectors each."""
VOTES = {"liked": (20, 20), "chosen": (10, 10), "cited": (10, 10), "disliked": (20, 0)}
"""Amount and good part of what people can say of a document, in tenths: whole numbers can be taken back exactly."""
_SKIPPED = (3, 0)  # shown above something that was chosen
_TENTHS = 10
_BEST = 4  # highest grade in training, which would take infinitely many people
_ENOUGH = 200  # questions for training
_NAMED = 0.05  # agreement from which questions are named in reasons
_COMPARED = 20  # similar questions with which a new one is compared
_ALL_COMPARED = 500  # questions that are all compared; of n later, a share of 500 / n
_ENCODED = 256  # texts that are encoded at once
_SAME = 0.999  # cosine of the vectors of a probe text by one encoder
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


@dataclass(frozen=True, eq=False)
class _Kin:
    """Known questions that are like another one, most likely to agree with it first."""

    places: Int64
    letters: Float64
    cosine: Float64
    """NaN if one of both has no vector."""
    log_odds: Float64

    def first(self, n: int) -> _Kin:
        return _Kin(self.places[:n], self.letters[:n], self.cosine[:n], self.log_odds[:n])


@dataclass(eq=False, slots=True)
class _Known:
    """What is known of a document."""

    ever: bool = False
    """Whether it was chosen for any question."""
    right: list[int] = field(default_factory=list)
    """Places of similar questions for which it was chosen, most likely ones first."""
    wrong: list[int] = field(default_factory=list)
    """Those for which it was passed over."""


class Person(int):
    """The number under which the votes of a person are stored; those without a name have negative ones."""


@dataclass(frozen=True)
class Health:
    """What went wrong with the database and the encoder of a memory since it was opened."""

    failures: int = 0
    """How often the database could not be read, so that answers came from what was known before."""
    restored: int = 0
    """How often the database turned out to be an older copy that was restored."""
    lost: int = 0
    """How many changes, such as votes, were known here and not in such a copy."""
    unencoded: int = 0
    """How many questions were not encoded, so that kin were found by letters only."""


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
    encoder
        What makes a vector of a question, to find kin by meaning: a function from a list of texts to vectors, an
        object with ``encode``, the name of a model or an address, as in `kinrank.KinRanker`. "ngrams": kin are found by
        letters only. It must be the one with which the questions were learned; see `reembed`.
    people
        How many people it takes to be half sure: what n people say of a document for a question counts in proportion to
        n / (n + people). Raise it if anybody may vote.
    neighbors
        How many similar questions count, by their letters and by their vectors each.
    tenant
        Whose memory it is: many can share a database, and nothing crosses.
    folder
        Where files are kept that must outlive the database: who is forgotten, so that a dump that is restored brings
        nobody back, and a copy that opens fast. None: next to a SQLite file, and nowhere for PostgreSQL.

    Notes
    -----
    The score of document d grows with how likely it is chosen::

        p(d) = (prior(d) + said(d)) * doubt(d)

        said(d)  = sum over kin j of a_j ** 1.5 * n_j / (n_j + people) * share(d)
        share(d) = sum over kin j of w_j * n_jd / n_j / sum over kin of w_j
        w_j      = (a_j / (1 - a_j) * n_j / (n_j + people)) ** 2
        doubt(d) = (1/2 + votes of kin for d) / (1/2 + votes of kin for and against d)

    a_j is how often questions agree that are as alike as kin j and the question (`kinrank.memory.agreement`), n_jd how
    many people chose d for kin j, n_j how many chose anything, and prior(d) falls with the place and the score that the
    retriever gave d. The more kin there are, the more they count next to the retriever; among documents, the nearest
    decide. Without kin, the order is the retriever's.

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
        encoder: EncoderSpec = "ngrams",
        people: float = 1.0,
        neighbors: int = NEIGHBORS,
        tenant: str = "",
        folder: str | os.PathLike[str] | None = None,
    ) -> None:
        if not people >= 0:
            raise ParameterError(f"people must be 0 or more, got {people!r}")
        if neighbors < 1:
            raise ParameterError(f"neighbors must be 1 or more, got {neighbors!r}")
        made = make_encoder(encoder)
        self._guard = None if isinstance(made, NgramEncoder) else EncoderGuard(made)
        self.path = os.fspath(path)
        self.encoder = encoder
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
        self._made_by = self._ledger.encoder(tenant)
        self._written_at: Cursor | None = None
        self._agreement = self._start = Agreement(_kind(self._guard))
        snapshot, indexes = self._written() or (Snapshot(), {})
        self._take(snapshot, indexes)
        self._follow(wait=True)
        self._probe()
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
            The vector of the question, if it is encoded elsewhere.
        recall
            How many documents to add, at most, that helped for similar questions and are not among the hits.
        """
        given = [given_document(document) for document in documents]
        prior = likely_by_place(_prior(len(given), scores))
        asked = self._encoded(question, vector)
        with self._reading():
            belief, known = self._look_up(question, asked, given)
            numbers = [self._ledger.document(each.name) for each in given]
            values = belief.scores(np.array(numbers, dtype=np.int64), prior).tolist()
            hits = [
                Hit(each.given, score, self._reason(known.get(number)), place)
                for place, (each, number, score) in enumerate(zip(given, numbers, values, strict=True))
            ]
            hits += self._recalled(belief, known, {each.name for each in given}, recall)
            return sorted(hits, key=lambda hit: -hit.score)

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
        asked = self._encoded(question, vector)
        with self._reading():
            return self._recalled(*self._look_up(question, asked, []), without, n)

    def _look_up(
        self, question: str, vector: Float32 | None, given: Sequence[Given]
    ) -> tuple[Belief, dict[int, _Known]]:
        """Return what kin say, and by document what is known of it."""
        kin = self._kin(question, vector, self.neighbors)
        near = kin.letters >= FAMILY
        cells = self._snapshot.kin_cells(kin.places.tolist(), near)
        known: dict[int, _Known] = {}
        named = kin.log_odds > math.log(_NAMED / (1.0 - _NAMED))
        for place, document, good in zip(cells.kin.tolist(), cells.document.tolist(), cells.good.tolist(), strict=True):
            each = known.setdefault(document, _Known())
            if named[place]:
                (each.right if good > 0 else each.wrong).append(int(kin.places[place]))
        numbers = [self._ledger.document(each.name) for each in given]
        for number, *counts in zip(numbers, *(each.tolist() for each in self._snapshot.everyone(numbers)), strict=True):
            if counts[0] > 0:
                known.setdefault(number, _Known()).ever = counts[1] > 0
        return Belief.of(cells, kin.log_odds, self.people), known

    def _recalled(self, belief: Belief, known: dict[int, _Known], without: set[str], n: int) -> list[Hit]:
        """Return the documents that helped most, best first."""
        found: list[tuple[float, str, int]] = []
        if n > 0:
            scores = belief.scores(belief.documents, np.full(len(belief.documents), FOUND))
            for place in np.flatnonzero(belief.share > 0).tolist():
                number = int(belief.documents[place])
                name = self._snapshot.name(number)
                if name is not None and name not in without:
                    found.append((-float(scores[place]), name, number))
        return [Hit(name, -score, self._reason(known.get(number)), -1) for score, name, number in sorted(found)[:n]]

    def _reason(self, known: _Known | None) -> str:
        if known is None:
            return "the retriever's place: nothing is known of it"
        said = [
            f"{how} for {listed([self._snapshot.texts[place] for place in places])}"
            for how, places in (("chosen", known.right), ("passed over", known.wrong))
            if places
        ]
        if not said and known.ever:
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
            The vector of the question, if it is encoded elsewhere. Questions without one are found by letters only.
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
        asked = self._encoded(question, vector)
        if asked is not None and vector is None:
            self._name_encoder()
        with self._reading():
            counts = (self._snapshot.said_in_full(self._ledger.document(name), person) for name in votes)
            kin = self._compared(question, asked) if all(counts) else []
        said_of = [Said(name, SKIPPED, *_SKIPPED) for name in skipped]
        said_of += [Said(name, how, *VOTES[how]) for name, how in votes.items()]
        self._ledger.append(
            self.tenant,
            Entry(storable(question), person, said_of, kin=kin, **self._stored(asked)),
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

    def similar(self, question: str, n: int = 10, *, vector: Any = None) -> list[Similar]:
        """Return the known questions that most likely want the same as a question, most likely ones first."""
        asked = self._encoded(question, vector)
        with self._reading():
            kin = self._kin(question, asked, n).first(n)
            return [self._similar(kin, number) for number in range(len(kin.places))]

    def _similar(self, kin: _Kin, number: int) -> Similar:
        letters, cosine, log_odds = (float(each[number]) for each in (kin.letters, kin.cosine, kin.log_odds))
        meaning = None if math.isnan(cosine) else cosine
        return Similar(self._snapshot.texts[kin.places[number]], letters, meaning, 1.0 / (1.0 + math.exp(-log_odds)))

    def why(self, question: str, document: Document, *, vector: Any = None) -> Why:
        """Return what similar questions say of a document, and how much each of them counts.

        Examples
        --------
        >>> memory = Memory(":memory:")
        >>> for user in ("ann", "bob", "eve"):
        ...     memory.learn("How do I reset my password?", ["billing", "account"], chosen=["account"], user=user)
        >>> print(memory.why("I want to reset my password", "account"))
        account: similar questions decide 59% of its score; of their votes it has 100%, and none is against it
          100%: *How do I reset my password?* (letters .65, wants the same with 70%): 3 votes for it
        """
        given = given_document(document)
        asked = self._encoded(question, vector)
        with self._reading():
            kin = self._kin(question, asked, self.neighbors)
            cells = self._snapshot.kin_cells(kin.places.tolist(), kin.letters >= FAMILY)
            belief = Belief.of(cells, kin.log_odds, self.people)
            own = cells.document == self._ledger.document(given.name)
            parts = [
                Part(self._similar(kin, number), good / _TENTHS, (amount - good) / _TENTHS, share)
                for number, amount, good, share in zip(
                    *(values[own].tolist() for values in (cells.kin, cells.amount, cells.good, belief.parts)),
                    strict=True,
                )
            ]
        at = np.flatnonzero(belief.documents == self._ledger.document(given.name))
        share, doubt = (belief.share[at].sum(), belief.doubt[at].sum()) if len(at) else (0.0, 1.0)
        return Why(
            str(given.given), belief.strength, float(share), float(doubt), sorted(parts, key=lambda part: -part.share)
        )

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
            vectors = self._encoded_all(list(dict.fromkeys(each.question for each in entries)))
            with self._reading():
                kin = {question: self._compared(question, vector) for question, vector in vectors.items()}
            stored = {question: {"kin": kin[question], **self._stored(vectors[question])} for question in vectors}
            self._ledger.append_all(self.tenant, (replace(each, **stored[each.question]) for each in entries))
            self._follow(wait=True)
            progress(len(some))
            size *= 2  # what follows is compared with all that was learned before

    def _encoded_all(self, questions: Sequence[str]) -> dict[str, Float32 | None]:
        """Return the vectors of questions; None without any."""
        if self._guard is None:
            return dict.fromkeys(questions)
        self._name_encoder()
        found: dict[str, Float32 | None] = {}
        for start in range(0, len(questions), _ENCODED):
            some = questions[start : start + _ENCODED]
            vectors = self._guard.encode_or_zeros(some)
            found |= {question: row if row.any() else None for question, row in zip(some, vectors, strict=True)}
        return found

    def _entry(self, vote: tables.Said, source: str, number: int) -> Entry:
        if vote.kind not in (*VOTES, SKIPPED):
            raise DataError(f"a vote must be one of {', '.join(VOTES)}, got {vote.kind!r}")
        person = vote.person
        if person is None and vote.user is not None:
            person = self.person(vote.user)
        elif person is None:  # taught: somebody else for each vote, and the same if it is learned again
            person = TAUGHT - (self._ledger.person(f"{source or time.time_ns()} {number}") >> 2)
        amounts = VOTES.get(vote.kind, _SKIPPED)
        said = [Said(given_document(vote.document).name, vote.kind, *amounts)]
        if vote.document in vote.shown and vote.kind in VOTES and VOTES[vote.kind][1]:
            above = vote.shown[: vote.shown.index(vote.document)]
            said += [Said(given_document(name).name, SKIPPED, *_SKIPPED) for name in above]
        day = None if vote.time is None else int(vote.time // _DAY)
        return Entry(storable(vote.question), person, said, source, str(number) if source else "", day=day)

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

    # --- the encoder ------------------------------------------------------------------------------------------------

    def reembed(self, encoder: EncoderSpec | None = None) -> int:
        """Encode all known questions again, with another encoder, and return how many there are.

        Until that is done, answers are given as before. `kinrank.progress.on_progress` follows it.

        Parameters
        ----------
        encoder
            The encoder that this memory has from then on; None: the one that it was opened with. "ngrams": no vectors.

        Examples
        --------
        >>> memory = Memory(":memory:")
        >>> memory.learn("cat", ["pets"], ["pets"])
        >>> memory.reembed(lambda texts: [[len(text), 1.0] for text in texts])
        1
        """
        if encoder is not None:
            made = make_encoder(encoder)
            guard = None if isinstance(made, NgramEncoder) else EncoderGuard(made)
        else:
            encoder, guard = self.encoder, self._guard
        texts = self._ledger.texts(self.tenant)
        vectors: list[tuple[int, bytes]] = []
        made_by = None
        if guard is not None:
            probe = guard.encoder.encode([PROBE])[0]
            made_by, guard.width = MadeBy(guard.encoder.spec, probe.tobytes()), len(probe)
            for start in range(0, len(texts), _ENCODED):
                some = texts[start : start + _ENCODED]
                found = guard.encoder.encode([text for _, text in some])
                vectors += [(number, row.tobytes()) for (number, _), row in zip(some, found, strict=True)]
                report_progress("embedding", min(start + _ENCODED, len(texts)), len(texts))
        self._ledger.replace_vectors(self.tenant, made_by, vectors)
        self.encoder, self._guard, self._made_by = encoder, guard, made_by
        self._start = Agreement(_kind(guard))
        if self._file is not None:
            shutil.rmtree(self._file, ignore_errors=True)
        self._follow(wait=True)
        return len(texts)

    def _probe(self) -> None:
        """Load the encoder, and check that it is the one of the questions that are known."""
        if self._guard is None:
            return
        probe = self._guard.probe()
        self.health = replace(self.health, unencoded=self._guard.failures)
        made_by, width, name = self._made_by, self._width, self._guard.encoder.spec
        stored = None if made_by is None else np.frombuffer(made_by.probe, dtype=np.float32)
        if probe is None:
            other, self._guard.width = made_by is not None and made_by.name != name, width
        elif stored is not None:
            other = len(stored) != len(probe) or float(stored @ probe) < _SAME
        else:
            other = width not in (0, len(probe))
        if not other:
            return
        self.close()
        had = "the caller" if made_by is None else repr(made_by.name)
        now = f"{name!r}" if probe is None else f"{name!r} ({len(probe)} numbers)"
        raise EncoderError(
            f"the questions of this memory have vectors of {had} ({width} numbers), and encoder={now} is another one: "
            f"open it with the first, or encode all questions again: Memory({self.path!r}).reembed({name!r})"
        )

    def _name_encoder(self) -> None:
        """Store what makes the vectors, if they are the first ones."""
        if self._made_by is None and self._guard is not None:
            probe = self._guard.encoder.encode([PROBE])[0]
            self._ledger.set_encoder(self.tenant, MadeBy(self._guard.encoder.spec, probe.tobytes()))
            self._made_by = self._ledger.encoder(self.tenant)

    def _stored(self, vector: Float32 | None) -> dict[str, Any]:
        """Return what an entry has of the vector of its question."""
        if vector is None:
            return {}
        return {"encoder": "" if self._made_by is None else self._made_by.name, "vector": vector.tobytes()}

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

    def _encoded(self, question: str, vector: Any) -> Float32 | None:
        """Return the vector of a question, as given or by the encoder; None without any."""
        if not isinstance(question, str):
            raise DataError(f"question must be a str, got {question!r}")
        if vector is None:
            if self._guard is None:
                return None
            found = self._guard.encode_or_zeros([question])
            if self.health.unencoded != self._guard.failures:
                self.health = replace(self.health, unencoded=self._guard.failures)
            return found[0] if found.any() else None
        values = np.asarray(vector, dtype=np.float32)
        width = self._width
        if values.ndim != 1 or not len(values) or not np.isfinite(values).all() or (width and len(values) != width):
            wanted = f"of {width} finite numbers" if width else "of finite numbers"
            raise DataError(f"vector must be a list {wanted}, got shape {values.shape}: use one encoder for all")
        return values if values.any() else None

    @property
    def _width(self) -> int:
        """The length of a vector; 0 if there is none."""
        vectors = self._snapshot.vectors
        return 0 if vectors is None else int(vectors.rows.shape[1])

    def _kin(self, question: str, vector: Float32 | None, n: int) -> _Kin:
        """Return the n nearest questions with a vote by letters and by vectors each, best first."""
        snapshot = self._snapshot
        if not len(snapshot):
            return _Kin(np.empty(0, dtype=np.int64), np.empty(0), np.empty(0), np.empty(0))
        terms = self._letters.index.describe([question])
        places, similar = self._nearest(self._letters, terms, n)
        letters, cosine = similar.astype(np.float64), np.full(len(places), np.nan)
        if vector is not None and len(self._vectors):
            described = self._vectors.index.describe([vector])
            by_vector = self._nearest(self._vectors, described, n)[0]
            more = by_vector[~np.isin(by_vector, places)]
            letters = np.r_[letters, self._letters.index.similarities(terms, more)]
            places = np.r_[places, more]
            vectors = self._vectors.index.at(places)
            cosine = np.where(vectors.any(axis=1), np.clip(vectors @ described[0], 0.0, 1.0), np.nan)
        differ = snapshot.marks.rows[places] != marks(question)
        log_odds = self._agreement(letters, cosine, differ)
        log_odds[places == snapshot.place(self._ledger.question(storable(question)))] = MOST
        order = np.lexsort((places, -letters, -log_odds))
        return _Kin(places[order], letters[order], cosine[order], log_odds[order])

    def _nearest(self, index: TextQuestions | VectorQuestions, asked: Any, n: int) -> tuple[Int64, Float32]:
        """Return the places and similarities of at most n questions with a vote, most similar first."""
        wanted = n
        while True:
            places, similar = index.near(asked, wanted)
            known = self._snapshot.is_known(places)
            if len(places) < wanted or known.sum() >= n:
                return places[known][:n], similar[known][:n]
            wanted *= 2

    def _compared(self, question: str, vector: Float32 | None) -> list[tuple[int, float]]:
        """Return the questions with which a new one is compared, to see how far such questions agree."""
        key, n = normalize_text(storable(question)), len(self._snapshot)
        if not n or self._snapshot.place(self._ledger.question(key)) is not None or _hash(key) % n >= _ALL_COMPARED:
            return []
        kin = self._kin(question, vector, _COMPARED).first(_COMPARED)
        alike = zip(kin.places.tolist(), kin.letters.tolist(), strict=True)
        return [(self._snapshot.id(place), similarity) for place, similarity in alike]

    def _take(self, snapshot: Snapshot, indexes: State | None = None) -> None:
        """Answer from another snapshot, of which the arrays of indexes may be known."""
        letters, vectors = TextQuestions(), VectorQuestions()
        if indexes:
            letters.set_state(unnest(indexes, "letters"), snapshot.texts)
            if snapshot.vectors is not None:
                vectors.index.set_state({"vectors": snapshot.vectors.rows, **unnest(indexes, "vectors")})
            self._written_at = snapshot.cursor
        _grow(letters, vectors, snapshot)
        with self._lock:
            self._snapshot, self._letters, self._vectors = snapshot, letters, vectors
            self._n_compared = -1
            self._learn_agreement()

    def _learn_agreement(self) -> None:
        if self._n_compared != self._snapshot.n_compared:
            self._agreement = self._snapshot.agreement(self._start)
            self._n_compared = self._snapshot.n_compared

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
            worth = self._snapshot.apply(changes)
            if worth:
                _grow(self._letters, self._vectors, self._snapshot)
                self._learn_agreement()
        return worth

    # --- the file of a snapshot -------------------------------------------------------------------------------------

    @property
    def _file(self) -> Path | None:
        name = f"snapshot-{_digest(self.tenant, 8).hex()}"
        return None if self._ledger.folder is None else self._ledger.folder / name

    def _written(self) -> tuple[Snapshot, State] | None:
        """Return the snapshot that was written when this memory was closed; what came since is read from the ledger."""
        try:
            return None if self._file is None else Snapshot.read(self._file)
        except StoreError:  # there is none, or it is of no use
            return None

    def _write(self) -> None:
        """Write the snapshot if reading everything takes long."""
        if self._file is not None and self._snapshot.n_places >= _WRITTEN:
            self._follow()
            if self._snapshot.cursor == self._written_at:
                return
            vectors = self._vectors.index.get_state()
            vectors.pop("vectors")  # the snapshot has them
            with suppress(OSError, StoreError):
                self._snapshot.write(self._file, nest(letters=self._letters.get_state(), vectors=vectors))

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


def _kind(guard: EncoderGuard | None) -> str:
    """Return the kind of the vectors of an encoder, by which they are believed at first."""
    return STATIC if guard is not None and guard.encoder.spec.startswith("model2vec:") else MEANING


def _grow(letters: TextQuestions, vectors: VectorQuestions, snapshot: Snapshot) -> None:
    """Add the questions that indexes do not have."""
    letters.add(snapshot.texts[len(letters) :])
    if snapshot.vectors is not None:
        vectors.add(list(snapshot.vectors.rows[len(vectors) :]))


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
