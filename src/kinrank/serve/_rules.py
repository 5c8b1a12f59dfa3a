"""The editor's hand: pins, hides and boosts after the model has ranked, and redirects before the search."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, fields, replace
from datetime import UTC, datetime
from enum import StrEnum
from functools import lru_cache
from typing import Any

import numpy as np

from kinrank.data.hashes import query_keys
from kinrank.data.texts import normalize_text
from kinrank.describe.encoders.ngrams import fold, ngrams_of
from kinrank.errors import DataError
from kinrank.memory._spelling import near_keys
from kinrank.serve._audit import record
from kinrank.serve._database import (
    Database,
    Execute,
    insert,
    mark_of,
    next_revision,
    parts,
    placeholders,
    revision_of,
    undo_revision,
)
from kinrank.serve._events.counting import UNIT
from kinrank.serve.messages import Ranking

# --- A rule of an editor, and what it says in words -------------------------------------------------------------------


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
    REDIRECT = "redirect"


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
        The id of the document; for a redirect, the query that is searched instead.
    places : int
        For a pin, the place of the document, from 1; for a boost, how many places it moves up, or down if negative.
    also_similar : bool
        Whether the rule is also for queries like this one; see `kinrank.serve._rules`.
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
        if not document.strip():
            raise DataError("a rule needs the id of a document, or the query that is searched instead, got none")
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
            raise DataError(f"only pins and boosts have places, got {places}: leave it out")
        if action is Action.REDIRECT and normalize_text(query) == normalize_text(document):
            raise DataError(f"{query!r} cannot be searched instead of itself: name another query")
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
            Action.REDIRECT: f"searches {self.document!r}",
        }[self.action]
        return f"rule {self.number} {deed} for {'queries like ' if self.also_similar else ''}{self.query!r}"


def ended_words(rule: Rule) -> str:
    """Return when a rule ended, and why.

    Examples
    --------
    >>> rule = Rule("alien", Action.HIDE, "d4", 0, False, "anna", "", 0.0, 86_400.0, number=7)
    >>> ended_words(rule)
    "rule 7 hides 'd4' for 'alien' expired on 1970-01-02"
    """
    ended = rule.expires if rule.removed is None else rule.removed
    by = "expired" if rule.removed is None else f"was removed or replaced by {rule.removed_by or 'somebody'}"
    return f"{rule.words} {by} on {datetime.fromtimestamp(ended, UTC):%Y-%m-%d}"


# --- which query texts are alike: near-duplicates, by their letters and words -----------------------------------------
#
# A rule that reaches further is wrong more often than right: of texts whose n-grams have a cosine of at least 0.5, a
# quarter to a third want the same page (``python -m benchmarks rules_reach``). A model that encodes texts knows more
# about meaning, but its similarities change with every fit, and with them what a rule does.


class _SimilarTexts:
    """Finds the near-duplicates of a text among some texts.

    They have the same letters and digits in the same order, or the same words in any order, in the singular or plural,
    without regard to case, spaces and punctuation.

    Parameters
    ----------
    texts
        The texts to find.

    Examples
    --------
    >>> films = _SimilarTexts(["iron man", "toy story"])
    >>> for text in ("Iron  Man", "ironman", "Iron-Man!", "toys story", "story toy", "iron maiden", "iron man 2"):
    ...     print(text, [films.texts[place] for place in films.like(text)])
    Iron  Man ['iron man']
    ironman ['iron man']
    Iron-Man! ['iron man']
    toys story ['toy story']
    story toy ['toy story']
    iron maiden []
    iron man 2 []
    """

    def __init__(self, texts: Sequence[str]) -> None:
        self.texts = texts
        self._places: dict[str, list[int]] = {}
        for place, text in enumerate(texts):
            for key in near_keys(text):
                self._places.setdefault(key, []).append(place)

    def like(self, text: str) -> Mapping[int, float]:
        """Return the positions of the texts that are alike, with the cosine of their sets of n-grams."""
        found = sorted({place for key in near_keys(text) for place in self._places.get(key, ())})
        return {place: _cosine(text, self.texts[place]) for place in found}


def _cosine(one: str, other: str) -> float:
    first, second = (set(ngrams_of(fold(text))) for text in (one, other))
    return len(first & second) / max(math.sqrt(len(first) * len(second)), 1.0)


# --- the rules that hold now, and what they do to a ranking -----------------------------------------------------------


_FETCHED = 50  # pinned documents of a query that are fetched if the engine does not find them
_REMEMBERED = 10_000  # texts whose rules are kept: most traffic repeats them


class RuleBook:
    """Some rules, found by the text of a query. It never changes.

    Parameters
    ----------
    rules
        The rules, in the order in which they were added.
    now
        Returns the seconds since 1970.
    """

    def __init__(self, rules: Sequence[Rule] = (), now: Callable[[], float] = time.time) -> None:
        self.rules = rules
        self._now = now
        self._own: dict[str, list[Rule]] = {}
        for rule in rules:
            self._own.setdefault(normalize_text(rule.query), []).append(rule)
        self._wide = [rule for rule in rules if rule.also_similar]
        self._texts = _SimilarTexts([rule.query for rule in self._wide])
        self._find = lru_cache(_REMEMBERED)(self._found)

    def rules_for(self, text: str | None) -> tuple[Rule, ...]:
        """Return the rules about documents that hold for a query now, one for each document.

        If several are for a document, one for this very query counts, then that of the most similar query, then the
        latest.
        """
        if not self.rules or not text:
            return ()
        now = self._now()
        chosen: dict[str, Rule] = {}
        for rule in self._find(text):
            if rule.action is not Action.REDIRECT and rule.document not in chosen and rule.holds(now):
                chosen[rule.document] = rule
        return tuple(chosen.values())

    def redirect(self, text: str) -> Rule | None:
        """Return the rule that searches another query now, if there is one: that of this very query first."""
        now = self._now()
        rules = self._find(text) if self.rules else ()
        return next((rule for rule in rules if rule.action is Action.REDIRECT and rule.holds(now)), None)

    def _found(self, text: str) -> list[Rule]:
        """Return the rules of a text, those that count most first."""
        own = self._own.get(normalize_text(text), [])
        alike = sorted((-similarity, -place) for place, similarity in self._texts.like(text).items())
        return [*reversed(own), *(self._wide[-place] for _, place in alike)]

    def pinned(self, text: str | None) -> list[str]:
        """Return the documents that are pinned for a query, those of the highest places first."""
        rules = [rule for rule in self.rules_for(text) if rule.action is Action.PIN]
        return [rule.document for rule in sorted(rules, key=lambda rule: rule.places)[:_FETCHED]]

    def apply(self, ranking: Ranking, text: str | None) -> Ranking:
        """Return a ranking with the rules of its query applied, and which of them did something, in words.

        Boosts move documents first, in the order of the ranking; then pins put theirs into place, the highest place
        first. A rule for a document that is not in the ranking does nothing.
        """
        rules = self.rules_for(text)
        if not rules:
            return ranking
        place_of = {document: place for place, document in enumerate(ranking.ids)}
        acting = {place_of[rule.document]: rule for rule in rules if rule.document in place_of}
        if not acting:
            return ranking
        order = list(range(len(ranking.ids)))
        by_action = {action: [at for at in sorted(acting) if acting[at].action is action] for action in Action}
        for at in by_action[Action.BOOST]:
            before = order.index(at)
            order.remove(at)
            order.insert(max(0, before - acting[at].places), at)
        order = [at for at in order if at not in acting or acting[at].action is Action.BOOST]
        for at in sorted(by_action[Action.PIN], key=lambda at: (acting[at].places, acting[at].number)):
            order.insert(acting[at].places - 1, at)
        return replace(
            ranking,
            ids=[ranking.ids[at] for at in order],
            scores=ranking.scores and [ranking.scores[at] for at in order],
            teams=ranking.teams and [ranking.teams[at] for at in order],
            rules=[acting[at].words for at in sorted(acting)],
        )


# --- rules in the database that all replicas share --------------------------------------------------------------------


STREAM = "/rules"
"""The stream of revisions; no model has such a name."""
MOST_RULES = 10_000
"""Rules that may hold at a time."""
_COLUMNS = ", ".join(field.name for field in fields(Rule))
_HOLDS = "removed IS NULL AND expires > ?"


class RuleStore:
    """Rules, those that ended among them: a rule is never changed, only added and removed.

    Parameters
    ----------
    database
        Where they are.
    now
        Returns the seconds since 1970.

    Examples
    --------
    >>> import tempfile
    >>> from kinrank.serve._database import open_database
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = RuleStore(open_database(f"sqlite:///{folder}/judgments.db"), now=lambda: 0.0)
    ...     pinned = store.add(Rule("alien", Action.PIN, "d4", 1, False, "anna", "", 0.0, 60.0))
    ...     hidden = store.add(Rule("Alien", Action.HIDE, "d4", 0, False, "ben", "", 0.0, 60.0))
    ...     store.database.close()
    ...     [rule.words for rule in store.rules()], [rule.removed_by for rule in store.rules(history=True)]
    (["rule 2 hides 'd4' for 'Alien'"], ['ben', None])
    """

    def __init__(self, database: Database, now: Callable[[], float] = time.time) -> None:
        self.database = database
        self._now = now

    def add(self, rule: Rule) -> Rule:
        """Store a rule durably and return it with its number.

        It replaces the one for the same query and document, so adding it again changes nothing. Raise `DataError` if
        another document is pinned to its place, for this query or, if both are for queries like theirs, for one like
        it; or if another query is searched instead.
        """
        key = normalize_text(rule.query)
        with self.database.writing() as execute:
            number = next_revision(execute, STREAM)
            execute(
                f"UPDATE kinrank_rules SET removed = ?, removed_by = ?, revision = ? WHERE query_key = ? AND "  # noqa: S608
                f"document = ? AND {_HOLDS}",
                (rule.created, rule.author, number, key, rule.document, rule.created),
            )
            [(count,)] = execute(f"SELECT count(*) FROM kinrank_rules WHERE {_HOLDS}", (rule.created,))  # noqa: S608
            if count >= MOST_RULES:
                raise DataError(f"{count} rules hold already, which is the most: remove some first")
            if rule.action in (Action.PIN, Action.REDIRECT):
                _check_place(execute, rule, key)
            added = replace(rule, number=number)
            insert(execute, f"kinrank_rules ({_COLUMNS}, query_key, revision)", [(*_row(added), key, number)])
            record(execute, "added rule", str(number), added.words)
            return added

    def remove(self, number: int, author: str) -> Rule | None:
        """End a rule and return it; None if no such rule holds."""
        now = self._now()
        with self.database.writing() as execute:
            revision = next_revision(execute, STREAM)
            rows = execute(
                f"UPDATE kinrank_rules SET removed = ?, removed_by = ?, revision = ? WHERE number = ? AND {_HOLDS} "  # noqa: S608
                f"RETURNING {_COLUMNS}",
                (now, author, revision, number, now),
            )
            if not rows:
                undo_revision(execute, STREAM, revision)
                return None
            removed = _to_rule(rows[0])
            record(execute, "removed rule", str(number), removed.words)
            return removed

    def rules(self, *, history: bool = False) -> list[Rule]:
        """Return the rules that hold, in the order in which they were added; with `history` also those that ended."""
        with self.database.reading() as execute:
            return self._read(execute, history=history)

    def position(self) -> tuple[int, str]:
        """Return the latest revision and its mark."""
        with self.database.reading() as execute:
            return _position(execute)

    def read(self) -> tuple[list[Rule], tuple[int, str]]:
        """Return the rules that hold, and the revision and mark at which they are all of them."""
        with self.database.reading() as execute:
            return self._read(execute, history=False), _position(execute)

    def _read(self, execute: Execute, *, history: bool) -> list[Rule]:
        condition, arguments = ("", ()) if history else (f" WHERE {_HOLDS}", (self._now(),))
        rows = execute(f"SELECT {_COLUMNS} FROM kinrank_rules{condition} ORDER BY number", arguments)  # noqa: S608
        return [_to_rule(row) for row in rows]


def _check_place(execute: Execute, rule: Rule, key: str) -> None:
    """Raise `DataError` if another rule has the place of a pin, or redirects the same query."""
    rows = execute(
        f"SELECT {_COLUMNS}, query_key FROM kinrank_rules WHERE action = ? AND places = ? AND {_HOLDS} AND "  # noqa: S608
        "(query_key = ? OR also_similar = 1) ORDER BY query_key = ? DESC, number",
        (str(rule.action), rule.places, rule.created, key, key),
    )
    keys = near_keys(rule.query)
    for row in rows:
        other = _to_rule(row[:-1])
        alike = row[-1] == key or (rule.also_similar and keys & near_keys(other.query))
        if not alike or other.document == rule.document:
            continue
        if rule.action is Action.REDIRECT:
            raise DataError(f"{rule.query!r} is redirected already: {other.words}; remove that rule first")
        raise DataError(
            f"place {rule.places} of {rule.query!r} is taken: {other.words}; remove it first, or pin to another place"
        )


def _position(execute: Execute) -> tuple[int, str]:
    revision = revision_of(execute, STREAM)[0]
    return revision, mark_of(execute, STREAM, revision)


def _row(rule: Rule) -> tuple[Any, ...]:
    query, action, document, places, also_similar, *others = astuple(rule)
    return query, str(action), document, places, int(also_similar), *others


def _to_rule(row: tuple[Any, ...]) -> Rule:
    query, action, document, places, also_similar, *others = row
    return Rule(query, Action(action), document, places, bool(also_similar), *others)


# --- what people did with the document of a rule, before it and since -------------------------------------------------


WEEK = 7
"""Days that are counted before a rule, and of those since."""
_MOST_EFFECTS = 500


@dataclass(frozen=True)
class Effect:
    """Looks at the document of a rule, and choices of it, for the query of the rule; for a redirect, of all documents.

    Attributes
    ----------
    looks_before, choices_before : float
        In the seven days before it was added.
    looks, choices : float
        In the last seven days, from the day on which it was added.
    """

    looks_before: float = 0.0
    choices_before: float = 0.0
    looks: float = 0.0
    choices: float = 0.0

    @property
    def words(self) -> str:
        """What changed, in words; empty if nothing was counted.

        Examples
        --------
        >>> Effect(12.0, 3.0, 40.2, 9.0).words
        'in the week before chosen 3 times in 12 looks, in the last week chosen 9 times in 40 looks'
        >>> Effect(looks=40.2, choices=9.0).words
        'in the week before not looked at, in the last week chosen 9 times in 40 looks'
        """
        sides = (self.looks_before, self.choices_before), (self.looks, self.choices)
        said = [
            f"chosen {choices:.0f} times in {looks:.0f} looks" if looks else "not looked at" for looks, choices in sides
        ]
        return f"in the week before {said[0]}, in the last week {said[1]}" if any(map(sum, sides)) else ""


def effects_of(database: Database, rules: Sequence[Rule], now: float) -> dict[int, Effect]:
    """Return what people did before the latest rules and since, by their numbers.

    What too few people were shown is not counted. The queries that `also_similar` adds do not count.
    """
    latest = sorted(rules, key=lambda rule: -rule.number)[:_MOST_EFFECTS]
    keys = query_keys(np.array([rule.query for rule in latest], dtype=np.str_)).view(np.int64).tolist()
    today, cells = int(now // _DAY), dict[int, list[tuple[int, str, float, float]]]()
    with database.reading() as execute:
        for some in parts(sorted(set(keys))):
            for query, day, stored, known in execute(
                "SELECT c.query, c.day, c.cells, p.states FROM kinrank_counts AS c JOIN kinrank_people AS p ON "  # noqa: S608
                f"p.model = c.model AND p.query = c.query WHERE c.query IN ({placeholders(some)})",
                tuple(some),
            ):
                states = json.loads(known)
                cells.setdefault(query, []).extend(
                    (day, document, looks / UNIT, choices / UNIT)
                    for document, (looks, choices) in json.loads(stored).items()
                    if document in states
                )
    effects = {}
    for rule, key in zip(latest, keys, strict=True):
        start, sums = int(rule.created // _DAY), [0.0, 0.0, 0.0, 0.0]
        for day, document, looks, choices in cells.get(key, ()):
            side = 0 if start - WEEK <= day < start else 2 if max(start, today - WEEK + 1) <= day else None
            if side is not None and (rule.action is Action.REDIRECT or document == rule.document):
                sums[side] += looks
                sums[side + 1] += choices
        effects[rule.number] = Effect(*sums)
    return effects


# --- which known queries a rule would be for, and how much of the traffic they are ------------------------------------


MOST_KNOWN = 20_000
"""Known queries that are compared with that of a rule: those that people asked most."""


@dataclass(frozen=True)
class TouchedQuery:
    """A known query that a rule would be for.

    Attributes
    ----------
    query : str
        Its text.
    similarity : float
        How alike it is to the query of the rule; 1 for the same.
    share : float, or None
        Its share of what people looked at in the counted days; None if nothing was counted.
    """

    query: str
    similarity: float
    share: float | None


@dataclass(frozen=True)
class Preview:
    """The known queries that a rule would be for.

    Attributes
    ----------
    queries : list of TouchedQuery
        The queries, those with most traffic first.
    share : float, or None
        Their share of what people looked at in the counted days; None if nothing was counted.
    known : int
        The number of known queries that were compared.
    """

    queries: list[TouchedQuery]
    share: float | None
    known: int


def preview(database: Database, query: str, *, also_similar: bool, others: Iterable[str] = ()) -> Preview:
    """Return the known queries that a rule for a query would be for.

    Known are the queries that enough people asked, whose texts are in the database.

    Parameters
    ----------
    database
        The database of the service.
    query
        The query of the rule.
    also_similar
        Whether the rule is also for queries like it.
    others
        Texts of further known queries.
    """
    with database.reading() as execute:
        rows = execute(
            "SELECT min(t.text), sum(coalesce(c.looks, 0)) AS looks FROM kinrank_texts AS t LEFT JOIN kinrank_counts "
            "AS c ON c.model = t.model AND c.query = t.query GROUP BY t.query ORDER BY looks DESC LIMIT ?",
            (MOST_KNOWN,),
        )
        [(total,)] = execute("SELECT sum(looks) FROM kinrank_counts", ())
    looks_of = {normalize_text(text): float(looks) for text, looks in rows}
    texts = list({normalize_text(text): text for text in (*others, *(row[0] for row in rows))}.values())
    key = normalize_text(query)
    found = _SimilarTexts(texts).like(query) if also_similar else {}
    alike = {text: found.get(place) for place, text in enumerate(texts)}
    touched = [
        TouchedQuery(text, 1.0 if normalize_text(text) == key else alike[text] or 0.0, _share(looks_of, text, total))
        for text in texts
        if alike[text] is not None or normalize_text(text) == key
    ]
    touched.sort(key=lambda each: (-(each.share or 0.0), -each.similarity, each.query))
    share = min(sum(each.share or 0.0 for each in touched), 1.0) if total else None
    return Preview(touched, share, len(texts))


def _share(looks_of: dict[str, float], text: str, total: float | None) -> float | None:
    # Both are sums of the same numbers in another order.
    return min(looks_of.get(normalize_text(text), 0.0) / total, 1.0) if total else None
