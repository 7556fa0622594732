"""In words: why kernels cannot run here, or not as one would expect, and what to do about it.

Pure: every function turns facts into a sentence, so each case is tested without the machine that
has it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from course_utils.probe import Facts
    from course_utils.runtime import Machine

# The versions of Triton that the course is tested with; a test holds this and pyproject.toml
# together.
TRITON_OLDEST, TRITON_TOO_NEW = (3, 6), (3, 10)
TRITON_REQUIREMENT = "triton>=3.6,<3.10"
RESTART = "Restart the kernel and run the setup cell first."


class SetupError(RuntimeError):
    """The course cannot run on this machine as it is; the message says what to do about it."""

    def _render_traceback_(self) -> list[str]:
        # IPython shows these lines in place of a traceback through files the reader did not write.
        return [f"SetupError: {self}"]


def explain_missing_triton(facts: Facts) -> str:
    """Where to get Triton for this platform, or where to go if there is none."""
    systems = {"darwin": "macOS", "win32": "Windows", "cygwin": "Windows"}
    if facts.platform in systems:
        where = " or in WSL" if facts.platform != "darwin" else ""
        return (
            f"Triton is not available for {systems[facts.platform]}. Use the course on Linux{where}"
            ", or in Google Colab; neither needs a GPU."
        )
    if facts.in_colab:
        return (
            "Triton is missing: Colab installs it only on machines with a GPU. Run "
            f'%pip install "{TRITON_REQUIREMENT}" in a cell, then the setup cell again.'
        )
    return (
        f'Triton is missing. Install it with: python -m pip install "{TRITON_REQUIREMENT}", '
        "then run the setup cell again."
    )


def explain_unusable_gpu(facts: Facts) -> str | None:
    """Why torch cannot use the GPU of a machine that has an NVIDIA driver; None without one."""
    driver = facts.driver_cuda
    if driver is None or facts.gpus_hidden:
        return None
    if facts.torch_cuda is None:
        return (
            f"There is an NVIDIA driver, but PyTorch {facts.torch_version} is built without CUDA: "
            "install a CUDA build of PyTorch to use the GPU."
        )
    toolkit = version_numbers(facts.torch_cuda)
    # Within one major version an older driver serves a newer toolkit (CUDA's minor version
    # compatibility), so only the first number counts, unless torch itself says "too old".
    if driver[0] < toolkit[0] or any("too old" in text for text in facts.warnings):
        return (
            f"The NVIDIA driver supports CUDA up to {dotted(driver)}, but PyTorch "
            f"{facts.torch_version} is built for CUDA {facts.torch_cuda}: update the driver, or "
            f"install a PyTorch built for CUDA {driver[0]}."
        )
    said = f" PyTorch says: {first_sentence(facts.warnings[0])}" if facts.warnings else ""
    return (
        "There is an NVIDIA driver, but PyTorch cannot use a GPU; check that nvidia-smi lists "
        f"one.{said}"
    )


def explain_untested_triton(triton_version: str) -> str | None:
    """A remark on a Triton that the course was not tested with; None for one that it was."""
    if TRITON_OLDEST <= version_numbers(triton_version) < TRITON_TOO_NEW:
        return None
    return (
        f"The course is not tested with Triton {triton_version}; if something fails that should "
        f'not, install "{TRITON_REQUIREMENT}".'
    )


def explain_missing_cxx(facts: Facts) -> str | None:
    """A remark where torch.compile lacks the C++ compiler that it needs on a CPU; else None."""
    if facts.missing_cxx is None:
        return None
    return (
        f'There is no C++ compiler "{facts.missing_cxx}", which torch.compile needs on a CPU, in '
        "lesson 03 for instance: install one (on Debian and Ubuntu: sudo apt install g++; on a "
        "cluster: load its module), or name yours in the variable CXX, then restart the kernel."
    )


def interpreter_needs_repair(triton_version: str, numpy_version: str) -> bool:
    """Whether this Triton's interpreter fails with this numpy on loops over tensor bounds.

    Triton up to 3.6 turns a one-element array into an index with `int(array)`, which numpy
    deprecated in 1.25 and refuses since 2.4. The meter's `repair_interpreter` mends it.
    """
    old_triton = version_numbers(triton_version) < (3, 7)
    return old_triton and version_numbers(numpy_version) >= (2, 4)


def explain_failure(error: Exception, machine: Machine, facts: Facts) -> str:
    """What a failed self-test most likely means, and what to do about it."""
    # Triton's interpreter wraps what happened; the causes hold the rest of the story.
    chain: list[str] = []
    cause: BaseException | None = error
    while cause is not None and len(chain) < 10:
        chain.append(f"{type(cause).__name__}: {cause}")
        cause = cause.__cause__ or cause.__context__
    text = "\n".join(chain)
    versions = machine.versions
    if "0-dimensional arrays" in text and interpreter_needs_repair(
        versions["triton"], versions["numpy"]
    ):
        return (
            f"numpy {versions['numpy']} is too new for the interpreter of Triton "
            f"{versions['triton']}, which fails on loops over tensor bounds. Install either: "
            'python -m pip install "numpy<2.4" or python -m pip install "triton>=3.7,<3.10". '
            f"{RESTART}"
        )
    if "outside of the scope of a kernel" in text:
        return (
            "triton was imported before course_utils.setup(), so parts of it cannot be "
            f"interpreted. {RESTART}"
        )
    if re.search(r"Failed to find C compiler|Python\.h|CalledProcessError", text):
        return (
            "Triton compiles a small C file to launch kernels, and that failed: it needs a C "
            "compiler and Python's headers (on Debian and Ubuntu: sudo apt-get install gcc "
            f"python3-dev).{way_out(machine)}"
        )
    if re.search(r"no kernel image is available|not compatible with the current PyTorch", text):
        return (
            f"PyTorch {versions['torch']} has no kernels for {machine.name} (compute capability "
            f"{dotted(machine.compute_capability or ())}): install a PyTorch built for it."
            f"{way_out(machine)}"
        )
    if re.search(r"unsupported toolchain|driver version is insufficient", text):
        return (
            f"The NVIDIA driver is too old for Triton {versions['triton']}: update the driver."
            f"{way_out(machine)}"
        )
    if re.search(r"out of memory", text, re.IGNORECASE):
        return (
            f"{machine.name} has no memory left for eight numbers: end what else uses it "
            f"(nvidia-smi lists that).{way_out(machine)}"
        )
    said = f" PyTorch says: {first_sentence(facts.warnings[0])}" if facts.warnings else ""
    return (
        f"The self-test kernel failed on {machine.name} with {versions_in_words(machine)}: "
        f"{first_sentence(chain[0])}{said}{way_out(machine)}"
    )


def way_out(machine: Machine) -> str:
    """How to go on without the GPU, where a GPU is what fails; begins with a space, or is empty."""
    if machine.mode != "gpu":
        return ""
    return (
        " To work without the GPU: restart the kernel, run %env TRITON_INTERPRET=1, then the "
        "setup cell."
    )


def version_numbers(version: str) -> tuple[int, int]:
    """The first two numbers of a version: "2.13.0+cpu" gives (2, 13), "3" gives (3, 0)."""
    major, minor, *_ = [int(text) for text in re.findall(r"\d+", version)] + [0, 0]
    return major, minor


def dotted(numbers: tuple[int, ...]) -> str:
    """A version or compute capability as one writes it: (9, 0) gives "9.0"."""
    return ".".join(str(number) for number in numbers)


def versions_in_words(machine: Machine) -> str:
    """The versions that matter to a failing kernel, such as "torch 2.11.0, triton 3.6.0"."""
    return ", ".join(
        f"{name} {machine.versions[name]}"
        for name in ("torch", "triton", "numpy")
        if name in machine.versions
    )


def first_sentence(text: str) -> str:
    """The beginning of a library's message, fit to stand inside one of ours."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    sentence = re.split(r"(?<=[.!?])\s", lines[0])[0] if lines else "(no message)"
    return sentence if sentence[-1] in ".!?" else f"{sentence}."
