"""The models of one name: the current one, a canary that ranks a share of the queries, a shadow that is compared."""

from __future__ import annotations

import hashlib
from contextvars import ContextVar

from kinrank.errors import StaleReplicaError
from kinrank.serve.messages import CandidateSet
from kinrank.serve.models import ModelSlot
from kinrank.serve.served_model import ServedModel
from kinrank.serve.sources import StoreSource
from kinrank.store.versions import CANARY, CURRENT, SHADOW

SESSION: ContextVar[str | None] = ContextVar("session", default=None)
"""The session of the request being handled: all of its queries are ranked by one model."""


class Rollout:
    """Chooses the model of each query.

    Parameters
    ----------
    slots
        The models by role: the current one and, for a store of versions, those that may be canary and shadow.
    """

    def __init__(self, slots: dict[str, ModelSlot]) -> None:
        self.slots = slots
        self.current = slots[CURRENT]
        self.canary = slots.get(CANARY)
        self.shadow = slots.get(SHADOW)

    @property
    def refusal(self) -> str | None:
        """Why the latest model of a role was not put into use, if one was not."""
        refusals = {role: slot.refusal for role, slot in self.slots.items() if slot.refusal is not None}
        return next((why if role == CURRENT else f"{role}: {why}" for role, why in refusals.items()), None)

    def model_for(self, candidates: CandidateSet, session: str | None) -> ServedModel | None:
        """Return the model that ranks a query: always the same one for a session or, without one, for a query."""
        served = None if self.canary is None else self.canary.current
        if self.canary is not None and served is not None and is_chosen(self.canary, served, candidates, session):
            return served
        return self.current.current

    def check_learned(self, revision: int) -> None:
        """Raise `StaleReplicaError` unless each model that ranks has learned the judgments up to a revision."""
        self.current.check_learned(revision)
        served = None if self.canary is None else self.canary.current
        if served is not None and served.revision is not None and served.revision < revision:
            raise StaleReplicaError(f"the canary has learned judgments up to revision {served.revision}: try again")


def is_chosen(slot: ModelSlot, served: ServedModel, candidates: CandidateSet, session: str | None) -> bool:
    """Return whether a query belongs to the share of a model.

    A larger share keeps all queries of a smaller one, and another model gets other queries.
    """
    share = slot.source.share_of(served.fitted) if isinstance(slot.source, StoreSource) else 0.0
    if share >= 1:
        return True
    key = session or candidates.text or "\0".join(candidates.ids)
    digest = hashlib.blake2b(f"{served.fitted}\0{key}".encode(errors="surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest) < share * 2**64
