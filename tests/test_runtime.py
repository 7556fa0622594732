"""Which mode a machine gets, what a reader is told, and what a Machine answers.

Every kind of machine is a fake here, so no test depends on the one it runs on. What needs a real
Triton runs in a child process, because the mode is decided once per process.
"""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading
import tomllib
import types
import warnings
from pathlib import Path

import pytest

from course_utils import diagnosis, gpus, probe, runtime
from course_utils.diagnosis import SetupError
from course_utils.probe import Device, Facts
from course_utils.runtime import Machine, decide

PROJECT = Path(runtime.__file__).resolve().parent.parent

H200 = Device("NVIDIA H200", (9, 0), 150_109_880_320, 232_448)
T4 = Device("Tesla T4", (7, 5), 15_828_320_256, 65_536)
V100 = Device("Tesla V100-SXM2-16GB", (7, 0), 16_935_419_904, 98_304)
MI300X = Device("AMD Instinct MI300X", (9, 4), 205_822_885_888, 65_536)
CUDA = {"torch_version": "2.11.0+cu130", "torch_cuda": "13.0"}
VERSIONS = {"python": "3.13.0", "torch": "2.11.0", "triton": "3.6.0", "numpy": "2.5.0"}


def machine_like(device: Device | None = None, **changes) -> Machine:
    """A Machine with this GPU, or one in interpreter mode."""
    if device is None:
        values = {
            "mode": "interpreter",
            "device": "cpu",
            "name": "AMD EPYC 9B14",
            "compute_capability": None,
            "memory_bytes": 2**34,
            "shared_memory_per_block": 232_448,
            "reason": "no GPU found",
        }
    else:
        values = {
            "mode": "gpu",
            "device": "cuda",
            "name": device.name,
            "compute_capability": device.capability,
            "memory_bytes": device.memory_bytes,
            "shared_memory_per_block": device.shared_memory_per_block,
        }
    return Machine(**{**values, "versions": VERSIONS, **changes})


@pytest.fixture
def fresh(monkeypatch):
    """The state before setup(), with machine, libraries and self-test faked; facts to set."""
    fakes = types.SimpleNamespace(
        facts=Facts(**CUDA), versions=dict(VERSIONS), result=None, tests=[], repairs=[]
    )

    def run_self_test(device):
        fakes.tests.append(device)
        if isinstance(fakes.result, Exception):
            raise fakes.result
        return [1.0, 2.0], fakes.result or [1.0, 2.0]

    monkeypatch.setattr(runtime, "_machine", None)
    monkeypatch.setattr(runtime, "probe", lambda: fakes.facts)
    monkeypatch.setattr(runtime, "_versions", lambda facts: fakes.versions)
    monkeypatch.setattr(runtime, "_run_self_test", run_self_test)
    monkeypatch.setattr(runtime, "_repair_interpreter", lambda: fakes.repairs.append(True))
    # Recorded by monkeypatch first, so that what setup() sets is undone after the test.
    monkeypatch.setenv("TRITON_INTERPRET", "")
    return fakes


def in_child(code: str, **environment: str) -> subprocess.CompletedProcess:
    """Run code in a fresh process in which no GPU is visible."""
    inherited = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    return subprocess.run(
        [sys.executable, "-W", "always", "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=120,
        env={
            **inherited,
            "PYTHONPATH": os.pathsep.join([str(PROJECT), os.environ.get("PYTHONPATH", "")]),
            "CUDA_VISIBLE_DEVICES": "",
            **environment,
        },
    )


# The decision


def test_a_gpu_is_used_without_remarks():
    decision = decide(Facts(device=H200, **CUDA))
    assert (decision.mode, decision.reason, decision.notes) == ("gpu", "", ())


def test_no_gpu_means_interpreter_without_remarks():
    decision = decide(Facts(**CUDA))
    assert (decision.mode, decision.reason, decision.notes) == ("interpreter", "no GPU found", ())


def test_colab_without_gpu_is_told_where_to_get_one():
    decision = decide(Facts(in_colab=True, **CUDA))
    assert "Change runtime type" in decision.reason


def test_the_interpreter_can_be_chosen_on_a_gpu():
    decision = decide(Facts(device=H200, interpreter_wanted=True, **CUDA))
    assert decision.mode == "interpreter"
    assert decision.reason == "chosen with TRITON_INTERPRET=1; NVIDIA H200 is not used"
    assert decision.notes == ()


def test_a_t4_stays_a_gpu_with_one_sentence():
    decision = decide(Facts(device=T4, **CUDA))
    assert decision.mode == "gpu"
    (note,) = decision.notes
    assert "7.5" in note and "no bfloat16" in note and "without tensor cores" in note


def test_capability_8_needs_no_remark():
    a100 = Device("NVIDIA A100-SXM4-80GB", (8, 0), 85_000_000_000, 166_912)
    assert decide(Facts(device=a100, **CUDA)).notes == ()


def test_a_gpu_below_the_lowest_capability_is_not_used():
    decision = decide(Facts(device=V100, **CUDA))
    assert decision.mode == "interpreter"
    (note,) = decision.notes
    assert "Tesla V100" in note and "7.0" in note and "7.5" in note
    # The choice of the reader is not the reason, even if setup() itself set the variable before.
    again = decide(Facts(device=V100, interpreter_wanted=True, **CUDA))
    assert again == decision


def test_amd_runs_on_the_gpu_and_is_told_what_does_not():
    decision = decide(Facts(device=MI300X, torch_version="2.11.0+rocm7.1", torch_hip="7.1"))
    assert decision.mode == "gpu"
    (note,) = decision.notes
    assert "ROCm 7.1" in note and "CUDA C++" in note and "not tested on AMD" in note


def test_amds_numbers_are_not_compute_capabilities():
    radeon = Device("AMD Radeon", (7, 0), 2**34, 65_536)
    assert decide(Facts(device=radeon, torch_hip="7.1")).mode == "gpu"


@pytest.mark.parametrize(
    ("driver", "warned", "old"),
    [
        ((12, 8), (), True),
        ((13, 0), (), False),
        ((13, 2), (), False),
        ((13, 0), ("The NVIDIA driver on your system is too old (found version 13000).",), True),
    ],
)
def test_a_driver_older_than_the_toolkit_is_explained(driver, warned, old):
    decision = decide(Facts(driver_cuda=driver, warnings=warned, **CUDA))
    assert decision.mode == "interpreter"
    assert decision.reason == "the GPU cannot be used, see below"
    (note,) = decision.notes
    assert ("update the driver" in note) is old
    if old:
        assert f"CUDA up to {driver[0]}.{driver[1]}" in note and "CUDA 13.0" in note
    else:
        assert "nvidia-smi" in note


def test_an_older_minor_version_of_the_driver_is_no_reason():
    note = decide(Facts(driver_cuda=(12, 2), torch_version="2.11.0", torch_cuda="12.8")).notes[0]
    assert "update the driver" not in note


def test_what_pytorch_said_is_passed_on_when_nothing_explains_it():
    said = "CUDA unknown error - this may be due to an incorrectly set up environment. More."
    (note,) = decide(Facts(driver_cuda=(13, 0), warnings=(said,), **CUDA)).notes
    assert note.endswith(
        "PyTorch says: CUDA unknown error - this may be due to an incorrectly set up environment."
    )


def test_a_pytorch_without_cuda_beside_a_driver_is_explained():
    (note,) = decide(Facts(driver_cuda=(13, 0), torch_version="2.11.0+cpu")).notes
    assert "PyTorch 2.11.0+cpu is built without CUDA" in note


def test_gpus_hidden_by_the_reader_are_no_fault():
    decision = decide(Facts(driver_cuda=(13, 0), gpus_hidden=True, **CUDA))
    assert decision.reason == "CUDA_VISIBLE_DEVICES hides every GPU"
    assert decision.notes == ()


def test_triton_imported_too_early_says_restart():
    with pytest.raises(SetupError, match=r"imported before course_utils\.setup\(\)") as caught:
        decide(Facts(triton_imported_as="compiled", **CUDA))
    assert str(caught.value).endswith("Restart the kernel and run the setup cell first.")


def test_triton_imported_for_the_interpreter_says_restart_on_a_gpu():
    with pytest.raises(SetupError, match=r"which it no longer is.*Restart the kernel"):
        decide(Facts(device=H200, triton_imported_as="interpreted", **CUDA))


@pytest.mark.parametrize(
    "facts",
    [
        Facts(numba_imported_as="compiled", **CUDA),
        Facts(numba_imported_as="compiled", device=MI300X, torch_hip="7.1"),
    ],
)
def test_numba_imported_too_early_says_restart(facts):
    with pytest.raises(
        SetupError, match=r"numba\.cuda was imported before course_utils\.setup\(\)"
    ):
        decide(facts)


@pytest.mark.parametrize(
    ("facts", "mode"),
    [
        (Facts(numba_imported_as="simulated", **CUDA), "interpreter"),
        (Facts(device=H200, numba_imported_as="compiled", **CUDA), "gpu"),
        (Facts(triton_imported_as="interpreted", **CUDA), "interpreter"),
        (Facts(device=H200, triton_imported_as="compiled", **CUDA), "gpu"),
        (
            Facts(device=H200, interpreter_wanted=True, triton_imported_as="interpreted", **CUDA),
            "interpreter",
        ),
    ],
)
def test_what_was_imported_early_in_the_right_way_is_fine(facts, mode):
    assert decide(facts).mode == mode


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        (Facts(platform="darwin"), ["macOS", "Linux, or in Google Colab"]),
        (Facts(platform="win32"), ["Windows", "WSL", "Google Colab"]),
        (Facts(in_colab=True), ["%pip install", diagnosis.TRITON_REQUIREMENT, "Colab"]),
        (Facts(), ["python -m pip install", diagnosis.TRITON_REQUIREMENT]),
    ],
)
def test_missing_triton_is_explained_for_each_platform(facts, words):
    facts = Facts(**{**facts.__dict__, "triton_installed": False})
    with pytest.raises(SetupError) as caught:
        decide(facts)
    for word in words:
        assert word in str(caught.value)


def test_a_platform_that_has_triton_all_the_same_is_fine():
    assert decide(Facts(platform="win32", device=H200, **CUDA)).mode == "gpu"


# setup() and machine()


def test_setup_prints_one_line_and_sets_the_variable(fresh, capsys):
    machine = runtime.setup()
    out, err = capsys.readouterr()
    assert err == "" and out.count("\n") == 1
    assert out.startswith("Interpreter mode on ")
    assert out.endswith(
        " (no GPU found): kernels run correctly but slowly; "
        "torch 2.11.0, triton 3.6.0, numpy 2.5.0, Python 3.13.0\n"
    )
    assert os.environ["TRITON_INTERPRET"] == "1"
    assert (machine.mode, machine.device) == ("interpreter", "cpu")
    assert machine.compute_capability is None and machine.gpu is None
    assert machine.memory_bytes > 2**28
    assert fresh.tests == ["cpu"] and fresh.repairs == [True]


def test_setup_on_a_gpu_leaves_the_variable_and_the_interpreter_alone(fresh, capsys):
    fresh.facts = Facts(device=H200, **CUDA)
    machine = runtime.setup()
    assert capsys.readouterr().out == (
        "GPU mode on NVIDIA H200 (compute capability 9.0, 140 GiB): kernels are compiled and "
        "timed; torch 2.11.0, triton 3.6.0, numpy 2.5.0, Python 3.13.0\n"
    )
    assert os.environ["TRITON_INTERPRET"] == ""
    assert (machine.mode, machine.device, machine.name) == ("gpu", "cuda", "NVIDIA H200")
    assert machine.compute_capability == (9, 0)
    assert machine.memory_bytes == H200.memory_bytes
    assert machine.shared_memory_per_block == 232_448
    assert fresh.tests == ["cuda"] and fresh.repairs == []


def test_a_remark_follows_on_a_line_of_its_own(fresh, capsys):
    fresh.facts = Facts(device=T4, in_colab=True, **CUDA)
    machine = runtime.setup()
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2
    assert lines[0] == str(machine) and lines[1] == machine.notes[0]
    assert machine.in_colab


def test_calling_setup_again_returns_the_same_machine_untested(fresh, capsys):
    first = runtime.setup()
    second = runtime.setup()
    assert first is second is runtime.machine()
    assert fresh.tests == ["cpu"]
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2 and lines[0] == lines[1]


def test_machine_sets_up_without_printing(fresh, capsys):
    assert runtime.machine().mode == "interpreter"
    assert capsys.readouterr().out == ""
    assert fresh.tests == ["cpu"]


def test_amd_has_no_compute_capability(fresh):
    fresh.facts = Facts(device=MI300X, torch_version="2.11.0", torch_hip="7.1")
    assert runtime.machine().compute_capability is None
    assert "compute capability" not in str(runtime.machine())


@pytest.mark.parametrize(("triton", "remarks"), [("3.6.0", 0), ("3.9.9", 0), ("3.10.0", 1)])
def test_a_triton_that_is_not_tested_is_mentioned(fresh, triton, remarks):
    fresh.versions["triton"] = triton
    assert len(runtime.machine().notes) == remarks


def test_a_missing_cxx_compiler_is_mentioned_where_kernels_are_interpreted(fresh, capsys):
    fresh.facts = Facts(missing_cxx="g++", **CUDA)
    runtime.setup()
    _, remark = capsys.readouterr().out.splitlines()
    assert 'no C++ compiler "g++"' in remark and "sudo apt install g++" in remark


def test_a_missing_cxx_compiler_is_no_matter_on_a_gpu(fresh):
    fresh.facts = Facts(missing_cxx="g++", device=H200, **CUDA)
    assert runtime.machine().notes == ()


def test_a_failed_setup_can_be_tried_again(fresh):
    fresh.result = [1.0, 3.0]
    with pytest.raises(SetupError):
        runtime.setup()
    fresh.result = None
    assert runtime.setup().mode == "interpreter"
    assert fresh.tests == ["cpu", "cpu"]


def test_what_setup_imports_may_ask_for_the_machine(fresh, monkeypatch):
    asked = []
    monkeypatch.setattr(runtime, "_repair_interpreter", lambda: asked.append(runtime.machine()))
    machine = runtime.setup()
    assert asked == [machine]
    assert fresh.tests == ["cpu"]


def test_threads_set_up_once_and_wait_for_each_other(fresh, monkeypatch):
    entered, go_on = threading.Event(), threading.Event()

    def slow(device):
        entered.set()
        assert go_on.wait(10)
        fresh.tests.append(device)
        return [], []

    monkeypatch.setattr(runtime, "_run_self_test", slow)
    found: list[Machine] = []
    threads = [
        threading.Thread(target=lambda: found.append(runtime.machine()), daemon=True)
        for _ in range(3)
    ]
    threads[0].start()
    assert entered.wait(10)
    for thread in threads[1:]:
        thread.start()
    threads[1].join(0.2)
    assert found == []  # nobody gets a machine whose self-test is not over
    go_on.set()
    for thread in threads:
        thread.join(10)
    assert len(found) == 3 and found[0] is found[1] is found[2]
    assert fresh.tests == ["cpu"]


# The repair of the interpreter


@pytest.mark.parametrize(
    ("triton", "numpy", "needed"),
    [
        ("3.6.0", "2.4.0", True),
        ("3.6.0", "2.5.5", True),
        ("3.5.1", "2.10.0", True),
        ("3.6.0+git1234", "3.0.0", True),
        ("3.6.0", "2.3.5", False),
        ("3.6.0", "2.1.3", False),
        ("3.7.0", "2.5.5", False),
        ("3.10.0", "2.5.5", False),
    ],
)
def test_which_pairs_need_the_repair(triton, numpy, needed):
    assert diagnosis.interpreter_needs_repair(triton, numpy) is needed


def test_the_meters_repair_is_called(monkeypatch):
    calls = []
    module = types.ModuleType("course_utils.meter.triton_tiles")
    monkeypatch.setattr(runtime.importlib, "import_module", lambda name: module)
    runtime._repair_interpreter()  # a meter without a repair is fine
    module.repair_interpreter = lambda: calls.append(True)
    runtime._repair_interpreter()
    assert calls == [True]


def test_a_meter_that_is_not_there_is_fine_but_a_broken_one_is_not(monkeypatch):
    def missing(name):
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    def broken(name):
        raise ModuleNotFoundError("No module named 'numpy'", name="numpy")

    monkeypatch.setattr(runtime.importlib, "import_module", missing)
    runtime._repair_interpreter()
    monkeypatch.setattr(runtime.importlib, "import_module", broken)
    with pytest.raises(ModuleNotFoundError, match="numpy"):
        runtime._repair_interpreter()


# A self-test that fails


def interpreter_error(text: str) -> Exception:
    """An error as Triton's interpreter raises it: the text is in the cause."""
    error = RuntimeError("kernel failed")
    error.__cause__ = TypeError(text)
    return error


@pytest.mark.parametrize(
    ("error", "device", "words"),
    [
        (
            interpreter_error("only 0-dimensional arrays can be converted to Python scalars"),
            None,
            ["numpy 2.5.0 is too new", "Triton 3.6.0", '"numpy<2.4"', "Restart"],
        ),
        (
            interpreter_error("Cannot call @triton.jit'd outside of the scope of a kernel"),
            None,
            ["triton was imported before", "Restart"],
        ),
        (
            RuntimeError("Failed to find C compiler. Please specify via CC environment variable."),
            H200,
            ["C compiler", "python3-dev", "TRITON_INTERPRET=1"],
        ),
        (
            subprocess.CalledProcessError(1, ["gcc", "launcher.c"]),
            H200,
            ["C compiler", "python3-dev", "TRITON_INTERPRET=1"],
        ),
        (
            RuntimeError("CUDA error: no kernel image is available for execution on the device"),
            H200,
            ["PyTorch 2.11.0 has no kernels for NVIDIA H200", "9.0", "TRITON_INTERPRET=1"],
        ),
        (
            RuntimeError("the provided PTX was compiled with an unsupported toolchain."),
            H200,
            ["driver is too old for Triton 3.6.0", "TRITON_INTERPRET=1"],
        ),
        (
            RuntimeError("CUDA out of memory. Tried to allocate 2.00 MiB."),
            H200,
            ["no memory left", "nvidia-smi", "TRITON_INTERPRET=1"],
        ),
        (
            ValueError("Something new. And more of it."),
            H200,
            ["failed on NVIDIA H200", "triton 3.6.0", "ValueError: Something new."],
        ),
    ],
)
def test_a_failing_self_test_is_explained(fresh, error, device, words):
    fresh.facts = Facts(device=device, **CUDA)
    fresh.result = error
    with pytest.raises(SetupError) as caught:
        runtime.setup()
    for word in words:
        assert word in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.__cause__ is error


def test_the_numpy_message_is_not_given_where_numpy_is_not_to_blame(fresh):
    fresh.versions["numpy"] = "2.3.0"
    fresh.result = interpreter_error("only 0-dimensional arrays can be converted")
    with pytest.raises(SetupError) as caught:
        runtime.setup()
    assert "too new" not in str(caught.value)


def test_a_wrong_result_is_shown_beside_the_right_one(fresh):
    fresh.result = [1.0, 9.0]
    with pytest.raises(SetupError, match=r"gave \[1\.0, 9\.0\] where \[1\.0, 2\.0\] is right"):
        runtime.setup()


def test_a_notebook_shows_the_message_and_no_traceback():
    assert SetupError("do this")._render_traceback_() == ["SetupError: do this"]


# What is found out about the machine


def fake_torch(device: Device | None = None, said: str = "", hip: str | None = None):
    """A torch that has this GPU, warns when asked for one, and knows no more."""

    def is_available() -> bool:
        if said:
            warnings.warn(said, stacklevel=2)
        return device is not None

    def get_device_properties(index: int):
        assert index == 0
        return types.SimpleNamespace(
            name=device.name,
            major=device.capability[0],
            minor=device.capability[1],
            total_memory=device.memory_bytes,
            shared_memory_per_block=49_152,
            shared_memory_per_block_optin=0 if hip else device.shared_memory_per_block,
        )

    return types.SimpleNamespace(
        __version__="2.11.0",
        version=types.SimpleNamespace(cuda=None if hip else "13.0", hip=hip),
        cuda=types.SimpleNamespace(
            is_available=is_available, get_device_properties=get_device_properties
        ),
    )


@pytest.fixture
def torch_is(monkeypatch):
    """Put a fake torch in the place of the real one, on a machine without a driver."""

    def use(torch, driver=None):
        monkeypatch.setattr(probe, "_import_torch", lambda: torch)
        monkeypatch.setattr(probe, "_driver_cuda_version", lambda: driver)

    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.delenv("COLAB_RELEASE_TAG", raising=False)
    return use


def test_the_gpu_is_read_from_torch_with_its_opt_in_limit(torch_is):
    torch_is(fake_torch(H200))
    facts = probe.probe()
    assert facts.device == H200
    assert (facts.torch_version, facts.torch_cuda, facts.torch_hip) == ("2.11.0", "13.0", None)
    assert facts.platform == sys.platform and not facts.in_colab


def test_without_an_opt_in_limit_the_plain_one_counts(torch_is):
    torch_is(fake_torch(MI300X, hip="7.1"))
    assert probe.probe().device.shared_memory_per_block == 49_152


def test_what_torch_warns_of_is_kept_and_not_shown(torch_is, capsys, recwarn):
    said = "CUDA initialization: The NVIDIA driver on your system is too old (found version 12020)."
    torch_is(fake_torch(said=said), driver=(12, 2))
    facts = probe.probe()
    assert facts.warnings == (said,) and facts.driver_cuda == (12, 2) and facts.device is None
    assert len(recwarn) == 0 and capsys.readouterr() == ("", "")
    assert "update the driver" in decide(facts).notes[0]


def test_warnings_on_other_things_are_dropped(torch_is, recwarn):
    torch_is(fake_torch(said="Failed to initialize NumPy"))
    assert probe.probe().warnings == ()
    assert len(recwarn) == 0


def test_a_gpu_that_fails_when_asked_counts_as_none(torch_is):
    torch = fake_torch(H200)

    def fail(index):
        raise RuntimeError("CUDA error: device busy")

    torch.cuda.get_device_properties = fail
    torch_is(torch, driver=(13, 0))
    facts = probe.probe()
    assert facts.device is None and facts.warnings == ("CUDA error: device busy",)


@pytest.mark.parametrize(
    ("value", "wanted"),
    [("1", True), ("true", True), ("ON", True), ("yes", True), ("0", False), ("", False)],
)
def test_the_variable_is_read_as_triton_reads_it(torch_is, monkeypatch, value, wanted):
    torch_is(fake_torch())
    monkeypatch.setenv("TRITON_INTERPRET", value)
    assert probe.probe().interpreter_wanted is wanted


@pytest.mark.parametrize(
    ("there", "cxx", "missing"),
    [
        (["g++"], None, None),
        ([], None, "g++"),
        # Inductor tries no other name on Linux.
        (["c++", "clang++"], None, "g++"),
        (["clang++"], "clang++", None),
        (["g++"], "clang++", "clang++"),
    ],
)
def test_the_cxx_compiler_is_looked_for_as_torch_looks(
    torch_is, monkeypatch, tmp_path, there, cxx, missing
):
    torch_is(fake_torch())
    for name in there:
        (tmp_path / name).touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    if cxx:
        monkeypatch.setenv("CXX", cxx)
    assert probe.probe().missing_cxx == missing


def test_colab_and_hidden_gpus_are_read_from_the_environment(torch_is, monkeypatch):
    torch_is(fake_torch())
    assert not probe.probe().gpus_hidden
    monkeypatch.setenv("COLAB_RELEASE_TAG", "release-colab")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    facts = probe.probe()
    assert facts.in_colab and facts.gpus_hidden


def test_how_triton_was_imported_is_read_from_its_functions(monkeypatch):
    monkeypatch.delitem(sys.modules, "triton.language", raising=False)
    assert probe.how_triton_was_imported() is None
    for type_name, expected in [
        ("JITFunction", "compiled"),
        ("InterpretedFunction", "interpreted"),
    ]:
        language = types.SimpleNamespace(cdiv=type(type_name, (), {})())
        monkeypatch.setitem(sys.modules, "triton.language", language)
        assert probe.how_triton_was_imported() == expected


def test_how_numba_was_imported_is_read_from_its_configuration(monkeypatch):
    monkeypatch.delitem(sys.modules, "numba.cuda", raising=False)
    assert probe.how_numba_was_imported() is None
    for value, expected in [(0, "compiled"), (1, "simulated")]:
        cuda = types.SimpleNamespace(config=types.SimpleNamespace(ENABLE_CUDASIM=value))
        monkeypatch.setitem(sys.modules, "numba.cuda", cuda)
        assert probe.how_numba_was_imported() == expected


def test_numba_that_is_imported_already_is_told_to_simulate(monkeypatch):
    waiting = []
    monkeypatch.setenv("NUMBA_ENABLE_CUDASIM", "0")
    config = types.SimpleNamespace(ENABLE_CUDASIM=0)
    monkeypatch.setitem(sys.modules, "numba.core.config", config)
    monkeypatch.setattr(runtime, "when_imported", lambda name, action: waiting.append(name))
    runtime._simulate_cuda()
    assert os.environ["NUMBA_ENABLE_CUDASIM"] == "1" and config.ENABLE_CUDASIM == 1
    assert waiting == ["numba.cuda"]


def test_the_driver_is_asked_for_its_cuda_version(monkeypatch):
    class Library:
        @staticmethod
        def cuDriverGetVersion(pointer):  # noqa: N802
            pointer._obj.value = 12_080
            return 0

    monkeypatch.setattr(probe.ctypes, "CDLL", lambda name: Library)
    monkeypatch.setattr(probe.Path, "exists", lambda self: True)
    assert probe._driver_cuda_version() == (12, 8)
    monkeypatch.setattr(probe.Path, "exists", lambda self: False)
    assert probe._driver_cuda_version() is None


def test_a_driver_without_its_library_is_none(monkeypatch):
    def fail(name):
        raise OSError("libcuda.so.1: cannot open shared object file")

    monkeypatch.setattr(probe.ctypes, "CDLL", fail)
    monkeypatch.setattr(probe.Path, "exists", lambda self: True)
    assert probe._driver_cuda_version() is None


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (ModuleNotFoundError("No module named 'torch'", name="torch"), "PyTorch is missing"),
        (OSError("libcudart.so.13: cannot open"), "cannot be imported: libcudart"),
    ],
)
def test_a_torch_that_cannot_be_imported_is_explained(monkeypatch, error, message):
    def fail(name):
        raise error

    monkeypatch.setattr(probe.importlib, "import_module", fail)
    with pytest.raises(SetupError, match=message):
        probe.probe()


def test_a_triton_that_cannot_be_imported_is_explained(monkeypatch):
    def fail(name):
        raise ImportError("libtriton.so: undefined symbol")

    monkeypatch.setattr(runtime.importlib, "import_module", fail)
    with pytest.raises(SetupError, match="Triton is installed but cannot be imported: libtriton"):
        runtime._versions(Facts())


@pytest.mark.parametrize(
    ("cpuinfo", "name"),
    [
        ("processor : 0\nmodel name\t: AMD EPYC  9B14\nflags : x\n", "AMD EPYC 9B14"),
        ("processor : 0\nBogoMIPS : 50.00\n", "aarch64"),
    ],
)
def test_the_name_of_the_cpu(monkeypatch, cpuinfo, name):
    monkeypatch.setattr(probe.Path, "read_text", lambda self, **kwargs: cpuinfo)
    monkeypatch.setattr(probe.platform, "processor", lambda: "")
    monkeypatch.setattr(probe.platform, "machine", lambda: "aarch64")
    assert probe.cpu_name() == name


# What a Machine answers


def test_best_dtype_follows_the_compute_capability():
    torch = pytest.importorskip("torch")
    assert machine_like(H200).best_dtype() is torch.bfloat16
    assert machine_like(H200, compute_capability=(8, 0)).best_dtype() is torch.bfloat16
    assert machine_like(T4).best_dtype() is torch.float16
    assert machine_like().best_dtype() is torch.float32
    amd = machine_like(MI300X, compute_capability=None)
    assert amd.best_dtype() is torch.bfloat16
    unknown = machine_like(MI300X, compute_capability=None, name="AMD Radeon")
    assert unknown.best_dtype() is torch.float16


def test_tiles_fit_up_to_the_limit():
    for device, limit in [(H200, 227 * 1024), (T4, 64 * 1024)]:
        machine = machine_like(device)
        assert machine.tile_fits(limit) and machine.tile_fits(0)
        assert not machine.tile_fits(limit + 1)
    with pytest.raises(ValueError, match="size in bytes"):
        machine_like().tile_fits(-1)


def test_the_interpreter_takes_the_limit_of_the_reference_gpu(fresh):
    limit = gpus.gpu("h200").shared_memory_per_block
    assert runtime.machine().shared_memory_per_block == limit == 227 * 1024


def test_scale_chooses_by_mode():
    assert machine_like(H200).scale(2**28, 2**12) == 2**28
    assert machine_like().scale(2**28, 2**12) == 2**12


def test_the_gpu_of_the_table():
    assert machine_like(H200).gpu is gpus.gpu("h200")
    assert machine_like(T4).gpu is gpus.gpu("t4")
    assert machine_like(H200, name="NVIDIA Something").gpu is None
    assert machine_like(name="NVIDIA H200").gpu is None


def test_a_machine_cannot_be_changed_and_can_be_a_key():
    with pytest.raises(AttributeError):
        machine_like().mode = "gpu"  # type: ignore[misc]
    assert {machine_like(H200): 1}[machine_like(H200)] == 1


def test_the_versions_of_triton_are_those_of_pyproject():
    data = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))
    (entry,) = [text for text in data["project"]["dependencies"] if text.startswith("triton")]
    assert entry.split(";")[0].strip() == diagnosis.TRITON_REQUIREMENT
    low, high = diagnosis.TRITON_REQUIREMENT.removeprefix("triton>=").split(",<")
    assert diagnosis.version_numbers(low) == diagnosis.TRITON_OLDEST
    assert diagnosis.version_numbers(high) == diagnosis.TRITON_TOO_NEW


# The real thing, in a process of its own


def test_setup_of_a_real_process_prints_a_line_and_nothing_else():
    result = in_child(
        """
        import course_utils
        machine = course_utils.setup()
        assert course_utils.setup() is machine
        """
    )
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    first, second = result.stdout.splitlines()
    assert first == second
    assert first.startswith("Interpreter mode on ")
    assert "CUDA_VISIBLE_DEVICES hides every GPU" in first


def test_a_real_late_import_is_recognised_whatever_the_variable_says():
    result = in_child(
        """
        import os
        import triton.language
        os.environ["TRITON_INTERPRET"] = "1"
        import course_utils
        course_utils.setup()
        """
    )
    assert result.returncode == 1 and result.stdout == ""
    last = result.stderr.splitlines()[-1]
    assert "triton was imported before course_utils.setup()" in last
    assert last.endswith("Restart the kernel and run the setup cell first.")


def test_a_real_early_import_with_the_variable_set_is_fine():
    result = in_child(
        """
        import triton.language
        import course_utils
        print(course_utils.machine().mode)
        """,
        TRITON_INTERPRET="1",
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout == "interpreter\n"


def test_a_kernel_that_computes_something_else_is_caught_by_the_real_self_test():
    result = in_child(
        """
        import course_utils, course_utils.runtime
        original = course_utils.runtime._run_self_test

        def mend(device):
            from course_utils import self_test
            self_test.N_TERMS = 7   # one more turn of the loop than the expected values have
            return original(device)

        course_utils.runtime._run_self_test = mend
        course_utils.setup()
        """
    )
    assert result.returncode == 1 and result.stdout == ""
    assert "The self-test kernel ran but is wrong: it gave [34.0, 38.0" in result.stderr
