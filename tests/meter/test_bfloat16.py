"""bfloat16 on numpy's side is PyTorch's, bit for bit."""

import numpy as np
import torch

from course_utils.meter import bfloat16


def torch_bits(numbers: np.ndarray) -> np.ndarray:
    return torch.from_numpy(numbers).to(torch.bfloat16).view(torch.uint16).numpy()


def test_every_bit_pattern_is_widened_exactly():
    bits = np.arange(2**16, dtype=np.uint16)
    expected = torch.from_numpy(bits).view(torch.bfloat16).float().numpy()
    np.testing.assert_array_equal(bfloat16.widen(bits), expected)


def test_numbers_are_rounded_to_nearest_even():
    random = np.random.default_rng(0).integers(0, 2**32, 100_000, dtype=np.uint32)
    ties = (np.arange(2**16, dtype=np.uint32) << np.uint32(16)) | np.uint32(0x8000)
    numbers = np.concatenate([random, ties]).view(np.float32)
    numbers = numbers[~np.isnan(numbers)]
    np.testing.assert_array_equal(bfloat16.narrow(numbers), torch_bits(numbers))


def test_half_way_goes_to_the_even_neighbour():
    numbers = np.array([1 + 2**-8, 1 + 3 * 2**-8], np.float32)
    assert bfloat16.widen(bfloat16.narrow(numbers)).tolist() == [1.0, 1 + 2**-6]


def test_special_numbers_stay_what_they_are():
    numbers = np.array([np.inf, -np.inf, 0.0, -0.0, 3.4e38], np.float32)
    np.testing.assert_array_equal(bfloat16.narrow(numbers), torch_bits(numbers))
    patterns = np.array([0x7F800001, 0x7FFFFFFF, 0xFFFFFFFF, 0xFF800001], np.uint32)
    assert np.isnan(bfloat16.widen(bfloat16.narrow(patterns.view(np.float32)))).all()
