"""Deadlines and limits of a service."""

from __future__ import annotations

from dataclasses import dataclass

from kinrank.errors import ParameterError

_MAY_BE_0 = ("log_shown", "remembered", "explore")


@dataclass(frozen=True)
class Settings:
    """Deadlines and limits of a service. The defaults suit a search box.

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
    """Seconds to rank a query, counted from when the request comes in. A query that takes longer is answered in the
    engine's order.
    """
    max_novelty: float = 3.0
    """A query with a higher novelty (see `kinrank.serve.Ranking`) is answered in the engine's order."""
    min_fidelity: float = 0.5
    """Weights that reproduce the model's ranking with a lower Kendall's τ are not given out."""
    backlog: int = 64
    """Queries that may wait for one model. Further ones are refused at once, as are those that could not be ranked in
    time.
    """
    batch_size: int = 16
    """Waiting queries that are ranked together."""
    linger: float = 0.002
    """Seconds that a query may wait for others that are on their way, so that they are ranked together."""
    watch_interval: float = 1.0
    """Seconds between checks of the model folders, the judgments and the keys."""
    poll_interval: float = 5.0
    """Seconds between checks of a store of model versions, which may be on another machine."""
    in_flight: int = 128
    """Requests that one process handles at a time; further ones are rejected. One key may hold three quarters of them.
    A request whose body is slow, or that waits for judgments, makes room for others.
    """
    bytes_in_flight: int = 64 << 20
    """Bytes of request bodies that one process holds at a time; further ones are rejected."""
    body_bytes: int = 8 << 20
    body_seconds: float = 5.0
    """Maximum size of a request body, and maximum time for it to arrive."""
    engine_seconds: float = 1.0
    """Timeout of one call to the attached search engine."""
    judgment_seconds: float = 10.0
    """How long storing judgments may take. After that the caller is told to repeat them, which is safe."""
    min_clients: int = 3
    """What people chose counts for a query and a document from this number of clients on that were shown it."""
    choice_days: int = 35
    """Days that the counts of choices are kept."""
    drain_seconds: float = 5.0
    """How long requests are answered after SIGTERM."""
    log_shown: int = 0
    """Documents of each list to keep as shown, so that clients need only send clicks; 0 keeps none."""
    remembered: int = 10
    """How many documents of the highest rate of choices a search adds for its query, unless the engine finds them."""
    explore: float = 0.0
    """Share of the lists whose order is a draw from what people may choose, so that all documents get a chance."""
    answer_with_kin: bool = False
    """Answer a search for which the engine finds nothing with the documents of a judged query that it is a spelling of,
    named in ``kin``. Otherwise ``kin`` is a suggestion, without documents.
    """
    unexplored: tuple[str, ...] = ()
    """Names of keys whose lists never explore."""
    trusted: tuple[str, ...] = ()
    """Names of keys of the role *events* that may name any client. The lists that others report, and that this service
    has not handed out, count as those of one client for each key and address.
    """
    revision_seconds: float = 2.0
    """How long a request may wait for judgments that it asks for to be learned."""
    map_models: bool = False
    """Map model files into memory instead of reading them. The processes of a machine then share one copy, and crash if
    somebody writes into a file of it.
    """
    encoders: tuple[str, ...] = ()
    """Encoders of libraries that models may name, such as ``"sentence-transformers:NAME"``; see `kinrank.load`."""
    accept_features: bool = False
    """Take a model whose features differ from those of the model in use. Without an engine, the requests of callers
    would have to change at the same moment, so such a model is refused.
    """

    need_database: bool = False
    """Whether a process is ready only once it has read judgments: from the database, or from the copy of an earlier
    run. Otherwise it ranks without them until the database is back.
    """

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not isinstance(value, bool | tuple) and name not in _MAY_BE_0 and not value > 0:
                raise ParameterError(f"{name} must be positive, got {value}")
        if not 0 <= self.explore <= 1:
            raise ParameterError(f"explore must be a share from 0 to 1, got {self.explore}")
