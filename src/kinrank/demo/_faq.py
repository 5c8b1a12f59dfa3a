"""The demo of `Memory` without its transport: ask, give a thumb, ask in other words."""

from __future__ import annotations

import json
import sqlite3
import threading
from typing import Any

from kinrank.demo._search import data_file, words
from kinrank.errors import DataError
from kinrank.memory.memory import Memory

LONGEST_QUESTION = 200
_HITS = 10
_SHOWN = 5


class Faq:
    """Finds answers among kinrank's own questions by BM25, and reorders them by what got a thumb before.

    Examples
    --------
    >>> faq = Faq()
    >>> faq.search("Does it need a lot of data?")["hits"][0]["id"]
    'Does it work in my language?'
    >>> found = faq.choose("Does it need a lot of data?", "How many judged queries do I need?")
    >>> hit = faq.search("Is a lot of data needed?")["hits"][0]
    >>> hit["id"], hit["why"]
    ('How many judged queries do I need?', 'chosen for *Does it need a lot of data?*')
    """

    def __init__(self) -> None:
        content = json.loads(data_file("faq.json").read_text(encoding="utf-8"))
        self.examples: dict[str, Any] = {"examples": content["examples"]}
        self._texts: dict[str, str] = content["answers"]
        self._memory = Memory(":memory:")
        self._lock = threading.Lock()
        self._database = sqlite3.connect(":memory:", check_same_thread=False)
        self._database.execute("CREATE VIRTUAL TABLE answer USING fts5(title, text, tokenize='porter unicode61')")
        self._database.executemany("INSERT INTO answer VALUES (?, ?)", self._texts.items())

    def search(self, text: str) -> dict[str, Any]:
        """Return the best answers to a question as JSON values: what was liked for similar questions, then BM25."""
        with self._lock:
            hits = [
                {
                    "id": hit.id,
                    "text": self._texts[str(hit.id)],
                    "moved": hit.place - place,
                    "why": hit.reason if hit.reason.startswith("chosen for") else "",
                }
                for place, hit in enumerate(self._ranked(text)[:_SHOWN])
            ]
            return {"query": text, "hits": hits, "questions": len(self._memory)}

    def choose(self, text: str, answer: str) -> dict[str, Any]:
        """Count a thumb up for an answer, and return what `search` finds now."""
        with self._lock:
            shown = [str(hit.id) for hit in self._ranked(text)[:_SHOWN]]
            if answer not in shown:
                raise DataError(f"{answer!r} is no answer to {text!r}: choose one that is shown")
            self._memory.learn(text, [(name, self._texts[name]) for name in shown], liked=[answer], user="you")
        return self.search(text)

    def forget(self) -> None:
        """Forget all thumbs."""
        with self._lock:
            self._memory.forget(user="you")

    def _ranked(self, text: str) -> list[Any]:
        if len(text) > LONGEST_QUESTION:
            raise DataError(f"the question has {len(text)} characters: write at most {LONGEST_QUESTION}")
        found = self._database.execute(
            f"SELECT title, text, -bm25(answer) AS score FROM answer WHERE answer MATCH ? "
            f"ORDER BY score DESC LIMIT {_HITS}",
            [" OR ".join(f'"{word}"' for word in words(text)) or '""'],
        ).fetchall()
        return self._memory.rerank(text, [(title, body) for title, body, _ in found], [score for *_, score in found])
