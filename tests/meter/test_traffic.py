"""Traffic, launches and findings are plain data with the course's definitions."""

import dataclasses
import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from course_utils.meter import ArgumentTraffic, Finding, Launch, Traffic

SOME = Traffic(
    bytes_read=600,
    bytes_written=200,
    compulsory_read=150,
    compulsory_written=50,
    flops=1600,
    masked_lanes_read=7,
    masked_lanes_written=3,
)


def test_bytes_are_reads_and_writes():
    assert SOME.bytes == 800
    assert SOME.compulsory_bytes == 200


def test_intensity_is_flops_per_requested_byte():
    assert SOME.intensity == 2.0
    assert Traffic().intensity == 0.0
    assert Traffic(flops=1).intensity == math.inf


def test_reuse_is_requested_over_compulsory():
    assert SOME.reuse == 4.0
    assert Traffic().reuse == 1.0


def test_trips_are_bytes_moved_over_bytes_of_the_tensor():
    x = torch.zeros(100)  # 400 bytes
    assert SOME.trips(x) == 2.0
    assert SOME.trips(400) == 2.0
    assert SOME.trips(400.0) == 2.0
    assert SOME.trips(np.zeros(100, np.float32)) == 2.0
    assert SOME.trips(SimpleNamespace(nbytes=1600)) == 0.5


def test_trips_takes_a_numpy_integer_as_a_number_of_bytes():
    assert SOME.trips(np.int64(400)) == 2.0


@pytest.mark.parametrize("wrong", [None, "x", [1, 2], True])
def test_trips_says_what_it_wants(wrong):
    with pytest.raises(
        TypeError, match=r"tensor, an array or a number of bytes.*meter\.trips\(x\)"
    ):
        SOME.trips(wrong)


@pytest.mark.parametrize("empty", [0, -4, float("nan"), torch.zeros(0)])
def test_trips_over_nothing_is_an_error(empty):
    with pytest.raises(ValueError, match="no bytes to pass over"):
        SOME.trips(empty)


def test_adding_adds_every_field():
    twice = SOME + SOME
    for field in dataclasses.fields(Traffic):
        assert getattr(twice, field.name) == 2 * getattr(SOME, field.name), field.name
    with pytest.raises(TypeError):
        SOME + 1


def test_total_of_nothing_is_nothing():
    assert Traffic.total([]) == Traffic()
    assert Traffic.total([SOME, Traffic(flops=1)]).flops == 1601


def test_arguments_sum_to_traffic():
    part = ArgumentTraffic(bytes_read=4, nbytes=400, elements_unwritten=2)
    total = Traffic.total([part, part])
    assert type(total) is Traffic
    assert total == Traffic(bytes_read=8)


def test_records_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        SOME.flops = 0


def test_a_launch_has_trips():
    assert Launch("gelu", "torch", SOME).trips(400) == 2.0


def test_a_finding_reads_as_its_message():
    assert str(Finding("race", "something happened", "kernel", "x")) == "something happened"
