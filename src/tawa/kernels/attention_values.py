"""What the arrays of an attention problem must say, where the CPU can read them."""

from __future__ import annotations

from typing import Any

from tawa.errors import ArgumentError
from tawa.runtime.arrays import host_array


def check_values(keys: int, page: int, places: int, lengths: Any, table: Any, leftpad: Any) -> None:
    """Raise ArgumentError for arrays of the CPU that name keys or pages which are not there.

    `keys` a batch has at most, in pages of `page` rows (0: in none), of which there are `places`.
    On a GPU kernels look themselves: there is no key past the last, and what lies in a page that is
    not there makes the rows that see it NaN.
    """
    import numpy as np

    count = None if lengths is None else host_array(lengths)
    if count is not None and _outside(count, keys + 1).any():
        raise ArgumentError(
            f"lengths has {count.min()} to {count.max()}",
            why=f"a batch has 0 to {keys} keys",
            remedy="pass how many keys each batch has, and all keys in k and v",
        )
    if leftpad is not None and _outside(first := host_array(leftpad), keys + 1).any():
        raise ArgumentError(
            f"leftpad has {first.min()} to {first.max()}", why=f"a batch has {keys} rows"
        )
    if table is None:
        return
    named = host_array(table)
    wrong = _outside(named, places)
    if count is not None:  # what lies past the length is not read
        wrong = _both(wrong, np.arange(named.shape[1])[None, :] * page < count[:, None])
    if wrong.any():
        raise ArgumentError(
            f"block_table names page {named[wrong][0]}",
            why=f"k and v have pages 0 to {places - 1}",
            remedy="name pages that are there; entries past the length may be anything",
        )


def _outside(numbers: Any, count: int) -> Any:
    return (numbers < 0) | (numbers >= count)


def _both(one: Any, other: Any) -> Any:
    return one & other
