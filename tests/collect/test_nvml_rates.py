"""Counters between two readings."""

from __future__ import annotations

import pytest

from cockpit.collect.nvml import FieldValue
from cockpit.collect.nvml_rates import rate

SECOND_US = 1_000_000


def test_a_rate_is_the_difference_over_the_time_between():
    old, new = FieldValue(1000, 0), FieldValue(5000, 2 * SECOND_US)
    assert rate(old, new, unit_bytes=1, bits=32) == 2000


def test_a_32_bit_counter_that_went_back_has_wrapped():
    old, new = FieldValue(2**32 - 100, 0), FieldValue(900, SECOND_US)
    assert rate(old, new, unit_bytes=1, bits=32) == 1000


def test_a_64_bit_counter_that_went_back_was_reset_and_has_no_rate():
    old, new = FieldValue(2**40, 0), FieldValue(10, SECOND_US)
    assert rate(old, new, unit_bytes=1024, bits=64) is None


def test_units_are_counted():
    old, new = FieldValue(0, 0), FieldValue(3, SECOND_US)
    assert rate(old, new, unit_bytes=1024, bits=64) == 3072


@pytest.mark.parametrize("at_us", [0, -5])
def test_two_answers_from_the_drivers_cache_make_no_rate(at_us):
    assert rate(FieldValue(1, 0), FieldValue(9, at_us), unit_bytes=1, bits=32) is None
