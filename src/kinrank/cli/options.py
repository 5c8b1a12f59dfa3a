"""Options that several commands share."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer


class OnLeak(StrEnum):
    """What to do with test queries seen in training."""

    refuse = "refuse"
    drop = "drop"
    warn = "warn"


TestData = Annotated[
    str | None, typer.Option("--test", metavar="DATA", help="Judged test queries.", show_default="folds of DATA")
]
Group = Annotated[
    str | None, typer.Option(metavar="COLUMN", help="Query column whose values are never split across folds.")
]
Families = Annotated[
    bool | None,
    typer.Option(
        "--families/--no-families",
        help="Keep queries with similar texts together, in folds and in tests.",
        show_default="if a ranker remembers judgments or choices",
    ),
]
Folds = Annotated[int, typer.Option(min=2, help="Number of cross-validation folds of DATA.")]
MeasureName = Annotated[
    str, typer.Option(metavar="MEASURE", help="Measure such as NDCG@10, 'NDCG(gain=linear)@5' or AP.")
]
MeasureNames = Annotated[
    list[str] | None,
    typer.Option(
        "--measure",
        metavar="MEASURE",
        help="Measure such as NDCG@10, 'NDCG(gain=linear)@5' or AP; repeatable.",
        show_default="NDCG@10",
    ),
]
Leaks = Annotated[OnLeak, typer.Option(help="What to do with test queries seen in training.")]
Seed = Annotated[int, typer.Option(help="Seed for the fold split.")]
ModelFolder = Annotated[str, typer.Argument(metavar="MODEL", help="Model folder written by kinrank train.")]
QueryIds = Annotated[
    list[str] | None,
    typer.Option("--query", metavar="QID", help="Id of a query; repeatable.", show_default="all queries"),
]
ClientSettings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Parameter of the engine client, such as api_key=...; repeatable."),
]
EvidenceFolder = Annotated[
    str | None,
    typer.Option(
        "--evidence",
        metavar="DIR",
        help="What people chose, from kinrank clicks --evidence, to also measure choices by traffic.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json/--no-json", help="Print JSON.")]

EXAMPLES = 20
"""Number of training queries saved in a model folder for the self-test of the service."""
