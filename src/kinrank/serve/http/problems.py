"""What goes wrong, as HTTP says it: a status, a code for machines, a message for people."""

from __future__ import annotations

import msgspec
from fastapi import Response

from kinrank import errors

RETRY_SECONDS = "1"


class Problem(Exception):  # noqa: N818 - an answer more than an error
    """An answer that is no result.

    Parameters
    ----------
    status
        The HTTP status.
    code
        One word for machines.
    message
        What was expected, what was found, and what to do.
    """

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message


# The first class that fits counts.
_STATUS: tuple[tuple[type[errors.KinrankError], int, str], ...] = (
    (errors.UnknownModelError, 404, "unknown-model"),
    (errors.UnableModelError, 409, "unable-model"),
    (errors.RefusedModelError, 409, "refused-model"),
    (errors.NotKeptError, 503, "not-kept"),
    (errors.EngineRefusedError, 502, "engine-refused"),
    (errors.EngineError, 503, "engine-down"),
    (errors.DataError, 422, "invalid"),
    (errors.ParameterError, 422, "invalid"),
)


def problem_of(error: errors.KinrankError) -> Problem:
    """How an error of the library is told."""
    for kind, status, code in _STATUS:
        if isinstance(error, kind):
            return Problem(status, code, str(error))
    return Problem(500, "internal", "the service failed; its log says how")


def response_of(problem: Problem) -> Response:
    """The answer itself."""
    body = {"error": {"code": problem.code, "message": problem.message}}
    headers = {}
    if problem.status == 503:
        headers["Retry-After"] = RETRY_SECONDS
    if problem.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return Response(msgspec.json.encode(body), problem.status, headers, "application/json")
