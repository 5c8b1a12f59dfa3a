"""Known texts by other spellings: near-duplicates, and texts that differ by a typo."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kinrank.kin.encoders.ngrams import fold, words_of

_FEWEST, _MOST = 5, 60  # letters of a text that may have a typo


def near_keys(text: str) -> set[str]:
    """Return what near-duplicates of a text share: its letters, and its words without their order and plural.

    Examples
    --------
    >>> sorted(near_keys("Iron-Man toys"))
    ['letters ironmantoys', 'words iron man toy']
    """
    words = words_of(text)
    singular = sorted(_singular(word) for word in words)
    return {f"letters {''.join(words)}", f"words {' '.join(singular)}"} if words else set()


def _singular(word: str) -> str:
    return word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith("ss") else word


class Spellings:
    """Finds the known text that another text is a spelling of.

    That is a near-duplicate (`near_keys`) or, for texts of at least five letters, one that is the same if each misses
    one letter at most: a letter too many, too few, wrong or in the wrong place. Digits must be the same.

    Parameters
    ----------
    texts
        The known texts; of several that fit equally well, the first is found.

    Examples
    --------
    >>> films = Spellings(["iron man", "iron man 2", "heat"])
    >>> [films.nearest(text) for text in ("irnoman", "Ironman", "iron mann 2", "iron man 3", "haet", "iron maiden")]
    ['iron man', 'iron man', 'iron man 2', None, None, None]
    """

    def __init__(self, texts: Iterable[str]) -> None:
        self._known: dict[str, str] = {}
        for text in texts:
            for key in (*near_keys(text), *_with_typos(text)):
                self._known.setdefault(key, text)

    def nearest(self, text: str) -> str | None:
        """Return the known text, other than in case and spaces, that a text is a spelling of; None if there is none."""
        keys = (*sorted(near_keys(text)), *_with_typos(text))
        found = (self._known[key] for key in keys if key in self._known)
        return next((known for known in found if fold(known) != fold(text)), None)


def _with_typos(text: str) -> Iterator[str]:
    """Yield the letters of a text, and the letters without one of them, each with the digits of the text."""
    letters = "".join(words_of(text))
    if not _FEWEST <= len(letters) <= _MOST:
        return
    digits = "".join(letter for letter in letters if letter.isdigit())
    yield f"typo {digits} {letters}"
    for place, letter in enumerate(letters):
        if not letter.isdigit():
            yield f"typo {digits} {letters[:place]}{letters[place + 1 :]}"
