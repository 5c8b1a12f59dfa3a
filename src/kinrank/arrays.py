"""Names for the array types that appear in signatures."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Float32 = NDArray[np.float32]
Float64 = NDArray[np.float64]
Int64 = NDArray[np.int64]

State = dict[str, NDArray[Any]]
"""A fitted object as plain arrays by name: what a model folder holds."""
