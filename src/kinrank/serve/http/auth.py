"""Authorization by API key."""

from __future__ import annotations

from starlette.requests import Request

from kinrank.serve.http.errors import HttpError
from kinrank.serve.http.logs import add_log_fields
from kinrank.serve.keys import Key, KeyRing, Role


class Authorizer:
    """Checks the API key of requests.

    Parameters
    ----------
    keys
        The accepted keys. None opens query endpoints to everyone and closes admin endpoints.
    """

    def __init__(self, keys: KeyRing | None) -> None:
        self._keys = keys

    def authorize(self, request: Request, needed: Role) -> Key | None:
        """Return the key of a request; None without keys. Raise an `HttpError` if it lacks a role."""
        if self._keys is None:
            if needed is not Role.QUERY:
                raise HttpError(403, "no-keys", "this needs an admin key, but the service was started without keys")
            return None
        scheme, _, secret = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not secret:
            raise HttpError(401, "no-key", "a key is required: send Authorization: Bearer KEY")
        key = self._keys.find(secret.strip())
        if key is None:
            raise HttpError(401, "unknown-key", "the key is unknown: send one created with kinrank key")
        add_log_fields(key=key.name)
        if not key.role.permits(needed):
            raise HttpError(403, "wrong-role", f"this needs a key with role {needed}, got {key.role}")
        return key
