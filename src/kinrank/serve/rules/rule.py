"""A rule of an editor, and what it says in words."""

from __future__ import annotations

import time
from dataclasses import dataclass
from enum import StrEnum

from kinrank.errors import DataError

DAYS = 30.0
"""How long a rule holds that does not say."""
MAX_DAYS = 3650.0
"""How long a rule may hold."""
MAX_PLACES = 1_000
"""The last place of a pin, and how far a boost may move a document."""
_DAY = 86_400.0


class Action(StrEnum):
    """What a rule does with its document."""

    PIN = "pin"
    HIDE = "hide"
    BOOST = "boost"


@dataclass(frozen=True)
class Rule:
    """What an editor wants for a query.

    Attributes
    ----------
    query : str
        The text of the query.
    action : Action
        What happens to the document.
    document : str
        The id of the document.
    places : int
        For a pin, the place of the document, from 1; for a boost, how many places it moves up, or down if negative.
    also_similar : bool
        Whether the rule is also for queries like this one; see `kinrank.serve.rules.similarity`.
    author : str
        The name of the key that added it.
    note : str
        Why, in the words of the author.
    created, expires : float
        When it was added, and until when it holds; seconds since 1970.
    number : int
        Identifies the rule: the revision that added it.
    removed : float, or None
        When it was removed or replaced.
    removed_by : str, or None
        The name of the key that did that.
    """

    query: str
    action: Action
    document: str
    places: int
    also_similar: bool
    author: str
    note: str
    created: float
    expires: float
    number: int = 0
    removed: float | None = None
    removed_by: str | None = None

    @classmethod
    def new(
        cls,
        query: str,
        action: Action,
        document: str,
        *,
        places: int | None = None,
        also_similar: bool = False,
        author: str = "",
        note: str = "",
        days: float = DAYS,
    ) -> Rule:
        """Return a rule that holds from now on, for some days. Raise `DataError` if it makes no sense."""
        if not query.strip():
            raise DataError("a rule needs the text of a query, got only spaces")
        if not document:
            raise DataError("a rule needs the id of a document, got none")
        if "\0" in query + document + note:
            raise DataError("texts and ids must not contain NUL characters")
        if any("\ud800" <= letter <= "\udfff" for letter in query + document + note + author):
            raise DataError(
                f"texts and ids must be Unicode, got {query!r}, {document!r}, {note!r}: write them in UTF-8"
            )
        if not 0 < days <= MAX_DAYS:
            raise DataError(f"a rule holds for more than 0 and up to {MAX_DAYS:g} days, got {days:g}")
        if action is Action.PIN:
            places = 1 if places is None else places
            if not 1 <= places <= MAX_PLACES:
                raise DataError(f"the place of a pin is from 1 to {MAX_PLACES}, got {places}")
        elif action is Action.BOOST:
            if not places or abs(places) > MAX_PLACES:
                raise DataError(f"a boost needs places, from 1 to {MAX_PLACES} up or, negative, down, got {places}")
        elif places:
            raise DataError(f"a hidden document has no place, got {places}: leave it out")
        now = time.time()
        return cls(query, action, document, places or 0, also_similar, author, note, now, now + days * _DAY)

    def holds(self, now: float) -> bool:
        """Return whether the rule acts at a time."""
        return self.removed is None and now < self.expires

    @property
    def words(self) -> str:
        """What the rule does, in words.

        Examples
        --------
        >>> Rule("alien", Action.BOOST, "d4", -2, True, "anna", "", 0.0, 1.0, number=7).words
        "rule 7 moves 'd4' down 2 places for queries like 'alien'"
        """
        count = abs(self.places)
        moves = f"{'up' if self.places > 0 else 'down'} {count} {'place' if count == 1 else 'places'}"
        deed = {
            Action.PIN: f"pins {self.document!r} to place {self.places}",
            Action.HIDE: f"hides {self.document!r}",
            Action.BOOST: f"moves {self.document!r} {moves}",
        }[self.action]
        return f"rule {self.number} {deed} for {'queries like ' if self.also_similar else ''}{self.query!r}"
