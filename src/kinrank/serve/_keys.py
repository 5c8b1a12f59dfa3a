"""API keys: stored as hashes, compared in constant time, one role each."""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from kinrank.errors import FileFormatError, ParameterError

_PREFIX = "kr_"  # lets people and secret scanners recognize a leaked key
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}\Z")


class Role(StrEnum):
    """What a key permits: queries only, for a web tier; to send events only; or everything."""

    QUERY = "query"
    EVENTS = "events"
    ADMIN = "admin"

    def permits(self, needed: Role) -> bool:
        """Return whether a key of this role may do what needs another one."""
        return self in (needed, Role.ADMIN)


_LINE = re.compile(rf"(?P<name>[A-Za-z0-9_-]{{1,64}}) (?P<role>{'|'.join(Role)}) (?P<digest>[0-9a-f]{{64}})\Z")


@dataclass(frozen=True)
class Key:
    """A stored API key. Only its hash is kept."""

    name: str
    """Name of the owner; it appears in logs."""
    role: Role
    """What the key permits."""
    digest: str
    """SHA-256 of the key. A key has 256 random bits, so a slow hash is not needed."""


class KeyRing:
    """The keys of a file with lines ``NAME ROLE SHA256`` and ``#`` comments.

    The file must exist at the start. `on_problem` is called if it has invalid lines, which are skipped, or has been
    deleted, which revokes all keys; `on_change` with "added" or "removed" and a key that has changed since the start.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "keys"
    ...     secret = add_key(file, "web", Role.QUERY)
    ...     ring = KeyRing(file)
    ...     ring.find(secret).name, ring.find("kr_guessed")
    ('web', None)
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        on_problem: Callable[[Exception], None] = lambda _: None,
        on_change: Callable[[str, Key], None] = lambda *_: None,
    ) -> None:
        self.path = Path(path)
        self._on_problem = on_problem
        self._on_change: Callable[[str, Key], None] = lambda *_: None
        self._seen: tuple[int, ...] | None = None
        self._keys: list[Key] = []
        self._read(self.path.stat())
        self._on_change = on_change

    def refresh(self) -> None:
        """Read the file again if it has changed, so that keys are added and revoked without a restart."""
        try:
            self._read(self.path.stat())
        except FileNotFoundError as error:
            self._replace([])
            if self._seen is not None:
                self._on_problem(error)
            self._seen = None

    def _read(self, stat: os.stat_result) -> None:
        seen = (stat.st_ino, stat.st_size, stat.st_mtime_ns)
        if seen != self._seen:
            keys, problems = _parse(self.path)
            self._replace(keys)
            self._seen = seen
            for problem in problems:
                self._on_problem(problem)

    def _replace(self, keys: list[Key]) -> None:
        before, self._keys = self._keys, keys
        for what, some, others in (("removed", before, keys), ("added", keys, before)):
            for key in some:
                if key not in others:
                    self._on_change(what, key)

    def find(self, secret: str) -> Key | None:
        """Return the stored key for a secret, or None. The time taken does not depend on the secret."""
        given = digest_of(secret)
        found = None
        for key in self._keys:
            if hmac.compare_digest(key.digest, given):
                found = key
        return found


def add_key(path: str | os.PathLike[str], name: str, role: Role) -> str:
    """Create a key, add its hash to a file and return the key. It is stored nowhere else."""
    file = Path(path)
    if not _NAME.match(name):
        raise ParameterError(f"a key name consists of up to 64 letters, digits, '-' and '_', got {name!r}")
    before = file.read_bytes() if file.exists() else b""
    if before and any(key.name == name for key in _parse(file)[0]):
        raise ParameterError(f"{file} already has a key {name!r}: delete its line first, or choose another name")
    secret = _PREFIX + secrets.token_urlsafe(32)
    separator = "\n" if before and not before.endswith(b"\n") else ""  # an editor may leave the last line open
    descriptor = os.open(file, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
    with open(descriptor, "a", encoding="ascii") as stream:
        stream.write(f"{separator}{name} {role} {digest_of(secret)}\n")
    return secret


def digest_of(secret: str) -> str:
    """Return the SHA-256 of a key."""
    return hashlib.sha256(secret.encode()).hexdigest()


def _parse(path: Path) -> tuple[list[Key], list[FileFormatError]]:
    """Return the keys of a file, and an error for each invalid line."""
    keys, problems = [], []
    for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
        text = line.partition("#")[0].strip()
        match = _LINE.match(text)
        if match is not None:
            keys.append(Key(match["name"], Role(match["role"]), match["digest"]))
        elif text:
            problem = f"skipped: expected NAME ROLE SHA256 with role {', '.join(Role)}, as written by kinrank admin key"
            problems.append(FileFormatError(path, number, problem))
    return keys, problems
