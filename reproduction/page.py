"""Render the pages of results as Markdown: a summary, and a page per paper."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from reproduction import PAPERS, results
from reproduction.catalog import experiments_of
from reproduction.claims import DATA, KINDS, Claim, Verdict, expectations
from reproduction.markdown import details, number, table
from reproduction.results import Results
from reproduction.sections import atvt, geng, local_models, sser

SUMMARY = "reproduction.md"
FILES = {paper: f"reproduction-{paper}.md" for paper in PAPERS}
"""The page of each paper."""
SECTIONS: dict[str, Callable[[Mapping[str, Any]], Iterator[str]]] = {
    "geng": geng.render,
    "local-models": local_models.render,
    "atvt": atvt.render,
    "sser": sser.render,
}

_INTRODUCTION = """\
# Reproduction

These pages measure the tables and figures of the four papers behind kinrank again, on public data, and judge what the
papers claim. To run everything yourself, from a checkout of the repository:

<!-- not run -->
```console
$ python -m reproduction all --data FOLDER
```

Name a paper or an experiment in place of `all` to measure only that. The [judged
collections](benchmarks.md#the-data) are read from `FOLDER` or `KINRANK_DATA`. Finished work is stored, so
that an interrupted run resumes. The exit code is 3 if a verdict is not the expected one. The claims, the range in which
each holds and the reasons are in `reproduction/expected/*.toml`. The pages are generated from the output, and tests
compare both."""

_READING = """\
The *thesis* is what a paper is about; a claim is *reproduced* if its figure lies in the range that the claim requires.
*Undecided* means that the figures do not tell: too few queries, or a detail that the paper leaves open decides. Counts
of details are not tests: many are differences without one.
Generated worlds are built to have the effect: they show that a method works as described, not that it helps. Many
differences could be due to chance, so tables show a p-value where there is a test.

About twenty descriptions of MSRD's queries had been measured on its test queries before the settings used here were
chosen on its validation queries ([KNN](project/knn.md#gain-on-movie-search)). Its p-values are therefore optimistic.
They are by movie, because queries about the same movie are not independent. Those of Wilcoxon's test (Zha et al.) are
by query."""

_VERDICTS = ("reproduced", "partly", "not reproduced")


def render(measured: Results) -> dict[str, str]:
    """Return the text of each page by file name: the summary, and one page per paper that was measured as a whole."""
    every = {paper: verdicts for paper, verdicts in measured.verdicts().items() if paper in measured.papers}
    if not every:
        return {}
    pages = {SUMMARY: _summary(measured, every)}
    pages |= {FILES[paper]: _paper(paper, verdicts, measured.figures) for paper, verdicts in every.items()}
    return {file: "\n\n".join(blocks) + "\n" for file, blocks in pages.items()}


def _summary(measured: Results, every: Mapping[str, list[Verdict]]) -> Iterator[str]:
    yield _INTRODUCTION
    yield _theses(every)
    yield _READING
    yield _totals(every)
    yield _time(measured)


def _paper(paper: str, verdicts: list[Verdict], figures: Mapping[str, Any]) -> Iterator[str]:
    yield f"# {PAPERS[paper]}"
    yield from SECTIONS[paper](figures)
    holding = sum(verdict.holds for verdict in verdicts)
    yield details(
        f"All {len(verdicts)} claims: {holding} reproduced, {len(verdicts) - holding} not",
        f"`{expectations(paper).command}` reads {_reads(paper)}. The [summary]({SUMMARY}) explains the words.",
        _claims(verdicts),
        *_not_reproduced(verdicts),
        "**Not measured**",
        "\n".join(f"- **{each.what}**: {each.reason}" for each in expectations(paper).omitted),
    )
    yield from _mended(verdicts)


def _time(measured: Results) -> str:
    total, run = sum(measured.cpu_minutes(paper) for paper in measured.papers), measured.run
    text = f"Measured with kinrank {measured.version} in {total:.1f} minutes of CPU time"
    if not run:
        return f"{text}, collected from several runs of single experiments."
    how = "resumed an interrupted one and took another" if run["resumed"] else "took"
    return f"{text}. The run {how} {run['minutes']:g} minutes with {run['processes']:g} processes on a shared machine."


def _mended(verdicts: list[Verdict]) -> Iterator[str]:
    """Yield the table of the claims whose comparison was changed since the first version of the page."""
    rows = [
        [
            f"{each.claim.source}: {each.claim.statement}",
            each.claim.before,
            f"{_marked(each)} ({format_value(each.value)})",
            each.claim.mended,
        ]
        for each in verdicts
        if each.claim.before
    ]
    if rows:
        yield details(
            f"{len(rows)} claims measured in another way than in the first version of this page: before and now",
            table(["claim", "before", "now", "what changed"], rows),
        )


def _theses(every: Mapping[str, list[Verdict]]) -> str:
    rows = [
        [f"[{PAPERS[paper].partition(',')[0]}]({FILES[paper]})", expectations(paper).thesis]
        + [thesis_verdict(paper, verdicts, data) for data in DATA]
        + [expectations(paper).why]
        for paper, verdicts in every.items()
    ]
    return table(["paper", "thesis", *(f"on {data} data" for data in DATA), "why"], rows)


def thesis_verdict(paper: str, verdicts: list[Verdict], data: str) -> str:
    """Return the verdict on the thesis of a paper on one kind of data, with counts."""
    holds = [each.holds for each in verdicts if (each.claim.kind, each.claim.data) == ("thesis", data)]
    if not holds:
        return "not measured"
    word = _VERDICTS[0] if all(holds) else _VERDICTS[1] if any(holds) else _VERDICTS[2]
    if data in expectations(paper).undecided:
        word = "undecided"
    return f"**{word}** ({sum(holds)} of {len(holds)})"


def _totals(every: Mapping[str, list[Verdict]]) -> str:
    header = ["claims reproduced", *(f"{kind}, {data}" for kind in KINDS for data in DATA)]
    groups = {PAPERS[paper].partition(",")[0]: verdicts for paper, verdicts in every.items()}
    groups["together"] = [each for verdicts in every.values() for each in verdicts]
    rows = []
    for name, verdicts in groups.items():
        cells: list[object] = [name]
        for kind in KINDS:
            for data in DATA:
                some = [each.holds for each in verdicts if (each.claim.kind, each.claim.data) == (kind, data)]
                cells.append(f"{sum(some)} of {len(some)}" if some else "")
        rows.append(cells)
    return table(header, rows)


def _claims(verdicts: list[Verdict]) -> str:
    return table(
        CLAIMS_HEADER,
        [
            [
                each.claim.source,
                f"{each.claim.kind}, {each.claim.data}",
                each.claim.statement,
                condition(each.claim),
                format_value(each.value),
                _marked(each),
            ]
            for each in verdicts
        ],
    )


CLAIMS_HEADER = ["in the paper", "kind", "claim", "holds if", "measured", "verdict"]


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
        yield "**What did not reproduce, and why**"
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


def write(measured: Results, folder: Path) -> list[Path]:
    """Write the pages into a folder and return the files written."""
    pages = render(measured)
    for file, text in pages.items():
        (folder / file).write_text(text, encoding="utf-8")
    return [folder / file for file in pages]


def main(docs: Path = Path(__file__).parents[1] / "docs") -> None:
    """Write the pages again from docs/reproduction.json: ``python -m reproduction.page``."""
    write(Results.read(docs / results.FILE), docs)


if __name__ == "__main__":
    main()
