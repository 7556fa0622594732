"""Occupancy against published examples and against NVIDIA's own calculator."""

import pytest

from course_utils import gpus, models


def test_the_best_practices_guides_example():
    """37 registers: 12 blocks of 128 threads are 75 %, 4 blocks of 320 threads 63 %.

    NVIDIA, CUDA C++ Best Practices Guide, Calculating Occupancy, for compute capability 7.0; 8.0
    has the same registers and warps.
    """
    gpu = gpus.gpu("a100_80gb")
    narrow = models.occupancy(gpu, 128, 37)
    assert (narrow.blocks_per_sm, narrow.fraction) == (12, 0.75)
    wide = models.occupancy(gpu, 320, 37)
    assert (wide.blocks_per_sm, wide.fraction) == (4, 0.625)
    assert narrow.limited_by == wide.limited_by == ("registers",)


def test_the_sgemm_worklogs_example():
    """1024 threads, 37 registers, 8192 bytes: limits 1, 1 and 11 blocks, 32 of 48 warps.

    S. Boehm, How to Optimize a CUDA Matmul Kernel, kernel 3, on an A6000 (compute capability 8.6).
    """
    found = models.occupancy(gpus.gpu("a10"), 1024, 37, 8192)
    assert (found.limits["warps"], found.limits["registers"]) == (1, 1)
    assert found.limits["shared memory"] == 11
    assert (found.warps_per_sm, found.max_warps_per_sm) == (32, 48)
    assert found.limited_by == ("warps", "registers")


# What cudaOccMaxActiveBlocksPerMultiprocessor of the CUDA Toolkit 13.5 (cuda_occupancy.h) returns
# for the same numbers, with the largest carve-out for shared memory: blocks and limiting factors.
# Chosen where a rounding decides; 260,000 random ones agreed when this was written.
CALCULATOR = [
    ("t4", 1024, 64, 0, 1, ("warps", "registers")),
    ("t4", 1024, 65, 0, 0, ("registers",)),
    ("t4", 128, 40, 2048, 8, ("warps",)),
    ("t4", 64, 16, 9300, 6, ("shared memory",)),
    ("a10", 96, 72, 0, 9, ("registers",)),
    ("a100_40gb", 160, 72, 0, 5, ("registers",)),
    ("a100_40gb", 1000, 64, 1, 1, ("registers",)),
    ("rtx4090", 128, 255, 32768, 2, ("registers",)),
    ("l40s", 32, 16, 0, 24, ("blocks",)),
    ("h200", 256, 168, 0, 1, ("registers",)),
    ("h200", 384, 168, 200000, 1, ("registers", "shared memory")),
    ("h200", 33, 32, 0, 32, ("warps", "blocks", "registers")),
    ("b200", 128, 128, 232448, 1, ("shared memory",)),
    ("b200", 128, 128, 232449, 0, ("shared memory",)),
    ("rtx5090", 256, 40, 50176, 2, ("shared memory",)),
]


@pytest.mark.parametrize(("key", "threads", "registers", "shared", "blocks", "by"), CALCULATOR)
def test_as_nvidias_calculator(key, threads, registers, shared, blocks, by):
    found = models.occupancy(gpus.gpu(key), threads, registers, shared)
    assert (found.blocks_per_sm, found.limited_by) == (blocks, by)
    assert found.warps_per_sm == blocks * -(-threads // 32)


def test_more_registers_than_a_thread_can_have():
    found = models.occupancy(gpus.gpu("h200"), 32, 256)
    assert (found.blocks_per_sm, found.limited_by) == (0, ("registers",))


def test_in_words():
    found = models.occupancy(gpus.gpu("t4"), 128, 40)
    assert str(found) == "100%: 8 blocks and 32 of 32 warps per SM, limited by warps"
    assert "shared memory" not in found.limits


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("mi300x", 256, 32, 0), "Instinct MI300X is from AMD"),
        (("h200", 0, 32, 0), "^threads_per_block must be an integer of at least 1"),
        (("h200", 1025, 32, 0), "threads_per_block is 1025, but a block has at most 1024"),
        (("h200", 128, 0, 0), "^registers_per_thread must be"),
        (("h200", 128, 32, -1), "^shared_memory_per_block must be"),
        (("h200", 128, 32, 1.5), "^shared_memory_per_block must be"),
    ],
)
def test_bad_numbers_are_refused_by_name(arguments, message):
    key, *rest = arguments
    with pytest.raises(ValueError, match=message):
        models.occupancy(gpus.gpu(key), *rest)
