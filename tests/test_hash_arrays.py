"""Sets of 64-bit numbers in arrays."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from siteatlas.hash_arrays import FEW_ARRAYS, HashArrays

NUMBERS = st.one_of(st.integers(-5, 5), st.integers(-(2**63), 2**63 - 1))


@given(st.lists(st.tuples(st.booleans(), NUMBERS)))
def test_arrays_hold_what_a_set_holds(steps: list[tuple[bool, int]]):
    arrays, numbers = HashArrays(FEW_ARRAYS), set[int]()
    for adds, number in steps:
        assert (number in arrays) == (number in numbers)
        if adds:
            assert arrays.add(number) == (number not in numbers)
            numbers.add(number)
        else:
            arrays.discard(number)
            numbers.discard(number)
        assert len(arrays) == len(numbers)
