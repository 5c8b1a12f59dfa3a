"""Who may ask what."""

from __future__ import annotations

from fastapi import Request

from kinrank.serve.http.problems import Problem
from kinrank.serve.keys import KeyRing, Role


class Door:
    """Looks at the key of a request.

    Parameters
    ----------
    keys
        The keys there are; None leaves what is for queries open to everyone, and what is for operators closed.
    """

    def __init__(self, keys: KeyRing | None) -> None:
        self._keys = keys

    def let_in(self, request: Request, *roles: Role) -> None:
        """Raise a `Problem` unless the request carries a key of one of these roles."""
        if self._keys is None:
            if Role.QUERY not in roles:
                raise Problem(403, "no-keys", "this needs an admin key, and the service was started without keys")
            return
        scheme, _, secret = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not secret:
            raise Problem(401, "no-key", "send a key: Authorization: Bearer KEY")
        key = self._keys.find(secret.strip())
        if key is None:
            raise Problem(401, "unknown-key", "this key is not known here")
        request.scope["kinrank"]["key"] = key.name
        if key.role not in roles:
            raise Problem(403, "wrong-role", f"this needs a key for {' or '.join(roles)}, got one for {key.role}")
