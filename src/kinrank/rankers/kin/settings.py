"""`KinSettings`: what few users of a `KinRanker` change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal, Self

from kinrank.errors import ParameterError
from kinrank.learn._prepare import Missing, Scale


@dataclass(frozen=True)
class KinSettings:
    """The settings of a `KinRanker` that few users change: `KinRanker(settings=KinSettings(...))`, or a dict of them.

    On the command line each has its own name, as parameters have: ``--set n_repeats=1``.

    Examples
    --------
    >>> from kinrank import KinRanker
    >>> KinRanker(settings=KinSettings(n_repeats=1))
    KinRanker(settings=KinSettings(n_repeats=1))
    >>> KinSettings.of({"n_repeats": 1}) == KinSettings(n_repeats=1)
    True
    """

    n_members: int = 4
    """Folds of the cross-fitting, and tree models in the bag of each repeat."""
    n_repeats: int | Literal["auto"] = "auto"
    """How often to cross-fit, each time with other folds. All repeats together decide, and all their tree models rank.
    ``"auto"``: once from 2,000 queries or 50,000 candidates, up to three times with fewer."""
    n_cells: int | None = None
    """Learn local models from sums over this many cells of similar queries (`CellRanker`), for any number of judged
    queries. None: keep every judged query; when training from disk, a tenth of their number, at most 4,096."""
    tree_queries: int | None = None
    """Learn trees from a sample of about this many queries, with all queries of a group or none. Needs `n_cells`. None:
    from all of them; when training from disk, from 50,000, or as many as fit in 3 GB."""
    reference: str | int | None = None
    """The feature (such as BM25) whose best candidates describe the query."""
    scale: Scale = "standard"
    """How features are scaled for the linear models; see `SingleRanker`. Trees read them as they are."""
    missing: Missing = "mean"
    """What the linear models read where a value is missing; see `SingleRanker`."""
    nonnegative: bool = False
    """Whether `weights` must not be negative, for search engines that accept no others. Ranking does not change."""
    lower_is_better: Sequence[str] | None = None
    """Features whose weight must not be positive, regardless of `nonnegative`."""

    @classmethod
    def of(cls, given: KinSettings | Mapping[str, Any] | None) -> Self:
        """Return the settings that a `KinRanker` was given: an object, a dict of some of them, or none."""
        if isinstance(given, cls):
            return given
        if given is not None and not isinstance(given, Mapping):
            raise ParameterError(f"settings must be a KinSettings or a dict, got {given!r}")
        known = [field.name for field in fields(cls)]
        unknown = [name for name in given or () if name not in known]
        if unknown:
            raise ParameterError(f"settings have no {unknown[0]!r}: choose from {', '.join(known)}")
        return cls(**(given or {}))

    @property
    def changed(self) -> dict[str, Any]:
        """Those that differ from their defaults."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        return {each.name: values[each.name] for each in fields(self) if values[each.name] != each.default}

    def __repr__(self) -> str:
        return f"KinSettings({', '.join(f'{name}={value!r}' for name, value in self.changed.items())})"
