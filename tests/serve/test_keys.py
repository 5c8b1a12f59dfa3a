"""Keys are stored as hashes."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from kinrank.errors import ParameterError
from kinrank.serve._keys import KeyRing, Role, add_key


def test_key_is_found_only_by_its_secret_which_is_not_in_the_file(tmp_path: Path):
    secret = add_key(tmp_path / "keys", "web", Role.QUERY)
    ring = KeyRing(tmp_path / "keys")
    found = ring.find(secret)
    assert found is not None
    assert (found.name, found.role) == ("web", Role.QUERY)
    for wrong in (secret[:-1], secret + "x", secret.upper(), "", found.digest, "ключ"):
        assert ring.find(wrong) is None
    assert secret not in (tmp_path / "keys").read_text()
    assert stat.S_IMODE((tmp_path / "keys").stat().st_mode) == 0o600


def test_keys_are_added_and_revoked_without_a_restart(tmp_path: Path):
    first = add_key(tmp_path / "keys", "one", Role.QUERY)
    ring = KeyRing(tmp_path / "keys")
    second = add_key(tmp_path / "keys", "two", Role.ADMIN)
    ring.refresh()
    assert ring.find(second) is not None
    lines = (tmp_path / "keys").read_text().splitlines()
    (tmp_path / "keys").write_text("# the first one was revoked\n" + lines[1] + "\n")
    ring.refresh()
    assert ring.find(first) is None
    assert ring.find(second) is not None


def test_keys_that_change_while_the_service_runs_are_reported(tmp_path: Path):
    add_key(tmp_path / "keys", "one", Role.QUERY)
    changes: list[str] = []
    ring = KeyRing(tmp_path / "keys", on_change=lambda what, key: changes.append(f"{what} {key.name} {key.role}"))
    assert changes == [], "those of the start have not changed"
    add_key(tmp_path / "keys", "two", Role.ADMIN)
    for _ in range(2):
        ring.refresh()
    assert changes == ["added two admin"]
    (tmp_path / "keys").write_text((tmp_path / "keys").read_text().replace("one query", "one events"))
    ring.refresh()
    assert changes[1:] == ["removed one query", "added one events"]
    (tmp_path / "keys").unlink()
    for _ in range(2):
        ring.refresh()
    assert changes[3:] == ["removed one events", "removed two admin"]


def test_key_is_added_to_a_file_without_a_final_newline(tmp_path: Path):
    file = tmp_path / "keys"
    first = add_key(file, "one", Role.QUERY)
    file.write_text(file.read_text().rstrip("\n"))
    second = add_key(file, "two", Role.QUERY)
    ring = KeyRing(file)
    assert [ring.find(secret) is not None for secret in (first, second)] == [True, True]
    assert file.read_text().count("\n") == 2


def test_invalid_lines_are_skipped_and_reported(tmp_path: Path):
    file = tmp_path / "keys"
    secrets = [add_key(file, name, Role.QUERY) for name in ("one", "two", "three")]
    problems: list[Exception] = []
    ring = KeyRing(file, problems.append)
    lines = file.read_text().splitlines()
    file.write_bytes(
        f"{lines[0]}\n{lines[1][:-1]}\n".encode() + b"\xff\n"
    )  # the second has a typo, the third is revoked
    for _ in range(2):
        ring.refresh()
    assert [ring.find(secret) is not None for secret in secrets] == [True, False, False]
    assert [str(each).partition(": skipped")[0] for each in problems] == [f"{file}, line 2", f"{file}, line 3"]
    assert KeyRing(file).find(secrets[0]) is not None  # also after a restart


def test_deleted_file_revokes_all_keys(tmp_path: Path):
    file = tmp_path / "keys"
    secret = add_key(file, "one", Role.QUERY)
    problems: list[Exception] = []
    ring = KeyRing(file, problems.append)
    stored = file.read_text()
    file.unlink()
    for _ in range(2):
        ring.refresh()
    assert ring.find(secret) is None
    assert len(problems) == 1
    file.write_text(stored)
    ring.refresh()
    assert ring.find(secret) is not None


def test_missing_files_and_invalid_names_raise(tmp_path: Path):
    with pytest.raises(FileNotFoundError, match="keys"):
        KeyRing(tmp_path / "keys")
    with pytest.raises(ParameterError, match="letters, digits"):
        add_key(tmp_path / "others", "a b", Role.QUERY)
    add_key(tmp_path / "others", "web", Role.QUERY)
    with pytest.raises(ParameterError, match="already has a key 'web'"):
        add_key(tmp_path / "others", "web", Role.ADMIN)
