"""The page about what reproduces: Markdown from results alone."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from reproduction import PAPERS
from reproduction.catalog import parts_of
from reproduction.claims import Claim, Verdict, expectations
from reproduction.markdown import number, table
from reproduction.results import Results
from reproduction.sections import atvt, geng, local_models, sser

FILE = "reproduction.md"
SECTIONS: dict[str, Callable[[Mapping[str, Any]], Iterator[str]]] = {
    "geng": geng.text,
    "local-models": local_models.text,
    "atvt": atvt.text,
    "sser": sser.text,
}

_INTRODUCTION = """\
# Reproduction

Every table and figure of the four papers behind kinrank that can be computed on data at hand, what the papers say about
it, and whether it holds. This page is written by a command, from what it measured; a test compares the two.

<!-- not run -->
```console
$ python -m reproduction all --data FOLDER
```

It reads the judged collections from the folder given by `--data` or `KINRANK_DATA` (they are not ours to ship; a
missing file is named before any work), keeps every finished piece of work in its output folder, and goes on from there
when it was stopped. The exit code is 0 where every claim below is as expected, and 3 where one is not: a claim that
is known not to reproduce and suddenly holds counts as well. The claims, their tolerances and reasons are
data files of the package, `kinrank/study/reproduce/expected/*.toml`.

*Reproduced* means that the figure lies in the range that the statement asks for. Many statements of the papers are
about differences that chance could make; the tables say so where there is a test."""


def render(results: Results) -> str:
    """The page."""
    return "\n\n".join(_blocks(results)) + "\n"


def _blocks(results: Results) -> Iterator[str]:
    yield _INTRODUCTION
    yield _overview(results)
    for paper, verdicts in results.verdicts().items():
        yield f"## {PAPERS[paper]}"
        yield f"`{expectations(paper).command}` reads {_reads(paper)}."
        yield from SECTIONS[paper](results.figures)
        yield "### What the paper says, and what is found"
        yield table(
            ["in the paper", "it says", "holds", "here", "verdict"],
            [
                [each.claim.where, each.claim.says, condition(each.claim), shown(each.value), _marked(each)]
                for each in verdicts
            ],
        )
        yield from _not_reproduced(verdicts)
        yield "### Left out"
        yield "\n".join(f"- **{each.what}**: {each.why}" for each in expectations(paper).left_out)


def _overview(results: Results) -> str:
    rows = [
        [
            PAPERS[paper],
            len(verdicts),
            sum(verdict.holds for verdict in verdicts),
            sum(not verdict.holds for verdict in verdicts),
            f"{results.cpu_minutes(paper):.1f}",
        ]
        for paper, verdicts in results.verdicts().items()
    ]
    total = sum(results.cpu_minutes(paper) for paper in results.papers)
    return (
        table(["paper", "claims", "reproduced", "not reproduced", "CPU minutes"], rows)
        + f"\n\nMeasured by kinrank {results.version} in {total:.1f} minutes of CPU time."
    )


def _reads(paper: str) -> str:
    files = {name for part in parts_of(paper) for piece in part.pieces.values() for name in piece.needs}
    folders = sorted({name.rpartition("/")[0] for name in files})
    return ", ".join(f"`{folder}`" for folder in folders)


def _not_reproduced(verdicts: list[Verdict]) -> Iterator[str]:
    reasons: dict[str, list[Verdict]] = {}
    for verdict in verdicts:
        if not verdict.holds:
            reasons.setdefault(verdict.claim.reason or "Not known: it was expected to hold.", []).append(verdict)
    if reasons:
        yield "### What did not reproduce, and why"
        yield "\n".join(
            f"- {'; '.join(f'{each.claim.says} ({each.claim.where})' for each in some)}. **Why:** {reason}"
            for reason, some in reasons.items()
        )


def _marked(verdict: Verdict) -> str:
    return str(verdict) if verdict.holds else f"**{verdict}**"


def condition(claim: Claim) -> str:
    """The range in which a claim holds, in words."""
    if math.isinf(claim.low):
        return f"at most {number(claim.high)}"
    if math.isinf(claim.high):
        return f"at least {number(claim.low)}"
    return f"{number(round(claim.low, 6))} to {number(round(claim.high, 6))}"


def shown(value: float) -> str:
    """A figure without the noise of subtraction."""
    return number(round(value, 6))
