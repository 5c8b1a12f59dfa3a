"""Errors as HTTP responses: a status, a code for programs, a message for people."""

from __future__ import annotations

import msgspec
from starlette.exceptions import HTTPException
from starlette.responses import Response

from kinrank import errors
from kinrank.serve.http.responses import ErrorDetail, ErrorResponse

RETRY_SECONDS = "1"


class HttpError(Exception):
    """An error response.

    Parameters
    ----------
    status
        HTTP status.
    code
        Error code for programs.
    message
        What is wrong, what was given, and what to do.
    """

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message


STATUS: dict[type[Exception], tuple[int, str]] = {
    errors.UnknownModelError: (404, "unknown-model"),
    errors.ForbiddenFieldError: (403, "forbidden-field"),
    errors.ModelNotLoadedError: (503, "no-model"),
    errors.UnsupportedByModelError: (409, "unable-model"),
    errors.RejectedModelError: (409, "refused-model"),
    errors.NotStoredError: (503, "not-kept"),
    errors.StaleReplicaError: (503, "stale"),
    errors.StoreUnavailableError: (503, "store-down"),
    errors.EngineRefusedError: (502, "engine-refused"),
    errors.EngineFailedError: (502, "engine-failed"),
    errors.MissingIndexError: (502, "engine-refused"),
    errors.EngineError: (503, "engine-down"),
    errors.EncoderError: (503, "encoder-error"),
    errors.DataError: (422, "invalid"),
    errors.ParameterError: (422, "invalid"),
}
"""Status and code by class; the most specific class counts. Any other exception is unexpected: a 500."""


def to_http_error(error: Exception) -> HttpError:
    """Return the error response for an exception."""
    if isinstance(error, HttpError):
        return error
    if isinstance(error, HTTPException):
        return HttpError(error.status_code, "http", str(error.detail))
    for kind in type(error).__mro__:
        if kind in STATUS:
            return HttpError(*STATUS[kind], str(error))
    return HttpError(500, "internal", "the service failed; the log has the traceback under this request id")


def error_response(error: HttpError) -> Response:
    """Return the response to send."""
    headers = {}
    if error.status == 503:
        headers["Retry-After"] = RETRY_SECONDS
    if error.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    body = ErrorResponse(ErrorDetail(error.code, error.message))
    return Response(msgspec.json.encode(body), error.status, headers, "application/json")
