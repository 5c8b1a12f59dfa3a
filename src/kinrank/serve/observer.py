"""What a service tells whoever watches it; metrics and logs are observers."""

from __future__ import annotations

from kinrank.serve.messages import Fallback


class Observer:
    """Hears of everything worth counting. This one keeps silent; observers override what they care for."""

    def stage(self, stage: str, seconds: float) -> None:
        """A stage of a request took so long: ``wait`` for the model's thread, ``rank``, ``engine``..."""

    def fallback(self, model: str, reason: Fallback) -> None:
        """An answer went out in the engine's order."""

    def novelty(self, model: str, novelty: float) -> None:
        """A live query is so far from the judged ones."""

    def model(self, model: str, version: str | None, event: str, detail: str = "") -> None:
        """A model was ``taken`` into use, ``refused`` or ``awaited``; judgments were ``learned`` or ``unlearned``."""

    def error(self, where: str, error: BaseException) -> None:
        """Something failed that no user input should make fail."""
