"""intensity: three programs' FLOPs per byte, as formulas of their sizes."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from course_utils import Meter
from course_utils.checks.question_task import Number, QuestionTask, Slip


def saxpy(n: float) -> float:
    """Count y = a * x + y in float32 as one kernel, at two FLOPs an element."""
    x, y = (torch.empty(int(n), device="meta") for _ in "xy")
    with Meter() as meter:
        y.add_(x, alpha=2.0)  # one op, which PyTorch runs as one kernel
    return 2 * n / meter.traffic.bytes


def layer_norm(M: float, N: float) -> float:
    """Count a layer norm with weight and bias in bfloat16, each tensor once.

    PyTorch's own keeps a mean and a deviation of each row for the backward pass, which are left
    out here.
    """
    x = torch.empty(int(M), int(N), device="meta", dtype=torch.bfloat16)
    weight, bias = (torch.empty(int(N), device="meta", dtype=torch.bfloat16) for _ in "wb")
    with Meter() as meter:
        y = F.layer_norm(x, (int(N),), weight, bias)
    return meter.traffic.flops / sum(tensor.nbytes for tensor in (x, weight, bias, y))


def matmul(M: float, N: float, K: float) -> float:
    """Count a product of M×K by K×N in bfloat16, each matrix once."""
    a, b = (
        torch.empty(int(rows), int(columns), device="meta", dtype=torch.bfloat16)
        for rows, columns in ((M, K), (K, N))
    )
    with Meter() as meter:
        a @ b
    return meter.traffic.intensity


TASK = QuestionTask(
    "intensity",
    "02",
    "Intensity in letters",
    minutes=12,
    difficulty=2,
    place=1,
    points=3,
    hints=(
        "FLOPs above, bytes below. For the bytes, list the tensors that go in and those that come "
        "out, with the number of their elements, and multiply by the bytes of an element.",
        "saxpy reads x and y and writes y. The layer norm reads the matrix, a weight and a bias "
        "of N numbers each, and writes a matrix. The product reads M·K and K·N numbers and writes "
        "M·N; each of the M·N results takes K multiplications and K additions.",
        'saxpy: `"2 * n / (4 * 3 * n)"`. Layer norm: `"8 * M * N / (2 * (2 * M * N + 2 * N))"`. '
        "The product is built in the same way: two FLOPs for each of M·N·K, over two bytes for "
        "each number of the three matrices.",
    ),
    questions=(
        Number(
            "saxpy",
            "intensity of saxpy in float32",
            truth=saxpy,
            unit="FLOP/byte",
            letters={"n": (96, 1000, 4099)},
            aliases=("2 * n / (12 * n)", "1/6", 1 / 6, "2*n / (3 * 4 * n) FLOP/byte", 0.167),
            slips=(
                Slip(
                    "saxpy_two_tensors",
                    "2 / 8",
                    "that counts two passes of 4 bytes; there are three: x and y are read, and y "
                    "is written",
                ),
                Slip(
                    "saxpy_one_flop",
                    "1 / 12",
                    "a multiplication and an addition are two FLOPs, not one",
                ),
                Slip(
                    "saxpy_per_number",
                    "2 / 3",
                    "those are FLOPs per number moved; a float32 has 4 bytes",
                ),
                Slip(
                    "saxpy_half_the_bytes",
                    "2 / 6",
                    "that counts 2 bytes a number; a float32 has 4",
                ),
                Slip(
                    "saxpy_one_tensor",
                    "2 / 4",
                    "that counts one pass of 4 bytes; there are three: x and y are read, and y is "
                    "written",
                ),
                Slip(
                    "saxpy_two_kernels",
                    "2 / 20",
                    "those are the bytes of two kernels, the product first and then the sum; in "
                    "one kernel `a * x` stays in a register",
                ),
                Slip(
                    "saxpy_a_is_a_tensor",
                    "2 / 16",
                    "that counts four passes; a is one number, so there are three",
                ),
                Slip("saxpy_upside_down", "6", "that is upside down: bytes per FLOP"),
                Slip("saxpy_flops_alone", "2 * n", "those are the FLOPs; divide by the bytes"),
                Slip("saxpy_bytes_alone", "12 * n", "those are the bytes; the FLOPs go above them"),
            ),
        ),
        Number(
            "layer_norm",
            "intensity of the layer norm in bfloat16",
            truth=layer_norm,
            unit="FLOP/byte",
            letters={"M": (2, 5, 9), "N": (96, 64, 33)},
            aliases=(
                "8 * M * N / (4 * M * N + 4 * N)",
                "2 * M / (M + 1)",
                "2 / (1 + 1/M)",
                "8·M·N ÷ (2·(M·N + N + N + M·N))",
            ),
            slips=(
                Slip(
                    "layer_norm_no_weight_no_bias",
                    "8 * M * N / (4 * M * N)",
                    "the weight and the bias are missing: N numbers each, read beside the matrix",
                ),
                Slip(
                    "layer_norm_one_row",
                    "8 * M * N / (2 * (2 * M * N + N))",
                    "one of the two rows is missing: the weight has N numbers, and so has the bias",
                ),
                Slip(
                    "layer_norm_forgot_the_write",
                    "8 * M * N / (2 * (M * N + 2 * N))",
                    "the write is missing: the result is a matrix of M × N as well",
                ),
                Slip(
                    "layer_norm_in_float32",
                    "8 * M * N / (4 * (2 * M * N + 2 * N))",
                    "that counts 4 bytes a number; a bfloat16 has 2",
                ),
                Slip(
                    "layer_norm_in_elements",
                    "8 * M * N / (2 * M * N + 2 * N)",
                    "those are FLOPs per number moved; a bfloat16 has 2 bytes",
                ),
                Slip(
                    "layer_norm_rows_of_length_M",
                    "8 * M * N / (2 * (2 * M * N + 2 * M))",
                    "weight and bias are taken to have M numbers, one a row; they have N, one a "
                    "column",
                ),
                Slip(
                    "layer_norm_whole_matrices",
                    "8 * M * N / (2 * 4 * M * N)",
                    "weight and bias are counted as matrices of M × N; each is one row of N "
                    "numbers, read once",
                ),
                Slip(
                    "layer_norm_one_flop",
                    "M * N / (2 * (2 * M * N + 2 * N))",
                    "that counts one FLOP an element; a layer norm is counted at eight",
                ),
                Slip(
                    "layer_norm_flops_alone",
                    "8 * M * N",
                    "those are the FLOPs; divide by the bytes",
                ),
                Slip(
                    "layer_norm_bytes_alone",
                    "2 * (2 * M * N + 2 * N)",
                    "those are the bytes; the FLOPs go above them",
                ),
                Slip(
                    "layer_norm_upside_down",
                    "(4 * M * N + 4 * N) / (8 * M * N)",
                    "that is upside down: bytes per FLOP",
                ),
            ),
        ),
        Number(
            "matmul",
            "intensity of the product in bfloat16",
            truth=matmul,
            unit="FLOP/byte",
            letters={"M": (32, 48, 100), "N": (64, 20, 72), "K": (40, 96, 16)},
            aliases=(
                "2 * M * N * K / (2 * (M * K + K * N + M * N))",
                "M*N*K / (M*K + K*N + M*N)",
                "1 / (1/M + 1/N + 1/K)",
                "M·N·K / (M·K + N·K + M·N) FLOP/byte",
            ),
            slips=(
                Slip(
                    "matmul_half",
                    "M * N * K / (2 * (M * K + K * N + M * N))",
                    "half of it: either a multiplication and an addition are counted as one FLOP, "
                    "or a number is taken to have 4 bytes, and a bfloat16 has 2",
                ),
                Slip(
                    "matmul_in_elements",
                    "2 * M * N * K / (M * K + K * N + M * N)",
                    "those are FLOPs per number moved; a bfloat16 has 2 bytes",
                ),
                Slip(
                    "matmul_quarter",
                    "M * N * K / (4 * (M * K + K * N + M * N))",
                    "a quarter of it: a multiplication and an addition are two FLOPs, and a "
                    "bfloat16 has 2 bytes, not 4",
                ),
                Slip(
                    "matmul_forgot_the_write",
                    "M * N * K / (M * K + K * N)",
                    "the write is missing: the result has M · N numbers",
                ),
                Slip(
                    "matmul_forgot_b",
                    "M * N * K / (M * K + M * N)",
                    "the second operand is missing: K · N numbers are read as well",
                ),
                Slip(
                    "matmul_forgot_a",
                    "M * N * K / (K * N + M * N)",
                    "the first operand is missing: M · K numbers are read as well",
                ),
                Slip(
                    "matmul_result_alone",
                    "2 * M * N * K / (2 * M * N)",
                    "those are the FLOPs per byte of the result alone; both operands are read too",
                ),
                *(
                    Slip(
                        f"matmul_square_{size}",
                        f"{size} / 3",
                        "that holds for square matrices, M = N = K; here all three differ",
                    )
                    for size in "MNK"
                ),
                Slip(
                    "matmul_flops_alone",
                    "2 * M * N * K",
                    "those are the FLOPs; divide by the bytes",
                ),
                Slip(
                    "matmul_bytes_alone",
                    "2 * (M * K + K * N + M * N)",
                    "those are the bytes; the FLOPs go above them",
                ),
                Slip(
                    "matmul_no_reuse",
                    "2 * M * N * K / (2 * (2 * M * N * K + M * N))",
                    "that reads both numbers from memory for every multiplication; here each "
                    "matrix comes in once, and is used again on the chip",
                ),
                Slip(
                    "matmul_upside_down",
                    "(M * K + K * N + M * N) / (M * N * K)",
                    "that is upside down: bytes per FLOP",
                ),
                Slip(
                    "matmul_multiplied_sizes",
                    "2 * M * N * K / (2 * M * K * K * N * M * N)",
                    "the sizes of the three matrices are multiplied; their bytes add up",
                ),
            ),
        ),
    ),
)
