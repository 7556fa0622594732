"""bfloat16 as numpy sees it: sixteen bits, the upper half of a float32."""

from __future__ import annotations

import numpy as np

_QUIET_NAN = np.uint16(0x7FC0)


def widen(bits: np.ndarray) -> np.ndarray:
    """Turn bfloat16 bits (uint16) into the float32 numbers they stand for; exact."""
    return (np.asarray(bits, np.uint16).astype(np.uint32) << np.uint32(16)).view(np.float32)


def narrow(numbers: np.ndarray) -> np.ndarray:
    """Round float32 numbers to bfloat16, to nearest, ties to even, as GPUs do; return the bits."""
    numbers = np.asarray(numbers, np.float32)
    bits = numbers.view(np.uint32)
    half = np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    rounded = ((bits + half) >> np.uint32(16)).astype(np.uint16)
    return np.where(np.isnan(numbers), _QUIET_NAN, rounded)
