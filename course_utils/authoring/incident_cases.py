"""Lesson 05's kernels, run natively and on purpose: what each one does on a GPU.

Every function here is one incident. It gets the module of the lesson's kernels, runs some of them
on the GPU, and returns what it saw. It is called in a child process, because some of them end with
an error after which a process can use its GPU no more. Nothing of this runs in a lesson.

Sentences are made of what was measured, never of what was expected.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any


@dataclass
class Seen:
    """What one incident shows: a symptom, one sentence, the numbers behind it, a tool's lines."""

    symptom: str
    says: str
    seen: dict[str, Any] = field(default_factory=dict)
    excerpt: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Case:
    """How to come by one incident.

    Attributes:
        run: the function that runs in the child process.
        kernels: names of the lesson's kernels that it launches.
        mistake: its number among the lesson's ten; None for what is no mistake.
        stderr: a pattern; the first line of the child's stderr that has it becomes the excerpt.
    """

    run: Callable[[ModuleType], Seen]
    kernels: tuple[str, ...]
    mistake: int | None = None
    stderr: str = ""


N = 1000  # the lesson's vector: no multiple of the tile
TILE = 256


def missing_mask(k: ModuleType) -> Seen:
    """Store past the end, once where the allocator leaves room, once where it does not."""
    import torch

    right, changed = {}, {}
    for n in (N, 1152):  # 1152 floats are 9 of PyTorch's 512-byte pieces
        x = torch.arange(n, dtype=torch.float32, device="cuda")
        tensors = [torch.full((n,), 7.0, device="cuda") for _ in range(9)]
        y = tensors.pop(4)
        k.double_half_masked[(-(-n // TILE),)](x, y, n, BLOCK=TILE)
        torch.cuda.synchronize()
        right[n] = torch.equal(y, 2 * x)
        changed[n] = sum(int((t != 7.0).sum()) for t in tensors)
    parts = [
        f"with {n} elements the result is {'right' if right[n] else 'wrong'} and {changed[n]} "
        f"numbers of other tensors were overwritten"
        for n in right
    ]
    symptom = "neighbour overwritten" if any(changed.values()) else "right"
    seen = {"changed_1000": changed[N], "changed_1152": changed[1152]}
    return Seen(symptom, f"No error; {'; '.join(parts)}.", seen)


def lane_offset(k: ModuleType) -> Seen:
    """Write the first tile only, into memory that may hold an earlier run's answer."""
    import torch

    x = torch.arange(1, N + 1, dtype=torch.float32, device="cuda")
    grid = (-(-N // TILE),)
    before = torch.empty_like(x)
    k.double[grid](x, before, N, BLOCK=TILE)
    place = before.data_ptr()
    del before
    y = torch.empty_like(x)
    reused = y.data_ptr() == place
    k.double_first_tile[grid](x, y, N, BLOCK=TILE)
    correct = int((y == 2 * x).sum())
    y.fill_(float("nan"))
    k.double_first_tile[grid](x, y, N, BLOCK=TILE)
    left = int(y.isnan().sum())
    where = "the memory of the right kernel's last output" if reused else "other memory"
    says = (
        f"No error; torch.empty_like handed out {where}, and {correct} of {N} numbers looked "
        f"right; filled with NaN before, {left} were left."
    )
    return Seen("unwritten", says, {"reused": reused, "looked_right": correct, "nan_left": left})


def two_writers(k: ModuleType) -> Seen:
    """Add up a million ones, each program with a load and a store, twenty times."""
    import torch

    n, tile = 2**20, 1024
    x = torch.ones(n, device="cuda")
    totals = []
    for _ in range(20):
        total = torch.zeros(1, device="cuda")
        k.add_up[(n // tile,)](x, total, n, BLOCK=tile)
        totals.append(int(total.item()))
    atomic = torch.zeros(1, device="cuda")
    k.add_up_atomic[(n // tile,)](x, atomic, n, BLOCK=tile)
    low, high = min(totals), max(totals)
    sums = f"between {low:,} and {high:,} in 20 runs" if low < high else f"{low:,} in 20 runs"
    says = (
        f"No error; {n:,} ones in {n // tile:,} programs added up to {sums}; "
        f"with an atomic add to {int(atomic.item()):,}."
    )
    symptom = "right" if low == n else "not repeatable" if low < high else "wrong numbers"
    return Seen(symptom, says, {"totals": totals, "atomic": atomic.item()})


def short_grid(k: ModuleType) -> Seen:
    """Launch a right kernel with one program too few."""
    import torch

    x = torch.arange(N, dtype=torch.float32, device="cuda")
    y = torch.full_like(x, float("nan"))
    k.double[(N // TILE,)](x, y, N, BLOCK=TILE)
    left = int(y.isnan().sum())
    return Seen("unwritten", f"No error; {left} of {N} numbers are still NaN.", {"nan_left": left})


def int32_overflow(k: ModuleType) -> Seen:
    """Double a tensor of more than 2^31 elements, with 32-bit offsets and with 64-bit ones."""
    import torch

    n, tile = 2**31 + 1024, 1024
    grid = (n // tile,)
    x = torch.ones(n, dtype=torch.float16, device="cuda")
    y = torch.zeros_like(x)
    k.double_far_64[grid](x, y, n, 0, BLOCK=tile)
    wide = bool((y[-tile:] == 2).all()) and bool((y[:tile] == 2).all())
    y.zero_()
    begin = f"On 2^31 + 1024 float16 numbers, 64-bit offsets were {'right' if wide else 'wrong'}"
    try:
        k.double_far[grid](x, y, n, 0, BLOCK=tile)
        torch.cuda.synchronize()
    except RuntimeError as error:
        text = first_line(error)
        return Seen("device error", f"{begin}; 32-bit ones stopped with: {text}", {"error": text})
    left = int((y[-tile:] != 2).sum())
    says = f"{begin}; 32-bit ones gave no error and left {left} of the last {tile} numbers wrong."
    return Seen("unwritten" if left else "right", says, {"left": left, "wide_right": wide})


def int32_overflow_debug(k: ModuleType) -> Seen:
    """Launch the far program with Triton's own check of integer operations."""
    import torch

    x = torch.ones(2**21, dtype=torch.float16, device="cuda")
    y = torch.zeros_like(x)
    try:
        k.double_far[(1,)](x, y, N, 2**21, BLOCK=1024, debug=True)
        torch.cuda.synchronize()
    except RuntimeError as error:
        text = first_line(error)
        return Seen("device error", f"Launched with debug=True: {text}", {"error": text})
    return Seen("right", "Launched with debug=True, nothing was reported.")


def tile_of_200(k: ModuleType) -> Seen:
    """Ask for a tile that is no power of two."""
    import torch

    x = torch.ones(N, device="cuda")
    return refusal(lambda: k.double[(5,)](x, torch.empty_like(x), N, BLOCK=200))


def tf32(k: ModuleType) -> Seen:
    """Multiply float32 tiles with both precisions."""
    import torch

    torch.manual_seed(0)
    a, b = (torch.randn(32, 32).cuda() for _ in range(2))
    exact = a.double() @ b.double()
    errors = {}
    for precision in ("tf32", "ieee"):
        c = torch.full_like(a, float("nan"))
        k.product[(1,)](a, b, c, SIZE=32, PRECISION=precision)
        errors[precision] = ((c.double() - exact).norm() / exact.norm()).item()
    says = (
        f"No error message; the relative error is {errors['tf32']:.1e} with tf32 and "
        f"{errors['ieee']:.1e} with ieee."
    )
    return Seen("wrong numbers" if errors["tf32"] > 1e-5 else "right", says, errors)


def accumulator(k: ModuleType) -> Seen:
    """Add up many float16 numbers in float16 and in float32."""
    import torch

    n, totals = 40_000, {}
    x = torch.full((n,), 0.25, dtype=torch.float16, device="cuda")
    for name in ("total_in_half", "total_in_float"):
        total = torch.zeros(1, device="cuda")
        getattr(k, name)[(1,)](x, total, n, BLOCK=16)
        totals[name] = total.item()
    says = (
        f"No error; {n} numbers of 0.25 add up to {totals['total_in_half']:g} in float16 and to "
        f"{totals['total_in_float']:g} in float32."
    )
    wrong = totals["total_in_half"] != n / 4
    return Seen("wrong numbers" if wrong else "right", says, totals)


def masked_fill(k: ModuleType) -> Seen:
    """Take the maxima of negative rows, with lanes masked off and no `other`."""
    import torch

    found = {}
    for dtype in (torch.float32, torch.float16):
        x = (-1 - torch.arange(400.0)).view(4, 100).to("cuda", dtype)
        y = torch.full((4,), float("nan"), device="cuda", dtype=dtype)
        k.row_max[(4,)](x, y, 100, BLOCK=128)
        found[str(dtype).removeprefix("torch.")] = y.tolist()
    right = x.amax(1).tolist()
    says = f"No error; the maxima came out as {found['float32']}, where {right} is right."
    if found["float16"] != found["float32"]:
        says += f" In float16 they came out as {found['float16']}."
    symptom = "right" if found["float32"] == right else "wrong numbers"
    return Seen(symptom, says, {**found, "right": right})


def plain_global(k: ModuleType) -> Seen:
    """Launch the kernel that reads a global of Python."""
    import torch

    x = torch.ones(N, device="cuda")
    return refusal(lambda: k.double_global[(4,)](x, torch.empty_like(x), N))


def smallest_dot(k: ModuleType) -> Seen:
    """Multiply tiles of 8×8 in float16."""
    import torch

    a = torch.ones(8, 8, dtype=torch.float16, device="cuda")
    launch = k.product[(1,)]
    return refusal(lambda: launch(a, a, torch.empty_like(a), SIZE=8, PRECISION="ieee"))


def inline_asm(k: ModuleType) -> Seen:
    """Ask each element which thread of its warp holds it, with one line of PTX."""
    import torch

    out = torch.full((256,), -1, dtype=torch.int32, device="cuda")
    k.lane_ids[(1,)](out, BLOCK=256)
    lanes = out.tolist()
    says = f"It runs; the first eight elements are held by threads {lanes[:8]} of their warp."
    return Seen("right", says, {"lanes": lanes})


def barrier(k: ModuleType) -> Seen:
    """Reverse tiles through memory, without a barrier and with one, ten times each."""
    import torch

    tile, programs = 4096, 1000
    x = torch.arange(tile * programs, dtype=torch.float32, device="cuda")
    right = x.view(programs, tile).flip(1).reshape(-1)
    wrong = {}
    for use in (False, True):
        counts = []
        for _ in range(10):
            scratch = torch.full_like(x, float("nan"))
            y = torch.full_like(x, float("nan"))
            k.reverse_tiles[(programs,)](x, scratch, y, BARRIER=use, BLOCK=tile, num_warps=8)
            counts.append(int((y != right).sum()))
        wrong[use] = counts
    low, high = min(wrong[False]), max(wrong[False])
    says = (
        f"No error; of {x.numel():,} numbers {low:,} to {high:,} were wrong without the barrier, "
        f"in ten runs; with it {max(wrong[True]):,}."
    )
    symptom = "right" if not high else "not repeatable" if low < high else "wrong numbers"
    return Seen(symptom, says, {"without": wrong[False], "with": wrong[True]})


def bf16(k: ModuleType) -> Seen:
    """Double and round bfloat16 numbers."""
    import torch

    one = torch.ones(16, dtype=torch.bfloat16, device="cuda")
    twice = torch.zeros_like(one)
    k.twice[(1,)](one, twice, BLOCK=16)
    x = torch.full((16,), 1.006, device="cuda")
    rounded = torch.zeros_like(one)
    k.narrow[(1,)](x, rounded, BLOCK=16)
    says = f"1 + 1 = {twice[0].item():g}, and 1.006 is rounded to {rounded[0].item():.7g}."
    return Seen("right", says, {"twice": twice[0].item(), "rounded": rounded[0].item()})


def gelu_made(k: ModuleType) -> Seen:
    """Compile the GELU kernel natively and read what it needs."""
    import torch

    x = torch.randn(2**20, device="cuda")
    y = torch.empty_like(x)
    made = k.gelu[(2**20 // 1024,)](x, y, 2**20, BLOCK=1024)
    torch.cuda.synchronize()
    error = (y.double() - torch.nn.functional.gelu(x.double())).norm() / y.double().norm()
    seen = {
        "registers": made.n_regs,
        "spills": made.n_spills,
        "shared_memory": made.metadata.shared,
        "error": error.item(),
    }
    says = (
        f"Compiled for its own GPU, GELU needs {made.n_regs} registers a thread, spills "
        f"{made.n_spills}, and allocates {made.metadata.shared} bytes of shared memory."
    )
    return Seen("right", says, seen)


def memcheck_target(k: ModuleType) -> Seen:
    """Store past the end once. This runs under compute-sanitizer's memcheck."""
    import torch

    x = torch.ones(N, device="cuda")
    y = torch.empty_like(x)
    k.double_half_masked[(4,)](x, y, N, BLOCK=TILE)
    torch.cuda.synchronize()
    return Seen("tool output", "ran")


def initcheck_target(k: ModuleType) -> Seen:
    """Leave a tail unwritten, and read it. This runs under compute-sanitizer's initcheck."""
    import torch

    x = torch.ones(N, device="cuda")
    y = torch.empty_like(x)
    k.double[(3,)](x, y, N, BLOCK=TILE)
    z = torch.empty_like(y)
    k.double[(4,)](y, z, N, BLOCK=TILE)
    torch.cuda.synchronize()
    return Seen("tool output", "ran")


NCU_CASES = ("x[:n]", "x[1:n+1]", "odd n")
NCU_REPEATS = 7


def ncu_target(k: ModuleType) -> Seen:
    """Run GELU on each of NCU_CASES, NCU_REPEATS times one after the other. Runs under ncu.

    They are: an aligned tensor, one that begins 4 bytes later, and one element fewer.
    """
    import torch

    n, tile = 2**26, 1024
    whole = torch.randn(n + 1, device="cuda")
    y = torch.empty(n, device="cuda")
    cases = ((whole[:n], n), (whole[1:], n), (whole[:n], n - 1))
    for x, count in cases:
        k.gelu[(n // tile,)](x, y, count, BLOCK=tile)  # compiles
    torch.cuda.synchronize()
    torch.cuda.profiler.start()
    for x, count in cases:
        for _ in range(NCU_REPEATS):
            k.gelu[(n // tile,)](x, y, count, BLOCK=tile)
            torch.cuda.synchronize()
    torch.cuda.profiler.stop()
    return Seen("tool output", "ran")


def refusal(launch: Callable[[], Any]) -> Seen:
    """Launch what should not compile."""
    import torch

    try:
        launch()
        torch.cuda.synchronize()
    except Exception as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        text = lines[-1] if lines else type(error).__name__
        says = f"{type(error).__name__}: {shorten(text)}"
        return Seen("compile error", says, {"error": text})
    return Seen("right", "It compiles and runs.")


def first_line(error: BaseException) -> str:
    """The first line of an error's text."""
    return (str(error).splitlines() or [type(error).__name__])[0].strip()


def shorten(text: str, limit: int = 160) -> str:
    """Cut a text at a word, with a sign that it was cut."""
    return text if len(text) <= limit else text[:limit].rsplit(" ", 1)[0] + " …"


CASES: dict[str, Case] = {
    "missing_mask": Case(missing_mask, ("double_half_masked",), 1),
    "lane_offset": Case(lane_offset, ("double", "double_first_tile"), 2),
    "two_writers": Case(two_writers, ("add_up", "add_up_atomic"), 3),
    "short_grid": Case(short_grid, ("double",), 4),
    "int32_overflow": Case(int32_overflow, ("double_far", "double_far_64"), 5),
    "int32_overflow_debug": Case(
        int32_overflow_debug, ("double_far",), 5, stderr=r"overflow detected"
    ),
    "tile_of_200": Case(tile_of_200, ("double",), 6),
    "tf32": Case(tf32, ("product",), 7),
    "accumulator": Case(accumulator, ("total_in_half", "total_in_float"), 8),
    "masked_fill": Case(masked_fill, ("row_max",), 9),
    "plain_global": Case(plain_global, ("double_global",), 10),
    "smallest_dot": Case(smallest_dot, ("product",)),
    "inline_asm": Case(inline_asm, ("lane_ids",)),
    "barrier": Case(barrier, ("reverse_tiles",)),
    "bf16": Case(bf16, ("twice", "narrow")),
    "gelu_made": Case(gelu_made, ("gelu",)),
}
"""What runs on its own, by the name under which it is recorded."""

TARGETS: dict[str, Case] = {
    "memcheck": Case(memcheck_target, ("double_half_masked",)),
    "initcheck": Case(initcheck_target, ("double",)),
    "ncu": Case(ncu_target, ("gelu",)),
}
"""What runs under a tool."""
