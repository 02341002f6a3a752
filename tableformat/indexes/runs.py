"""Where values change from one to the next."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


def run_starts(*arrays: NDArray[Any]) -> NDArray[np.bool_]:
    """True at the first place and wherever one of the arrays differs from the place before."""
    new = np.ones(len(arrays[0]), np.bool_)
    np.not_equal(arrays[0][1:], arrays[0][:-1], out=new[1:])
    for array in arrays[1:]:
        new[1:] |= array[1:] != array[:-1]
    return new


def sorted_once(numbers: NDArray[Any]) -> NDArray[Any]:
    """Each number once, in ascending order; faster than numpy's own `unique` for many."""
    ordered = np.sort(numbers)
    return ordered[run_starts(ordered)]
