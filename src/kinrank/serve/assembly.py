"""Put the models of a service together: where each comes from, and what it learns from."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING

from kinrank.errors import ParameterError
from kinrank.serve.checkpoints import Checkpoints
from kinrank.serve.events.feed import EvidenceFeed
from kinrank.serve.events.log import EventLog
from kinrank.serve.judgment_store import JudgmentStore
from kinrank.serve.kept import KeptCopy
from kinrank.serve.learning import JudgmentLearner
from kinrank.serve.models import ModelSlot
from kinrank.serve.observer import Observer
from kinrank.serve.rollouts import Rollout
from kinrank.serve.settings import Settings
from kinrank.serve.sources import ModelSource, WorkFolder, open_sources
from kinrank.store.versions import CURRENT

if TYPE_CHECKING:
    from kinrank.engines import FeatureSet

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}\Z")


@dataclass(frozen=True, eq=False)
class Assembly:
    """What the models of a service share; see `kinrank.serve.Service`."""

    _: KW_ONLY
    settings: Settings
    observer: Observer
    copies: WorkFolder
    store: JudgmentStore | None
    events: EventLog | None
    checkpoints: str | None
    kept: KeptCopy
    search: FeatureSet | None

    def rollouts(self, models: Mapping[str, str | os.PathLike[str]]) -> dict[str, Rollout]:
        """Return the models by name, none of them loaded yet."""
        rollouts = {}
        for name, address in models.items():
            if not _NAME.match(name):
                raise ParameterError(f"a model name consists of up to 64 letters, digits, '-' and '_', got {name!r}")
            feed = None if self.events is None else self.events.feed(name, self.observer)
            sources = open_sources(name, address, self.copies)
            rollouts[name] = Rollout({role: self._slot(name, role, source, feed) for role, source in sources.items()})
        return rollouts

    def _slot(self, name: str, role: str, source: ModelSource, feed: EvidenceFeed | None) -> ModelSlot:
        # A checkpoint replaces those of other versions, so each role has its own folder.
        kept = self.checkpoints
        folder = Checkpoints(os.path.join(kept, role) if kept and role != CURRENT else kept)
        return ModelSlot(
            name if role == CURRENT else f"{name}:{role}",
            source,
            settings=self.settings,
            observer=self.observer,
            learner=None
            if self.store is None
            else JudgmentLearner(name, self.store, self.observer, folder, self.kept, role),
            feed=feed,
            search=self.search,
        )
