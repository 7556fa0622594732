"""Look at the machine: platform, PyTorch, GPU, driver, and how triton and numba were imported.

Nothing here imports triton or numba, and nothing decides: what is found is handed over as `Facts`.
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
import os
import platform
import re
import shutil
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from course_utils.diagnosis import SetupError, first_sentence


@dataclass(frozen=True)
class Device:
    """What torch says about a GPU. Sizes in bytes."""

    name: str
    capability: tuple[int, int]
    memory_bytes: int
    shared_memory_per_block: int


@dataclass(frozen=True)
class Facts:
    """What `probe` found out about the machine; all that `decide` looks at.

    Attributes:
        platform: `sys.platform`.
        in_colab: whether this is Google Colab.
        torch_version: torch's version.
        torch_cuda, torch_hip: the CUDA or ROCm version torch is built for; None without.
        device: the first GPU that torch can use; None without.
        driver_cuda: the newest CUDA version that the NVIDIA driver supports; None without driver.
        gpus_hidden: whether CUDA_VISIBLE_DEVICES hides every GPU.
        warnings: what torch warned of about the GPU while it was asked.
        interpreter_wanted: whether TRITON_INTERPRET was set to a true value before.
        triton_installed: whether triton can be imported.
        triton_imported_as: None where triton is not imported yet, else "compiled" or "interpreted".
        numba_imported_as: the same of numba.cuda, with "compiled" or "simulated".
        missing_cxx: the C++ compiler that torch.compile would call on a CPU, where it is missing.
    """

    platform: str = "linux"
    in_colab: bool = False
    torch_version: str = ""
    torch_cuda: str | None = None
    torch_hip: str | None = None
    device: Device | None = None
    driver_cuda: tuple[int, int] | None = None
    gpus_hidden: bool = False
    warnings: tuple[str, ...] = ()
    interpreter_wanted: bool = False
    triton_installed: bool = True
    triton_imported_as: str | None = None
    numba_imported_as: str | None = None
    missing_cxx: str | None = None


def probe() -> Facts:
    """Look at the machine: platform, torch, GPU, driver, and how triton was imported.

    Raises:
        SetupError: torch is missing or cannot be imported.
    """
    caught: list[str] = []
    with warnings.catch_warnings(record=True) as recorded:
        # torch warns of an old driver or an old GPU in several lines; the note says it in one.
        warnings.simplefilter("always")
        torch = _import_torch()
        device = _first_device(torch, caught)
    # Importing torch can also warn of things that say nothing about the GPU.
    texts = [str(entry.message) for entry in recorded]
    caught += [text for text in texts if re.search("CUDA|GPU|NVIDIA", text)]
    driver = None
    if device is None and torch.version.hip is None:
        driver = _driver_cuda_version()
    return Facts(
        platform=sys.platform,
        in_colab="COLAB_RELEASE_TAG" in os.environ,
        torch_version=str(torch.__version__),
        torch_cuda=torch.version.cuda,
        torch_hip=torch.version.hip,
        device=device,
        driver_cuda=driver,
        gpus_hidden=os.environ.get("CUDA_VISIBLE_DEVICES", "0").strip() in ("", "-1"),
        warnings=tuple(caught),
        interpreter_wanted=_is_true(os.environ.get("TRITON_INTERPRET", "")),
        triton_installed=_is_installed("triton"),
        triton_imported_as=how_triton_was_imported(),
        numba_imported_as=how_numba_was_imported(),
        missing_cxx=_missing_cxx(),
    )


def how_triton_was_imported() -> str | None:
    """None where triton is not imported; else "compiled" or "interpreted".

    `TRITON_INTERPRET` counts when triton is imported: its library functions (`tl.cdiv`, `tl.sum`)
    become compiled or interpreted then and stay so, whatever the variable says later. So the
    functions are asked, not the variable.
    """
    language = sys.modules.get("triton.language")
    function = getattr(language, "cdiv", None)
    if function is None:
        return None
    return "interpreted" if type(function).__name__ == "InterpretedFunction" else "compiled"


def how_numba_was_imported() -> str | None:
    """None where numba.cuda is not imported; else "compiled" or "simulated".

    `NUMBA_ENABLE_CUDASIM` counts when numba is imported; its configuration holds what it said then.
    """
    cuda = sys.modules.get("numba.cuda")
    if cuda is None:
        return None
    return "simulated" if cuda.config.ENABLE_CUDASIM else "compiled"


def _import_torch() -> Any:
    try:
        return importlib.import_module("torch")
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise SetupError(
            "PyTorch is missing. `make lab` installs all that the course needs; by hand: "
            "python -m pip install -e . in the course's folder."
        ) from error
    except (ImportError, OSError) as error:
        raise SetupError(
            f"PyTorch is installed but cannot be imported: {first_sentence(str(error))} "
            "Install it anew: python -m pip install --force-reinstall torch"
        ) from error


def _first_device(torch: Any, caught: list[str]) -> Device | None:
    """The first GPU, where torch can use one; failures are added to `caught`."""
    if not torch.cuda.is_available():
        return None
    try:
        properties = torch.cuda.get_device_properties(0)
    except RuntimeError as error:
        caught.append(str(error))
        return None
    # ROCm reports no opt-in limit; there the plain one is all there is.
    shared = getattr(properties, "shared_memory_per_block_optin", 0)
    return Device(
        name=properties.name,
        capability=(properties.major, properties.minor),
        memory_bytes=properties.total_memory,
        shared_memory_per_block=shared or properties.shared_memory_per_block,
    )


def _driver_cuda_version() -> tuple[int, int] | None:
    """The newest CUDA version that the installed NVIDIA driver supports; None without a driver."""
    # libcuda alone is no proof: CUDA's compatibility packages bring one without any driver.
    # /dev/dxg is the GPU of a Windows host, as WSL shows it.
    if not any(Path(path).exists() for path in ("/proc/driver/nvidia/version", "/dev/dxg")):
        return None
    try:
        library = ctypes.CDLL("libcuda.so.1")
        version = ctypes.c_int(0)
        # Needs no initialised driver. 12080 means 12.8.
        if library.cuDriverGetVersion(ctypes.byref(version)) != 0:
            return None
    except (OSError, AttributeError):
        return None
    return version.value // 1000, version.value % 1000 // 10


def cpu_name() -> str:
    """The CPU's name as Linux gives it, elsewhere whatever the platform says."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    match = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    name = match[1] if match else platform.processor() or platform.machine()
    return " ".join(name.split()) or "this CPU"


def host_memory() -> int | None:
    """The machine's memory in bytes; None where the system does not say."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None


def _missing_cxx() -> str | None:
    """The compiler that Inductor calls on Linux, CXX or else g++, if it is not there; else None.

    No other is tried: with clang++ alone and CXX unset, torch.compile fails with InvalidCxxCompiler
    (torch/_inductor, `cpp_compiler_search` and `config.cpp.cxx`).
    """
    name = os.environ.get("CXX", "g++")
    return None if shutil.which(name) else name


def _is_installed(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        # A module that was put into sys.modules without a spec is there all the same.
        return name in sys.modules


def _is_true(value: str) -> bool:
    """Whether Triton takes this value of an environment variable for true."""
    return value.lower() in ("1", "true", "on", "yes", "y")
