"""Who and what is forgotten, in a file outside of the database."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any
from uuid import uuid4

FILE = "forgotten.jsonl"


def salted(salt: str, number: int) -> str:
    """Return a hash of a number; without the salt and the database, nobody can tell of what."""
    return hashlib.blake2b(f"{salt} {number}".encode(), digest_size=16).hexdigest()


class Tombstones:
    """A line for each call that forgot something. It has no name, no text, and no hash that the database has."""

    def __init__(self, folder: Path | None) -> None:
        self._file = None if folder is None else folder / FILE

    def add(self, tenant: str, selection: Any, last: int) -> str:
        """Write what is to be forgotten of the votes up to the last number, and return the id of the line."""
        name, salt = uuid4().hex, secrets.token_hex(8)
        if self._file is not None:
            line: dict[str, Any] = {"id": name, "tenant": tenant, "salt": salt, "seq": last}
            for what, number in asdict(selection).items():
                line[what] = number if number is None or what == "day" else salted(salt, number)
            self._file.parent.mkdir(parents=True, exist_ok=True)
            with self._file.open("a", encoding="utf-8") as file:
                file.write(f"\n{json.dumps(line)}\n")  # on a line of its own, also after one that was cut off
                file.flush()
                os.fsync(file.fileno())
        return name

    def read(self) -> list[dict[str, Any]]:
        """Return all lines; one that was cut off was promised to nobody."""
        if self._file is None or not self._file.exists():
            return []
        found = []
        for line in self._file.read_text(encoding="utf-8").splitlines():
            with suppress(ValueError):
                found.append(json.loads(line))
        return found
