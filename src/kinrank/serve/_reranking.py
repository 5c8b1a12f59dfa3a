"""The documents of any retriever in the order of what people chose for similar questions: /v1/rerank without HTTP."""

from __future__ import annotations

import json
import math
import os
import threading
from collections import Counter, OrderedDict
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any, NamedTuple
from uuid import uuid4

from kinrank.errors import NotStoredError, StoreError
from kinrank.memory.ledger import LIST_DAYS, List
from kinrank.memory.memory import Given, Hit, Memory, Person, given_document, storable
from kinrank.serve.messages import Observer

LIST = "rerank-"
"""How the ids of lists begin."""
VOTES = {"chosen": "chosen", "click": "chosen", "cited": "cited", "liked": "liked", "disliked": "disliked"}
"""What `Memory.learn` calls the actions of events."""
UNDO = "undo"
"""The action that takes a vote back."""
_LONGEST = 2_000  # characters of a question that are compared
_DEPTH = 100  # documents of a list that are kept
_PATIENCE = 0.05  # seconds that an answer waits until its list is kept
_WRITERS = 4  # lists that are kept at once, in one transaction
_MOST_WAITING = 10_000  # lists
_UNKNOWN_LIST = f"unknown list (known for {LIST_DAYS} days)"
_UNKNOWN_DOCUMENT = "the list has no such document"
_NOT_RANKED = "the retriever's place: memory did not answer"


class Vote(NamedTuple):
    """What somebody did with a document of a list."""

    list_id: str
    action: str
    """One of `VOTES`, or `UNDO`."""
    document: str | int
    """Its id or, of a document without one, its index."""
    client: str | None


class Reranker:
    """Reorders documents by a `Memory`, remembers the lists that it hands out, and learns from votes on them.

    Parameters
    ----------
    path
        The file of the memory or the address of its PostgreSQL database, which also keeps the lists.
    observer
        Receives the time of each stage.
    """

    def __init__(self, path: str | os.PathLike[str], observer: Observer) -> None:
        self.memory = Memory(path)
        self.ready = False
        self._observer = observer
        self._lists = _Lists(self.memory)

    def start(self) -> None:
        """Read what is remembered, so that the first request need not wait for it."""
        self.memory.rerank("", [""])
        self.ready = True

    def close(self) -> None:
        """Close the database."""
        self._lists.close()
        self.memory.close()

    def rerank(
        self,
        question: str,
        documents: Sequence[tuple[str | int | None, str]],
        scores: Sequence[float] | None,
        n: int,
        user: str | None,
    ) -> tuple[str, list[Hit]]:
        """Return the id of the list, and the n best of some documents, which are ids, if they have any, and texts."""
        with self._observer.measure("memory"):
            asked = storable(question)[:_LONGEST]
            given = [given_document(text if name is None else str(name)) for name, text in documents]
            hits = self.memory.rerank(asked, given, scores)[:n]
            health = self.memory.health
            self._observer.memory_store(health.failures, health.restored, health.lost)
            shown = [
                _Shown(hit.place if documents[hit.place][0] is None else None, given[hit.place].name) for hit in hits
            ]
            return self._lists.add(asked, shown, user), hits

    def in_given_order(self, scores: Sequence[float] | None, n_documents: int, n: int) -> tuple[str, list[Hit]]:
        """Return n documents in the order of their scores or, without scores, as they were sent."""
        places = sorted(range(n_documents), key=lambda place: 0.0 if scores is None else -scores[place])
        hits = [Hit("", -math.log(rank), _NOT_RANKED, place) for rank, place in enumerate(places[:n], 1)]
        return f"{LIST}{uuid4().hex}", hits

    def learn(self, votes: Iterable[Vote], *, names_clients: bool) -> Counter[str]:
        """Learn votes, and return how many do not count, by reason. They can be sent again.

        A vote is one of the user for whom the list was made or, if the caller `names_clients`, of the client that the
        vote names. Without either, all lists count as one person.
        """
        ignored: Counter[str] = Counter()
        try:
            for vote in votes:
                shown = self._lists.find(vote.list_id)
                document = None if shown is None else shown.find(vote.document)
                if shown is None:
                    ignored[_UNKNOWN_LIST] += 1
                elif document is None:
                    ignored[_UNKNOWN_DOCUMENT] += 1
                else:
                    self._learn(shown, document, vote, vote.client if names_clients else None)
        except StoreError as error:
            raise NotStoredError(f"{error}; try again, that is safe") from error
        return ignored

    def _learn(self, shown: _List, document: Given, vote: Vote, client: str | None) -> None:
        user = client or shown.user or self.memory.unnamed(vote.list_id)
        if vote.action == UNDO:
            self.memory.unlearn(shown.question, [document], user=user)
        else:
            kind: dict[str, Any] = {VOTES[vote.action]: [document]}
            self.memory.learn(shown.question, [each.given for each in shown.documents], user=user, **kind)


class _Shown(NamedTuple):
    """A document of a list."""

    place: int | None
    """Its index in the request, if it had no id."""
    name: str

    @property
    def given(self) -> Given:
        return Given(self.name, self.name)


class _List(NamedTuple):
    user: Person | None
    question: str
    documents: list[_Shown]

    def find(self, document: str | int) -> Given | None:
        """Return a document by its id, or by its index if it had no id."""
        name = given_document(str(document)).name
        for shown in self.documents:
            if shown.place is None and shown.name == name:
                return shown.given
            if shown.place is not None and str(shown.place) == str(document):
                return shown.given
        return None


class _Lists:
    """The lists that were handed out, in the database of a memory, for all processes that share it.

    An answer does not wait for others who write: a list that cannot be kept at once is kept later, and this process
    knows it meanwhile.
    """

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._pool = ThreadPoolExecutor(_WRITERS, "kinrank-lists")
        self._lock = threading.Lock()
        self._waiting: OrderedDict[str, List] = OrderedDict()

    def close(self) -> None:
        """Keep the lists that wait."""
        self._pool.shutdown()

    def add(self, question: str, documents: Sequence[_Shown], user: str | None) -> str:
        """Keep a list and return its id."""
        name = f"{LIST}{uuid4().hex}"
        person = None if user is None else self._memory.person(user)
        handed_out = List(name, question, person, json.dumps(documents[:_DEPTH]))
        with self._lock:
            self._waiting[name] = handed_out
            while len(self._waiting) > _MOST_WAITING:
                self._waiting.popitem(last=False)
        wait([self._pool.submit(self._keep, name)], _PATIENCE)
        return name

    def _keep(self, name: str) -> None:
        with self._lock:
            handed_out = self._waiting.get(name)
        if handed_out is not None:
            self._memory.add_list(handed_out)
            with self._lock:
                self._waiting.pop(name, None)

    def find(self, name: str) -> _List | None:
        """Return a list by its id; None if it is not known."""
        with self._lock:
            found = self._waiting.get(name)
        found = found or self._memory.find_list(name)
        if found is None:
            return None
        person = None if found.person is None else Person(found.person)
        return _List(person, found.question, [_Shown(*each) for each in json.loads(found.documents)])
