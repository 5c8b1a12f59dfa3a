"""Compare two arms of an A/B test by what people did, with intervals that may be looked at every day.

A value of an arm is a ratio of two sums over its sessions, such as clicks over searches. Searches of a session are not
independent, so sessions are what is drawn. The variance of a ratio is that of the sum of what each session adds to it
(delta method), and the interval of the difference of two arms is the normal mixture of Robbins (1970): with variance v
of the difference and a weight r, it is wide as

    sqrt(v (1 + 1 / r) log((1 + r) / alpha²)),     r = 8 n / N.

n is the number of sessions, N the number at which the interval is shortest for its data, given before the test. If the
mean of n sessions is as good as normal, such an interval covers the true difference at all n at once with probability
1 - alpha (Waudby-Smith et al., 2024, asymptotic confidence sequences). So one may look every day, and stop when it
excludes 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from kinrank.arrays import Float64
from kinrank.clicks.read import (
    VALUES,
    LogOptions,
    check_files,
    column_names,
    create_ubi,
    identifier,
    log_format,
    open_database,
    quote,
    scan,
)
from kinrank.data.files import PathLike
from kinrank.errors import DataError, FileFormatError, ParameterError

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

PLANNED = 5_000
"""The number of sessions at which intervals are shortest."""
_SHARPEST = 8.0  # the r at which the interval is shortest, in standard errors, for alpha around 0.05
FEWEST = 100
"""Sessions of an arm below which its mean is not taken as normal, and nothing is concluded."""


CLICK = "click"
_VALUES = {
    "clicks": ("clicks", "searches", "clicks per search", True),
    "without": ("without", "searches", "searches without a click", False),
    "first": ("first", "clicked", "rank of the first click", False),
    "conversions": ("conversions", "searches", "conversions per search", True),
    "value": ("value", "searches", "value per search", True),
}  # name: numerator, denominator, words, whether more is better


@dataclass(frozen=True)
class Value:
    """One value of both arms, and the interval of their difference, second minus first."""

    name: str
    first: float
    second: float
    low: float
    high: float
    more_is_better: bool = True

    @property
    def difference(self) -> float:
        """The second arm minus the first."""
        return self.second - self.first

    @property
    def decided(self) -> bool:
        """Whether the interval excludes no difference."""
        return self.low > 0 or self.high < 0


@dataclass(frozen=True)
class ArmComparison:
    """Two arms of an A/B test."""

    first: str
    second: str
    searches: tuple[int, int]
    sessions: tuple[int, int]
    values: tuple[Value, ...]
    alpha: float

    @property
    def verdict(self) -> str:
        """What may be concluded now."""
        if min(self.sessions) < FEWEST:
            return f"Too early: an arm has fewer than {FEWEST} sessions."
        decided = [value for value in self.values if value.decided]
        if not decided:
            return "Undecided: go on, or stop and keep what you have."
        sides = ("worse", "better")
        words = [
            f"{self.second} is {sides[(value.difference > 0) == value.more_is_better]} in {value.name}"
            for value in decided
        ]
        return f"{'; '.join(words)}: you may stop."


def difference_interval(
    first: tuple[Float64, Float64],
    second: tuple[Float64, Float64],
    alpha: float = 0.05,
    planned: float = PLANNED,
) -> tuple[float, float]:
    """Return the always-valid interval of the difference of two ratios, the second minus the first.

    Parameters
    ----------
    first, second
        Numerator and denominator of each session of an arm.
    alpha
        The probability that the interval ever misses the true difference.
    planned
        The number of sessions at which the interval is shortest.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> arms = [(rng.poisson(rate, 4000).astype(float), np.ones(4000)) for rate in (1.0, 1.2)]
    >>> [round(bound, 3) for bound in difference_interval(*arms)]
    [0.164, 0.306]
    """
    if not 0 < alpha < 1:
        raise ParameterError(f"alpha must be between 0 and 1, got {alpha}")
    (a, variance_a), (b, variance_b) = (_ratio(*arm) for arm in (first, second))
    weight = _SHARPEST * (len(first[0]) + len(second[0])) / planned
    if min(len(first[0]), len(second[0])) < FEWEST:
        return -np.inf, np.inf
    variance = (variance_a + variance_b) * (1 + 1 / weight) * np.log((1 + weight) / alpha**2)
    half = float(np.sqrt(variance))
    return b - a - half, b - a + half


def _ratio(numerator: Float64, denominator: Float64) -> tuple[float, float]:
    """Return the ratio of two sums, and its variance if sessions are drawn."""
    total = float(denominator.sum())
    if total <= 0 or len(numerator) < 2:
        return (float(numerator.sum()) / total if total > 0 else 0.0), np.inf
    ratio = float(numerator.sum()) / total
    return ratio, float(np.sum((numerator - ratio * denominator) ** 2)) / total**2


def searches_needed(
    values: Float64, gain: float, alpha: float = 0.05, power: float = 0.8, sessions: float = 1.0
) -> int:
    """Return about how many searches of each arm show a gain with some probability, at the interval's shortest.

    Parameters
    ----------
    values
        A value of each of many searches, such as its clicks or its NDCG.
    gain
        The difference of the means to be shown.
    alpha, power
        The probability of an error, and that of seeing the gain.
    sessions
        Variance of the mean of a session's searches as a multiple of that of independent searches.

    Examples
    --------
    >>> searches_needed(np.array([0.0, 1.0]), 0.01), searches_needed(np.array([0.0, 1.0]), 0.1)
    (75148, 752)
    """
    from scipy.stats import norm

    # Half of the shortest interval, in standard errors, and how far the estimate lies above it with that power.
    wide = np.sqrt((1 + 1 / _SHARPEST) * np.log((1 + _SHARPEST) / alpha**2)) + norm.ppf(power)
    return int(np.ceil(2 * sessions * np.var(values) * (wide / gain) ** 2))


def compare_arms(
    files: Sequence[PathLike],
    column: str = "arm",
    *,
    actions: Mapping[str, float] | None = None,
    options: LogOptions | None = None,
    alpha: float = 0.05,
    planned: float = PLANNED,
) -> ArmComparison:
    r"""Compare the two arms of a log: UBI queries and events, or a table with one row per impression.

    Parameters
    ----------
    files
        The log. In UBI, the arm is one of the ``query_attributes``; in a table, a column.
    column
        The name of the attribute or column.
    actions
        Value of each action of UBI, such as ``{"click": 0, "purchase": 30}``: those other than clicks are conversions.
        In a table, conversions and their value, such as revenue or margin, are the columns "conversions" and "value",
        if it has them or `options` name others.
    options
        Names of columns.
    alpha, planned
        As in `difference_interval`.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "log.csv"
    >>> rows = [f"q,s{n},d{k},{k},{int(k == n % 3)},{'ab'[n % 2]}" for n in range(400) for k in (1, 2)]
    >>> _ = path.write_text("query,session,document,rank,clicked,arm\n" + "\n".join(rows))
    >>> found = compare_arms([path])
    >>> found.searches, [round(value.first, 2) for value in found.values], found.verdict
    ((200, 200), [0.67, 0.34, 1.5], 'Undecided: go on, or stop and keep what you have.')
    """
    chosen = options or LogOptions()
    paths = check_files(files)
    with open_database(chosen) as database:
        if log_format(database, paths, chosen) == "ubi":
            create_ubi(database, paths)
            sql = _of_ubi(database, column, actions or {})
        else:
            sql = _of_table(database, paths, column, chosen)
        rows = database.execute(f"""
            SELECT arm, count(*) AS searches, sum(clicks) AS clicks,
                count(*) FILTER (clicks = 0) AS without, count(*) FILTER (clicks > 0) AS clicked,
                sum(first) FILTER (clicks > 0) AS first, sum(conversions) AS conversions, sum(value) AS value
            FROM ({sql}) WHERE arm IS NOT NULL GROUP BY arm, unit""").fetchnumpy()
    sums = {name: np.ma.filled(values, 0) for name, values in rows.items()}
    arm = sums.pop("arm").astype(str)
    names = np.unique(arm).tolist()
    if len(names) != 2:
        raise DataError(f"{column!r} must name two arms, got {len(names)}: {', '.join(names[:5]) or 'none'}")
    parts = {name: {each: values[arm == name] for each, values in sums.items()} for name in names}
    return _compared(parts, alpha, planned)


def _of_ubi(database: DuckDBPyConnection, column: str, actions: Mapping[str, float]) -> str:
    """Return the SQL of one row per list, from the relations ``lists`` and ``events``."""
    others = [(name, value) for name, value in actions.items() if name != CLICK]
    values = ", ".join(f"({quote(name)}, {float(value)})" for name, value in others) or "(NULL, 0.0)"
    database.execute(f"""
        CREATE TABLE acted AS
        SELECT list, count(DISTINCT CASE WHEN action = {quote(CLICK)} THEN document END) AS clicks,
            min(CASE WHEN action = {quote(CLICK)} THEN coalesce(list_position(documents, document), rank) END) AS first,
            count(a.value) AS conversions, coalesce(sum(a.value), 0) AS value
        FROM (SELECT DISTINCT list, action, document, rank FROM events)
        JOIN (SELECT list, any_value(documents) AS documents FROM lists GROUP BY list) USING (list)
        LEFT JOIN (VALUES {values}) AS a (action, value) USING (action) GROUP BY list""")
    return f"""
        SELECT json_extract_string(any_value(attributes), {quote(f"$.{column}")}) AS arm,
            coalesce(json_extract_string(any_value(attributes), '$.session_id'), any_value(client), list) AS unit,
            coalesce(any_value(clicks), 0) AS clicks, any_value(first) AS first,
            coalesce(any_value(conversions), 0) AS conversions, coalesce(any_value(value), 0) AS value
        FROM lists LEFT JOIN acted USING (list) WHERE list IS NOT NULL GROUP BY list"""


def _of_table(database: DuckDBPyConnection, files: Sequence[Path], column: str, options: LogOptions) -> str:
    """Return the SQL of one row per list, from tables with one row per impression."""
    parts = []
    for file in files:
        names = column_names(database, file)
        found = {role: options.columns.get(role, role) for role in ("query", "session", "rank", "clicked")}
        values = {role: options.columns.get(role, role) for role in VALUES}
        named = (values[role] for role in VALUES if role in options.columns)
        missing = [name for name in (*found.values(), column, *named) if name not in names]
        if missing:
            raise FileFormatError(
                file,
                0,
                f"no column {missing[0]!r}, got {sorted(names)}: name the columns, as in --columns session=NAME, and "
                "that of the arms with --compare NAME",
            )
        query, session, rank, clicked = (identifier(name) for name in found.values())
        optional = [
            f"coalesce(try_cast({identifier(name)} AS DOUBLE), 0)" if name in names else "0.0"
            for name in values.values()
        ]
        unit = identifier(options.columns.get("client", "client")) if "client" in names else session
        parts.append(f"""
            SELECT CAST({identifier(column)} AS VARCHAR) AS arm, coalesce(CAST({unit} AS VARCHAR), '') AS unit,
                CAST({session} AS VARCHAR) AS session, CAST({query} AS VARCHAR) AS query,
                try_cast({rank} AS BIGINT) AS rank, {optional[0]} AS conversions, {optional[1]} AS value,
                coalesce(try_cast({clicked} AS DOUBLE), CAST(try_cast({clicked} AS BOOLEAN) AS DOUBLE), 0) > 0
                    AS clicked
            FROM {scan(database, file)}""")
    return f"""
        SELECT any_value(arm) AS arm, any_value(unit) AS unit, count(*) FILTER (clicked) AS clicks,
            min(rank) FILTER (clicked) AS first, sum(conversions) AS conversions, sum(value) AS value
        FROM ({" UNION ALL ".join(parts)}) GROUP BY session, query"""


def _compared(
    arms: Mapping[str, Mapping[str, NDArray[Any]]], alpha: float = 0.05, planned: float = PLANNED
) -> ArmComparison:
    """Compare what the sessions of two arms add up to; all intervals together miss with probability `alpha` at most."""
    values = []
    has = {name: any(sums[name].any() for sums in arms.values()) for name in VALUES}
    names = [name for name in _VALUES if has.get(name, True)]
    for name in names:
        numerator, denominator, words, more_is_better = _VALUES[name]
        first, second = (
            (sums[numerator].astype(np.float64), sums[denominator].astype(np.float64)) for sums in arms.values()
        )
        low, high = difference_interval(first, second, alpha=alpha / len(names), planned=planned)
        one, other = (float(top.sum() / max(bottom.sum(), 1.0)) for top, bottom in (first, second))
        values.append(Value(words, one, other, low, high, more_is_better))
    searches, sessions = zip(
        *((int(sums["searches"].sum()), len(sums["searches"])) for sums in arms.values()), strict=True
    )
    first_arm, second_arm = arms
    return ArmComparison(first_arm, second_arm, searches, sessions, tuple(values), alpha)
