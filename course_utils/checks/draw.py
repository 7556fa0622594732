"""Inputs for checks: drawn at random, in the dtype in which the answer will see them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch

DTYPES = {
    "float32": torch.float32,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "float64": torch.float64,
}


@dataclass(frozen=True)
class Case:
    """One set of arguments for an answer.

    Attributes:
        name: what is special about it, in words: "1000 numbers, float32".
        arguments: what the answer is called with, in order; tensors on the CPU.
        refusable: whether the answer may refuse these with a ValueError or TypeError instead.
        keywords: what it is given by name.
    """

    name: str
    arguments: tuple[Any, ...]
    refusable: bool = False
    keywords: dict[str, Any] = field(default_factory=dict)


class Draw:
    """A source of random tensors; two with the same seed give the same."""

    def __init__(self, seed: int) -> None:
        self._generator = torch.Generator().manual_seed(seed)

    def normal(
        self,
        *shape: int,
        dtype: str | torch.dtype = "float32",
        scale: float = 1.0,
        shift: float = 0.0,
    ) -> torch.Tensor:
        """Return normally distributed numbers, rounded to the dtype: so the answer sees them."""
        numbers = torch.randn(shape, generator=self._generator, dtype=torch.float64)
        kind = DTYPES[dtype] if isinstance(dtype, str) else dtype
        return (numbers * scale + shift).to(kind)

    def uniform(
        self, *shape: int, low: float = 0.0, high: float = 1.0, dtype: str = "float32"
    ) -> torch.Tensor:
        """Return numbers spread evenly between low and high, rounded to the dtype."""
        numbers = torch.rand(shape, generator=self._generator, dtype=torch.float64)
        return (numbers * (high - low) + low).to(DTYPES[dtype])

    def integer(self, low: int, high: int) -> int:
        """Return a whole number from low to high, both included."""
        return int(torch.randint(low, high + 1, (), generator=self._generator))

    def number(self, low: float, high: float) -> float:
        """Return a number between low and high, with three digits."""
        return round(float(torch.rand((), generator=self._generator)) * (high - low) + low, 3)

    def rows_with_gaps(self, rows: int, columns: int, gap: int = 3, **options: Any) -> torch.Tensor:
        """Return a matrix whose rows lie further apart than they are long.

        What stands between the rows is of another size, so that reading it shows.
        """
        wide = self.normal(rows, columns + gap, **options)
        wide[:, columns:] = 1000
        return wide[:, :columns]
