"""The documents of any retriever in the order of what people chose for similar questions: /v1/rerank without HTTP."""

from __future__ import annotations

import http.client
import json
import math
import os
import sqlite3
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple
from uuid import uuid4

from kinrank.errors import (
    EngineBusyError,
    EngineFailedError,
    EngineRefusedError,
    EngineTimeoutError,
    EngineUnreachableError,
    NotStoredError,
    StoreError,
)
from kinrank.memory.memory import Given, Hit, Memory, Person, given_document, person_of
from kinrank.serve._circuit import CircuitBreaker
from kinrank.serve.observer import Observer
from kinrank.serve.settings import Settings

LIST = "rerank-"
"""How the ids of lists begin."""
VOTES = {"chosen": "chosen", "click": "chosen", "cited": "cited", "liked": "liked", "disliked": "disliked"}
"""What `Memory.learn` calls the actions of events."""
UNDO = "undo"
"""The action that takes a vote back."""
DAYS = 7
"""Days for which lists are known."""
KEY = "KINRANK_RERANK_KEY"
"""The environment variable with the API key of the upstream reranker."""
_LONGEST = 2_000  # characters of a question that are compared
_DEPTH = 100  # documents of a list that are kept
_MOST = 1_000_000  # lists
_SWEEP = 1_000  # lists between deletions
_ANSWER_BYTES = 16 << 20
_UNKNOWN_LIST = f"unknown list (known for {DAYS} days)"
_UNKNOWN_DOCUMENT = "the list has no such document"
_NOT_RANKED = "the retriever's place: memory did not answer"
_TABLES = """
CREATE TABLE IF NOT EXISTS shown (number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE,
    day INTEGER NOT NULL, user INTEGER, question TEXT NOT NULL, documents TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS shown_day ON shown (day);
"""


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
        The file of the memory, which also keeps the lists.
    settings
        The address and the timeout of an upstream reranker.
    observer
        Receives the time of each stage.
    """

    def __init__(self, path: str | os.PathLike[str], settings: Settings, observer: Observer) -> None:
        self.memory = Memory(path)
        self.ready = False
        url = settings.rerank_upstream
        self.upstream = Upstream(url, settings.rerank_seconds, os.environ.get(KEY)) if url else None
        self._observer = observer
        self._lists = _Lists(self.memory.path)

    def start(self) -> None:
        """Read what is remembered, so that the first request need not wait for it."""
        self.memory.rerank("", [""])
        self.ready = True

    def close(self) -> None:
        """Close the file."""
        self._lists.close()
        self.memory.close()

    def prior(self, question: str, texts: Sequence[str], model: str | None) -> list[float] | None:
        """Return the scores of the upstream reranker; None if there is none. Raise an `EngineError` if it fails."""
        if self.upstream is None:
            return None
        with self._observer.measure("upstream"):
            return self.upstream.scores(question, texts, model)

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
            asked = _clean(question)[:_LONGEST]
            given = [
                given_document(_clean(text) if name is None else (_clean(str(name)), _clean(text)))
                for name, text in documents
            ]
            hits = self.memory.rerank(asked, given, scores)[:n]
            shown = [
                _Shown(
                    hit.place if documents[hit.place][0] is None else None,
                    given[hit.place].name,
                    given[hit.place].content,
                )
                for hit in hits
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
        vote names. Without either, each list is one person.
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
        user = client or shown.user or vote.list_id
        if vote.action == UNDO:
            self.memory.unlearn(shown.question, [document], user=user)
        else:
            kind: dict[str, Any] = {VOTES[vote.action]: [document]}
            self.memory.learn(shown.question, [each.given for each in shown.documents], user=user, **kind)


class Upstream:
    """A reranker that speaks the same format, such as that of Cohere, Jina or vLLM."""

    def __init__(self, url: str, seconds: float, key: str | None = None) -> None:
        self._url = url
        self._seconds = seconds
        self._key = key
        self._breaker = CircuitBreaker("the upstream reranker")

    def scores(self, question: str, texts: Sequence[str], model: str | None) -> list[float]:
        """Return the score of each text. Raise an `EngineError` if it fails, or has been failing."""
        body = {"query": question, "documents": list(texts), "return_documents": False}
        raw = json.dumps(body if model is None else {"model": model, **body}).encode()
        return self._breaker.call(partial(self._ask, raw, len(texts)))

    def _ask(self, raw: bytes, n: int) -> list[float]:
        request = urllib.request.Request(self._url, raw, {"Content-Type": "application/json"})  # noqa: S310 - Settings checks it
        if self._key:
            request.add_unredirected_header("Authorization", f"Bearer {self._key}")
        end = time.monotonic() + self._seconds
        try:
            with urllib.request.urlopen(request, timeout=self._seconds) as response:  # noqa: S310
                answer = bytearray()
                while piece := response.read1(1 << 16):
                    answer += piece
                    if len(answer) > _ANSWER_BYTES or time.monotonic() > end:
                        raise TimeoutError
            return _scores(json.loads(answer), n)
        except urllib.error.HTTPError as error:
            error.close()
            kind = EngineBusyError if error.code == 429 else EngineFailedError
            raise (EngineRefusedError if error.code in range(400, 429) else kind)(
                f"the upstream reranker answered with status {error.code}"
            ) from None
        except TimeoutError:
            raise EngineTimeoutError(f"no answer of the upstream reranker within {self._seconds:g} s") from None
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", error)
            if isinstance(reason, TimeoutError):
                raise EngineTimeoutError(f"no answer of the upstream reranker within {self._seconds:g} s") from None
            raise EngineUnreachableError(f"the upstream reranker cannot be reached: {reason}") from None
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise EngineFailedError(
                f"the upstream reranker sent no score for each document ({type(error).__name__}: {error})"
            ) from None


def _scores(answer: Any, n: int) -> list[float]:
    """Return the scores in an answer. Raise unless there is one for each document."""
    found = {result["index"]: float(result["relevance_score"]) for result in answer["results"]}
    if set(found) != set(range(n)) or not all(map(math.isfinite, found.values())):
        raise ValueError(f"{len(found)} scores for {n} documents")
    return [found[place] for place in range(n)]


class _Shown(NamedTuple):
    """A document of a list."""

    place: int | None
    """Its index in the request, if it had no id."""
    name: str
    content: int | None

    @property
    def given(self) -> Given:
        return Given(self.name, self.content, self.name)


class _List(NamedTuple):
    user: Person | None
    question: str
    documents: list[_Shown]

    def find(self, document: str | int) -> Given | None:
        """Return a document by its id, or by its index if it had no id."""
        name = given_document(_clean(str(document))).name
        for shown in self.documents:
            if shown.place is None and shown.name == name:
                return shown.given
            if shown.place is not None and str(shown.place) == str(document):
                return shown.given
        return None


class _Lists:
    """The lists that were handed out, in the file of a memory, for all processes that share it."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._added = 0
        with self._using():
            self._database = sqlite3.connect(path, timeout=10.0, isolation_level=None, check_same_thread=False)
            self._database.execute("PRAGMA synchronous = NORMAL")
            self._database.executescript(_TABLES)

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._database.close()

    def add(self, question: str, documents: Sequence[_Shown], user: str | None) -> str:
        """Keep a list and return its id."""
        name, today = f"{LIST}{uuid4().hex}", int(time.time() // 86_400)
        row = (name, today, None if user is None else person_of(user), question, json.dumps(documents[:_DEPTH]))
        with self._using():
            self._database.execute("INSERT INTO shown (id, day, user, question, documents) VALUES (?, ?, ?, ?, ?)", row)
            if self._added % _SWEEP == 0:
                self._database.execute(
                    "DELETE FROM shown WHERE day < ? OR number <= (SELECT max(number) FROM shown) - ?",
                    (today - DAYS, _MOST),
                )
            self._added += 1
        return name

    def find(self, name: str) -> _List | None:
        """Return a list by its id; None if it is not known."""
        with self._using():
            row = self._database.execute("SELECT user, question, documents FROM shown WHERE id = ?", (name,)).fetchone()
        if row is None:
            return None
        user, question, documents = row
        return _List(
            None if user is None else Person(user), question, [_Shown(*each) for each in json.loads(documents)]
        )

    @contextmanager
    def _using(self) -> Iterator[None]:
        try:
            with self._lock:
                yield
        except sqlite3.Error as error:
            raise StoreError(f"{self._path}: lists cannot be kept ({error}): check the file and its disk") from error


def _clean(text: str) -> str:
    """Return a text without NUL characters, which SQLite cannot look up."""
    return text.replace("\0", "")
