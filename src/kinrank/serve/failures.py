"""Why a query could not be ranked: one answer for rankings, weights and explanations."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kinrank.arrays import Float32, Float64
from kinrank.errors import DataError, EncoderError, KinrankError
from kinrank.serve.messages import Fallback, UnknownFeatureError


class Failure(NamedTuple):
    """Why a query is answered without a model."""

    reason: Fallback
    """The reason."""
    detail: str
    """The reason in words."""
    where: str | None = None
    """Under which name the error is reported; None if the request is to blame."""


def failure_of(error: Exception, rows: Float32 | None = None) -> Failure:
    """Return the failure that an exception means; `rows` are the features as the model takes them, if known."""
    if isinstance(error, EncoderError):
        return Failure(Fallback.ENCODER, str(error), "encode")
    if isinstance(error, UnknownFeatureError):
        return Failure(Fallback.UNKNOWN_FEATURE, str(error))
    if isinstance(error, DataError) and rows is not None and not np.isfinite(rows).all():
        return Failure(Fallback.NOT_FINITE, str(error))
    if isinstance(error, KinrankError):
        return Failure(Fallback.MODEL_ERROR, str(error))
    return Failure(Fallback.MODEL_ERROR, "the model failed; the log has the traceback", "rank")


def failure_in(scores: Float64, novelty: float | None, max_novelty: float) -> Failure | None:
    """Return why the prediction for a query is not used; None if it is."""
    if novelty is not None and novelty > max_novelty:
        detail = f"novelty {novelty:.3g} is above {max_novelty:.3g}: no similar query was judged"
        return Failure(Fallback.NOVEL, detail)
    if not np.isfinite(scores).all():
        return Failure(Fallback.NOT_FINITE, "the model's scores are not finite")
    return None
