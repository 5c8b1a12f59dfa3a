"""Intermediate results of training: in memory, or in a folder that workers share and from which a job resumes."""

from __future__ import annotations

from typing import Protocol

from kinrank.arrays import State
from kinrank.errors import DamagedFolderError

SAMPLE_ROWS = 1 << 20
"""Maximum number of rows that scales, descriptions and encoders are fitted on: 193 MB with 46 features."""


class Store(Protocol):
    """Keeps intermediate results by name."""

    def names(self) -> set[str]:
        """Return the names of the finished results."""
        ...

    def write(self, name: str, state: State) -> None:
        """Keep a result."""
        ...

    def read(self, name: str) -> State:
        """Return a result; raise `DamagedFolderError` if it is missing or damaged."""
        ...


class Memory:
    """A store in the memory of this process."""

    def __init__(self) -> None:
        self._results: dict[str, State] = {}

    def names(self) -> set[str]:
        """Return the names of the finished results."""
        return set(self._results)

    def write(self, name: str, state: State) -> None:
        """Keep a result."""
        self._results[name] = state

    def read(self, name: str) -> State:
        """Return a result; raise `DamagedFolderError` if it is missing."""
        try:
            return self._results[name]
        except KeyError:
            raise DamagedFolderError(f"{name} has not been computed") from None
