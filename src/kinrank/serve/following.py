"""What keeps a model up to date with a database, and reports when it cannot."""

from __future__ import annotations

from typing import ClassVar

from kinrank.errors import KinrankError
from kinrank.serve.observer import Observer
from kinrank.serve.served_model import ServedModel


class Follower:
    """Follows what is stored for one model.

    Parameters
    ----------
    name
        The name of the model.
    observer
        Notified when something was learned, or could not be.
    """

    what: ClassVar[str]
    """What is followed."""

    def __init__(self, name: str, observer: Observer) -> None:
        self._name = name
        self._observer = observer
        self.failure: str | None = None
        """Why it could not be learned the last time; None if it was."""

    def _report(self, served: ServedModel, error: Exception) -> None:
        """Report a failure, once until it ends or changes."""
        failure = f"{self.what} were not learned: {error}"
        if failure != self.failure:
            self._observer.model(self._name, served.fitted, "learn-failed", failure)
            if not isinstance(error, KinrankError | OSError):
                self._observer.error("learn", error)
        self.failure = failure
