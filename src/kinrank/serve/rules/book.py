"""The rules that hold now, and what they do to a ranking."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache

from kinrank.data.texts import normalize_text
from kinrank.serve.messages import Ranking
from kinrank.serve.rules.rule import Action, Rule
from kinrank.serve.rules.similarity import SimilarTexts

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
        self._texts = SimilarTexts([rule.query for rule in self._wide])
        self._find = lru_cache(_REMEMBERED)(self._found)

    def rules_for(self, text: str | None) -> tuple[Rule, ...]:
        """Return the rules that hold for a query now, one for each document.

        If several are for a document, one for this very query counts, then that of the most similar query, then the
        latest.
        """
        if not self.rules or not text:
            return ()
        now = self._now()
        chosen: dict[str, Rule] = {}
        for rule in self._find(text):
            if rule.document not in chosen and rule.holds(now):
                chosen[rule.document] = rule
        return tuple(chosen.values())

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
