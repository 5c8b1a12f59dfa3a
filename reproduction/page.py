"""Render the page of results as Markdown."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from reproduction import PAPERS, results
from reproduction.catalog import experiments_of
from reproduction.claims import Claim, Verdict, expectations
from reproduction.markdown import number, table
from reproduction.results import Results
from reproduction.sections import atvt, geng, local_models, sser

FILE = "reproduction.md"
SECTIONS: dict[str, Callable[[Mapping[str, Any]], Iterator[str]]] = {
    "geng": geng.render,
    "local-models": local_models.render,
    "atvt": atvt.render,
    "sser": sser.render,
}

_INTRODUCTION = """\
# Reproduction

This page measures the tables and figures of the four papers behind kinrank again, on public data. It compares the
results with what the papers claim. To run everything yourself:

<!-- not run -->
```console
$ python -m reproduction all --data FOLDER
```

- The command needs a checkout of the repository: the wheel does not contain the experiments.
- It reads the [judged collections](benchmarks.md#the-data) from the folder given by `--data` or `KINRANK_DATA`. Missing
  files are reported before any work starts.
- Finished work is stored in the output folder. Run the command again to resume an interrupted run.
- The exit code is 0 if every claim is as expected, and 3 otherwise. A claim that is known not to reproduce but suddenly
  holds also gives 3.

The claims, their tolerances and the reasons are in `reproduction/expected/*.toml`. This page is generated from the
measured figures, and a test checks that it is up to date.

*Reproduced* means that the figure lies in the range that the claim requires. Many of the papers' claims are about
differences that could be due to chance. The tables show a p-value where there is a test."""


def render(measured: Results) -> str:
    """Return the page."""
    return "\n\n".join(_blocks(measured)) + "\n"


def _blocks(measured: Results) -> Iterator[str]:
    yield _INTRODUCTION
    yield _overview(measured)
    for paper, verdicts in measured.verdicts().items():
        yield f"## {PAPERS[paper]}"
        yield f"`{expectations(paper).command}` reads {_reads(paper)}."
        yield from SECTIONS[paper](measured.figures)
        yield "### Claims"
        yield table(
            ["in the paper", "claim", "holds if", "measured", "verdict"],
            [
                [
                    each.claim.source,
                    each.claim.statement,
                    condition(each.claim),
                    format_value(each.value),
                    _marked(each),
                ]
                for each in verdicts
            ],
        )
        yield from _not_reproduced(verdicts)
        yield "### Not measured"
        yield "\n".join(f"- **{each.what}**: {each.reason}" for each in expectations(paper).omitted)


def _overview(measured: Results) -> str:
    rows = [
        [
            PAPERS[paper],
            len(verdicts),
            sum(verdict.holds for verdict in verdicts),
            sum(not verdict.holds for verdict in verdicts),
            f"{measured.cpu_minutes(paper):.1f}",
        ]
        for paper, verdicts in measured.verdicts().items()
    ]
    total = sum(measured.cpu_minutes(paper) for paper in measured.papers)
    return (
        table(["paper", "claims", "reproduced", "not reproduced", "CPU minutes"], rows)
        + f"\n\nMeasured with kinrank {measured.version} in {total:.1f} minutes of CPU time."
    )


def _reads(paper: str) -> str:
    files = {name for experiment in experiments_of(paper) for task in experiment.tasks.values() for name in task.needs}
    folders = sorted({name.rpartition("/")[0] for name in files})
    return ", ".join(f"`{folder}`" for folder in folders)


def _not_reproduced(verdicts: list[Verdict]) -> Iterator[str]:
    reasons: dict[str, list[Verdict]] = {}
    for verdict in verdicts:
        if not verdict.holds:
            reasons.setdefault(verdict.claim.reason or "Unknown: it was expected to hold.", []).append(verdict)
    if reasons:
        yield "### What did not reproduce, and why"
        yield "\n".join(
            f"- {'; '.join(f'{each.claim.statement} ({each.claim.source})' for each in some)}. **Why:** {reason}"
            for reason, some in reasons.items()
        )


def _marked(verdict: Verdict) -> str:
    return str(verdict) if verdict.holds else f"**{verdict}**"


def condition(claim: Claim) -> str:
    """Return the range in which a claim holds, in words."""
    if math.isinf(claim.low):
        return f"at most {number(claim.high)}"
    if math.isinf(claim.high):
        return f"at least {number(claim.low)}"
    return f"{number(round(claim.low, 6))} to {number(round(claim.high, 6))}"


def format_value(value: float) -> str:
    """Format a figure without the rounding error of a subtraction."""
    return number(round(value, 6))


def main(docs: Path = Path(__file__).parents[1] / "docs") -> None:
    """Write docs/reproduction.md again from docs/reproduction.json: ``python -m reproduction.page``."""
    (docs / FILE).write_text(render(Results.read(docs / results.FILE)), encoding="utf-8")


if __name__ == "__main__":
    main()
