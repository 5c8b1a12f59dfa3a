"""One word for one thing: pages, help and code have none of the words that were replaced.

A further word is a line of `OLD_WORDS`. The glossary explains those that are used now.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
OLD_WORDS = {
    r"\bfarness\b": "novelty",
    r"\bkinrank (convert|split|describe)\b": "kinrank data",
    r"\bkinrank (key|models|judgments|rules|forget|audit)\b": "kinrank admin",
    r"\bkinrank (hybrid|weights|publish|interleave|evaluate|reproduce)\b": "another command, see CHANGELOG.md",
    r"(?<!\w)--(qid|doc-id|query-column)\b": "--columns",
    r"(?<!\w)--(choice-days|trust-clients|unexplored|map-models|max-novelty|min-fidelity|accept-features)\b": "--set",
    r"\bkinrank\.(describe|neighbors)\b": "kinrank.kin",
    r"\bkinrank\.rankers\.(atvt|cluster|ensemble|query_class)\b": "kinrank.papers",
}
"""What must not be written any more, as regular expressions, and what to write."""
KINDS = {".py", ".md", ".js", ".html", ".yaml", ".yml", ".ipynb", ".toml", ".service", ""}
# Records of what was, and the place that names what took the place of old words.
EXCEPT = ("CHANGELOG.md", "docs/decisions/", "docs/reproduction.json", "src/kinrank/cli/app.py")
GLOSSARY = (ROOT / "docs" / "glossary.md").read_text()
LONGEST = 2000  # words of a guide
WORDS = ["Group", "Look", "Rung", "Weights per query"]


def texts() -> Iterator[tuple[str, str]]:
    """Yield the texts that people read, with their paths."""
    for top in ("src/kinrank", "docs", "examples", "deploy", "scripts", "README.md", "CONTRIBUTING.md"):
        for path in [ROOT / top, *sorted((ROOT / top).rglob("*"))]:
            name = path.relative_to(ROOT).as_posix()
            if path.is_file() and path.suffix in KINDS and not name.startswith(EXCEPT):
                yield name, path.read_text(encoding="utf-8", errors="replace")


@pytest.mark.parametrize("word", OLD_WORDS)
def test_old_word_is_gone(word: str):
    pattern = re.compile(word, re.IGNORECASE)
    found = [
        f"{name}:{number}: {line.strip()[:100]}"
        for name, text in texts()
        if pattern.search(text)
        for number, line in enumerate(text.splitlines(), 1)
        if pattern.search(line)
    ]
    assert not found, f"write {OLD_WORDS[word]} instead"


@pytest.mark.parametrize("word", WORDS)
def test_word_is_in_the_glossary(word: str):
    assert re.search(rf"^\*\*{word}\*\*$", GLOSSARY, re.MULTILINE)


def test_terms_are_in_alphabetical_order():
    terms = re.findall(r"^\*\*(.+)\*\*$", GLOSSARY, re.MULTILINE)
    assert terms == sorted(terms, key=str.lower)


@pytest.mark.parametrize("page", sorted(path.name for path in (ROOT / "docs").glob("*.md")))
def test_guide_is_short(page: str):
    words = len((ROOT / "docs" / page).read_text(encoding="utf-8").split())
    assert words <= LONGEST, f"{words} words: shorten it, or move figures to docs/project"


def test_readme_is_read_in_minutes():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").split()) <= 800
