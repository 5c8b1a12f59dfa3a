"""Array types used in signatures."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Float32 = NDArray[np.float32]
Float64 = NDArray[np.float64]
Int64 = NDArray[np.int64]

State = dict[str, NDArray[Any]]
"""The arrays of a fitted object by name, as a model folder stores them."""
