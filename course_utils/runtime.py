"""Which machine is this, and how do kernels run on it?

`setup()` is the first line of every notebook. It decides once, before triton is imported, between
two modes:

- `gpu`: PyTorch sees a CUDA GPU; kernels are compiled for it.
- `interpreter`: there is none that can be used, or the reader set `TRITON_INTERPRET=1`; Triton
  kernels then run in Triton's interpreter on the CPU, and Python CUDA kernels in Numba's simulator.

The decision (`decide`) is a pure function of what `probe` found out; what goes wrong is put into
words by `diagnosis`.
"""

from __future__ import annotations

import importlib
import os
import platform
import sys
import threading
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from course_utils.diagnosis import (
    RESTART,
    TRITON_REQUIREMENT,
    SetupError,
    dotted,
    explain_failure,
    explain_missing_cxx,
    explain_missing_triton,
    explain_untested_triton,
    explain_unusable_gpu,
    first_sentence,
    versions_in_words,
    way_out,
)
from course_utils.probe import Facts, cpu_name, host_memory, probe
from course_utils.when_imported import when_imported

if TYPE_CHECKING:
    import torch

    from course_utils import gpus

# The GPU whose limits stand in where there is none: the one that the course's times are from.
REFERENCE_GPU = "h200"
# Tensor cores with bfloat16 begin with Ampere (compute capability 8.0); a Turing card (7.5, the
# T4) still runs every lesson. Older cards are not tested, and CUDA 13 no longer supports them.
FULL_CAPABILITY = (8, 0)
LOWEST_CAPABILITY = (7, 5)


@dataclass(frozen=True)
class Machine:
    """The machine that a notebook runs on, as `setup()` found it.

    Attributes:
        mode: "gpu" or "interpreter".
        device: the torch device for the lessons' tensors: "cuda" or "cpu".
        name: the GPU's name, in interpreter mode the CPU's.
        compute_capability: such as (9, 0); None in interpreter mode and on AMD.
        memory_bytes: the GPU's memory, in interpreter mode the machine's; None where unknown.
        shared_memory_per_block: bytes that one block can have at most (opt-in); in interpreter
            mode that of the reference GPU, see `tile_fits`.
        versions: versions of python, torch, triton, numpy, and of the CUDA or ROCm that torch is
            built for where there is one.
        in_colab: whether this is Google Colab.
        reason: why this mode, a few words; empty in GPU mode.
        notes: whole sentences on what to know or to do about this machine; mostly empty.
    """

    mode: str
    device: str
    name: str
    compute_capability: tuple[int, int] | None
    memory_bytes: int | None
    shared_memory_per_block: int
    versions: Mapping[str, str] = field(default_factory=dict, hash=False)
    in_colab: bool = False
    reason: str = ""
    notes: tuple[str, ...] = ()

    @property
    def gpu(self) -> gpus.GPU | None:
        """This GPU's entry in the table of GPUs; None without a GPU or for one not listed."""
        if self.mode != "gpu":
            return None
        from course_utils import gpus

        return gpus.find(self.name, self.memory_bytes)

    def best_dtype(self) -> torch.dtype:
        """The 16-bit type that this GPU multiplies fastest; float32 in interpreter mode.

        bfloat16 from compute capability 8.0, float16 below. The capability decides, because
        `torch.cuda.is_bf16_supported()` says yes on a T4, which only emulates bfloat16. On AMD
        it is bfloat16 where the table of GPUs lists a rate for it. The interpreter computes with
        numpy, which has no bfloat16 and gains nothing from 16 bits; in float32, what differs from
        the reference is the algorithm's doing and not the rounding's.
        """
        import torch

        if self.mode != "gpu":
            return torch.float32
        if self.compute_capability is None:
            has_bfloat16 = self.gpu is not None and "bf16" in self.gpu.peak
        else:
            has_bfloat16 = self.compute_capability >= FULL_CAPABILITY
        return torch.bfloat16 if has_bfloat16 else torch.float16

    def tile_fits(self, nbytes: int) -> bool:
        """Whether one block can hold tiles of `nbytes` bytes in shared memory.

        The limit is the GPU's own, with opt-in (`shared_memory_per_block`). The interpreter has no
        limit; there the reference GPU's (H200) is taken, so that a choice of tile made without a
        GPU is one that a GPU can run, and is the same on every such machine.
        """
        if nbytes < 0:
            raise ValueError(f"nbytes is a size in bytes, 0 or more, not {nbytes}")
        return nbytes <= self.shared_memory_per_block

    def scale(self, n_gpu: int, n_cpu: int) -> int:
        """A problem size: `n_gpu` on a GPU, `n_cpu` in the interpreter, which is far slower."""
        return n_gpu if self.mode == "gpu" else n_cpu

    def __str__(self) -> str:
        """The one line that `setup()` prints."""
        if self.mode == "gpu":
            details = []
            if self.compute_capability is not None:
                major, minor = self.compute_capability
                details.append(f"compute capability {major}.{minor}")
            if self.memory_bytes is not None:
                details.append(f"{self.memory_bytes / 2**30:.0f} GiB")
            where = f"GPU mode on {self.name} ({', '.join(details)})"
            how = "kernels are compiled and timed"
        else:
            where = f"Interpreter mode on {self.name} ({self.reason})"
            how = "kernels run correctly but slowly"
        shown = [
            f"{label} {self.versions[key]}"
            for key, label in [
                ("torch", "torch"),
                ("triton", "triton"),
                ("numpy", "numpy"),
                ("python", "Python"),
            ]
            if key in self.versions
        ]
        return f"{where}: {how}; {', '.join(shown)}"


@dataclass(frozen=True)
class Decision:
    """How kernels will run, why, and what the reader should know about it."""

    mode: str
    reason: str = ""
    notes: tuple[str, ...] = ()


_machine: Machine | None = None
# Re-entrant: what setup() imports may itself ask for machine().
_lock = threading.RLock()


def setup() -> Machine:
    """Decide how kernels run here, check that they do, print one line, return the machine.

    Call it before anything imports triton. Calling it again returns the same machine. Where the
    machine needs a remark, such as a driver to update, a line with it follows the first.

    Raises:
        SetupError: kernels cannot run here as things are. The message says what to do.
    """
    found = machine()
    print("\n".join([str(found), *found.notes]))
    return found


def machine() -> Machine:
    """The machine as `setup()` found it; sets it up, without printing, where that was not done.

    Raises:
        SetupError: as `setup()`.
    """
    global _machine
    with _lock:
        if _machine is None:
            _set_up()
        assert _machine is not None
        return _machine


def _set_up() -> None:
    """Set the module's `_machine`, or raise SetupError and leave it None."""
    global _machine
    facts = probe()
    decision = decide(facts)
    if decision.mode == "interpreter":
        # Triton reads this when it is imported: its own library functions are made then.
        os.environ["TRITON_INTERPRET"] = "1"
    # Numba warns of grids that leave a GPU idle; the lessons' are small on purpose.
    os.environ.setdefault("NUMBA_CUDA_LOW_OCCUPANCY_WARNINGS", "0")
    if _simulates_cuda(decision.mode, facts):
        _simulate_cuda()
    try:
        with warnings.catch_warnings():
            # Deprecations inside the libraries are not the reader's concern.
            warnings.simplefilter("ignore")
            versions = _versions(facts)
            # From here on what is imported may ask for the machine, so it has to be known.
            _machine = _describe(facts, decision, versions)
            if decision.mode == "interpreter":
                _repair_interpreter()
            _self_test(_machine, facts)
    except BaseException:
        _machine = None
        raise


def decide(facts: Facts) -> Decision:
    """The mode that these facts ask for, or the reason why there is none.

    Raises:
        SetupError: triton is missing, or was imported for the other mode.
    """
    if not facts.triton_installed:
        raise SetupError(explain_missing_triton(facts))
    decision = _decide_mode(facts)
    imported_as = facts.triton_imported_as
    if decision.mode == "interpreter" and imported_as == "compiled":
        raise SetupError(
            "triton was imported before course_utils.setup(), and therefore for a GPU. This "
            f"machine needs its interpreter ({decision.reason}), where parts of it such as tl.sum, "
            f"tl.zeros and tl.cdiv would now fail. {RESTART}"
        )
    if decision.mode == "gpu" and imported_as == "interpreted":
        raise SetupError(
            "triton was imported while TRITON_INTERPRET was set, which it no longer is, so its "
            f"library functions cannot be compiled for the GPU. {RESTART}"
        )
    if _simulates_cuda(decision.mode, facts) and facts.numba_imported_as == "compiled":
        raise SetupError(
            "numba.cuda was imported before course_utils.setup(), and therefore for an NVIDIA GPU. "
            f"Here its kernels run in Numba's simulator, which is chosen at import. {RESTART}"
        )
    return decision


def _simulates_cuda(mode: str, facts: Facts) -> bool:
    """Whether Python CUDA kernels run in Numba's simulator; Numba compiles none for AMD."""
    return mode == "interpreter" or facts.torch_hip is not None


def _decide_mode(facts: Facts) -> Decision:
    device = facts.device
    if device is None:
        reason = "no GPU found"
        if facts.gpus_hidden:
            reason = "CUDA_VISIBLE_DEVICES hides every GPU"
        elif facts.driver_cuda is not None:
            reason = "the GPU cannot be used, see below"
        elif facts.in_colab:
            reason = "no GPU found; Runtime > Change runtime type offers one"
        note = explain_unusable_gpu(facts)
        return Decision("interpreter", reason, (note,) if note else ())
    if facts.torch_hip is None and device.capability < LOWEST_CAPABILITY:
        note = (
            f"{device.name} has compute capability {dotted(device.capability)}, below "
            f"{dotted(LOWEST_CAPABILITY)}, the oldest with which the course is made to work; so "
            "kernels are interpreted on the CPU."
        )
        return Decision("interpreter", "the GPU is too old, see below", (note,))
    if facts.interpreter_wanted:
        return Decision("interpreter", f"chosen with TRITON_INTERPRET=1; {device.name} is not used")
    if facts.torch_hip is not None:
        note = (
            f"PyTorch is built for AMD (ROCm {facts.torch_hip}): PyTorch and Triton code "
            "should run on the GPU, though the course is not tested on AMD. What needs CUDA itself "
            "does not run (CUDA C++, NVIDIA's tools); Python CUDA kernels run in Numba's "
            "simulator."
        )
        return Decision("gpu", notes=(note,))
    if device.capability < FULL_CAPABILITY:
        note = (
            f"Compute capability {dotted(device.capability)} is below "
            f"{dotted(FULL_CAPABILITY)}: the GPU has no bfloat16, and tl.dot runs without tensor "
            "cores, so matrix kernels use float16 and stay far below the roof."
        )
        return Decision("gpu", notes=(note,))
    return Decision("gpu")


def _simulate_cuda() -> None:
    """Let Python CUDA kernels run in the simulator, once the reader imports Numba.

    Numba is not imported here: most lessons do without, and it takes a second. As in
    `_repair_interpreter`, the meter's file is looked up at run time.
    """
    os.environ["NUMBA_ENABLE_CUDASIM"] = "1"
    config = sys.modules.get("numba.core.config")
    if config is not None:  # numba has read the variable already, numba.cuda has not
        config.ENABLE_CUDASIM = 1

    def repair() -> None:
        importlib.import_module("course_utils.meter.cuda_warps").repair_simulator()

    when_imported("numba.cuda", repair)


def _repair_interpreter() -> None:
    """Let the meter mend Triton's interpreter, where this version of it needs mending.

    The meter lies above this module; but its `triton_tiles` is the only file that may touch the
    interpreter, and kernels have to be right before anything is metered. Hence a look-up at run
    time, which may find nothing.
    """
    name = "course_utils.meter.triton_tiles"
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("course_utils."):
            raise
        return
    repair = getattr(module, "repair_interpreter", None)
    if repair is not None:
        repair()


def _self_test(machine: Machine, facts: Facts) -> None:
    """Run the eight-element kernel; raise SetupError with an explanation if it is not right."""
    try:
        expected, found = _run_self_test(machine.device)
    except Exception as error:
        raise SetupError(explain_failure(error, machine, facts)) from error
    if found != expected:
        raise SetupError(
            f"The self-test kernel ran but is wrong: it gave {found} where {expected} is right. "
            "Kernels on this machine cannot be trusted with "
            f"{versions_in_words(machine)}; install the versions that constraints.txt lists."
            f"{way_out(machine)}"
        )


def _run_self_test(device: str) -> tuple[list[float], list[float]]:
    """What the self-test kernel should give and what it gives."""
    from course_utils import self_test

    return self_test.EXPECTED, self_test.run(device)


def _describe(facts: Facts, decision: Decision, versions: Mapping[str, str]) -> Machine:
    remarks = [explain_untested_triton(versions["triton"])]
    if decision.mode == "interpreter":
        remarks.append(explain_missing_cxx(facts))
    notes = (*decision.notes, *(remark for remark in remarks if remark))
    if decision.mode == "gpu":
        assert facts.device is not None
        return Machine(
            mode="gpu",
            device="cuda",
            name=facts.device.name,
            compute_capability=None if facts.torch_hip else facts.device.capability,
            memory_bytes=facts.device.memory_bytes,
            shared_memory_per_block=facts.device.shared_memory_per_block,
            versions=versions,
            in_colab=facts.in_colab,
            notes=notes,
        )
    from course_utils import gpus

    return Machine(
        mode="interpreter",
        device="cpu",
        name=cpu_name(),
        compute_capability=None,
        memory_bytes=host_memory(),
        shared_memory_per_block=gpus.gpu(REFERENCE_GPU).shared_memory_per_block,
        versions=versions,
        in_colab=facts.in_colab,
        reason=decision.reason,
        notes=notes,
    )


def _versions(facts: Facts) -> dict[str, str]:
    """Versions of what decides how kernels run. Imports triton, so the mode has to be decided."""
    try:
        triton = importlib.import_module("triton")
        importlib.import_module("triton.language")
    except ImportError as error:
        raise SetupError(
            f"Triton is installed but cannot be imported: {first_sentence(str(error))} "
            f'Install it anew: python -m pip install --force-reinstall "{TRITON_REQUIREMENT}"'
        ) from error
    versions = {
        "python": platform.python_version(),
        "torch": facts.torch_version,
        "triton": triton.__version__,
        "numpy": importlib.import_module("numpy").__version__,
    }
    if facts.torch_cuda:
        versions["cuda"] = facts.torch_cuda
    if facts.torch_hip:
        versions["rocm"] = facts.torch_hip
    return versions
