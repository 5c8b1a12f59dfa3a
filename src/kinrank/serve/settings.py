"""What a service may take and how long."""

from __future__ import annotations

from dataclasses import dataclass

from kinrank.errors import ParameterError


@dataclass(frozen=True)
class Settings:
    """Bounds of a service; every one has a default that suits a search box.

    Attributes
    ----------
    deadline : float
        Seconds that a ranking may take, from when all of the request is there. What is not done by then goes out in
        the engine's order.
    far : float
        A query farther than this from all judged ones (see `kinrank.rankers.base.Scored`) is left to the engine.
    backlog : int
        Queries that may wait for one model. Beyond it they go out in the engine's order at once.
    batch : int
        Queries that are ranked in one go, when more than one wait.
    linger : float
        Seconds that a query may be made to wait for others that are on their way, so that they are ranked together.
    watch : float
        Seconds between two looks at the model folders, the judgments and the keys.
    in_flight : int
        Requests that one process answers at a time; beyond it they are shed.
    body_bytes, body_seconds
        How large a request may be, and how long it may take to arrive.
    engine_seconds : float
        How long a search engine may take for one call, where one is attached.

    Examples
    --------
    >>> Settings(deadline=0.02).deadline
    0.02
    >>> Settings(deadline=0)
    Traceback (most recent call last):
    ...
    kinrank.errors.ParameterError: deadline must be positive, got 0
    """

    deadline: float = 0.05
    far: float = 3.0
    backlog: int = 64
    batch: int = 16
    linger: float = 0.002
    watch: float = 1.0
    in_flight: int = 128
    body_bytes: int = 8 << 20
    body_seconds: float = 5.0
    engine_seconds: float = 1.0

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not value > 0:
                raise ParameterError(f"{name} must be positive, got {value}")
