"""What lesson 05's wrong kernels did on a GPU: the record, its loader, and how it is made."""

import copy
import itertools
import json

import pytest

from course_utils.authoring import incident_cases, notebooks
from course_utils.authoring import incidents as making
from course_utils.records import NoRecordError, RecordError, incidents

LESSON = notebooks.ROOT / "notebooks" / "05_when_kernels_go_wrong.ipynb"

ENTRY = {
    "name": "missing_mask",
    "mistake": 1,
    "kernels": {"double": "0123456789abcdef"},
    "symptom": "neighbour overwritten",
    "says": "No error; 128 numbers of another tensor were overwritten.",
    "seen": {"changed": 128},
    "excerpt": ["one line", "another"],
}
DOCUMENT = {
    "schema": 1,
    "gpu": "Sample GPU",
    "gpu_key": "sample",
    "driver": "1",
    "torch": "2.11.0+cu130",
    "triton": "3.6.0",
    "cuda": "13.0",
    "python": "3.12.3",
    "date": "2026-11-29",
    "git_revision": "abc",
    "incidents": [
        ENTRY,
        {**ENTRY, "name": "refused", "mistake": 2, "symptom": "compile error"},
        {**ENTRY, "name": "seen_by_a_tool", "mistake": 1, "symptom": "device error"},
        {**ENTRY, "name": "gap", "mistake": None, "symptom": "compile error"},
    ],
}


@pytest.fixture
def folder(tmp_path):
    incidents.write(copy.deepcopy(DOCUMENT), tmp_path / "sample.json")
    return tmp_path


def test_what_is_written_is_read(folder):
    loaded = incidents.load("sample", folder)
    assert list(loaded) == ["missing_mask", "refused", "seen_by_a_tool", "gap"]
    assert loaded["missing_mask"].seen == {"changed": 128}
    assert loaded.label == "recorded on Sample GPU, torch 2.11.0, triton 3.6.0, 2026-11-29"
    assert [path.name for path in folder.iterdir()] == ["sample.json"]


def test_a_mistake_counts_once_and_by_its_plain_launch(folder):
    loaded = incidents.load("sample", folder)
    assert (loaded.mistakes, loaded.loud) == (2, 1)


def test_an_incident_says_what_where_and_with_what(folder):
    text = str(incidents.load("sample", folder)["missing_mask"])
    assert text.startswith("No error; 128 numbers")
    assert "recorded on Sample GPU" in text
    assert text.splitlines()[-2:] == ["  one line", "  another"]


def test_unknown_names_are_answered_with_those_that_there_are(folder):
    with pytest.raises(RecordError, match="no incident 'mask' was recorded; there are: missing_m"):
        incidents.load("sample", folder)["mask"]
    with pytest.raises(NoRecordError, match="no incidents are recorded for 't4'; there are: sam"):
        incidents.load("t4", folder)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("symptom", "odd", "symptom: expected one of"),
        ("says", "", "says: expected a text"),
        ("mistake", 0, "mistake: expected a number from 1 on"),
        ("seen", {"x": float("nan")}, "seen.x: write nan as a text"),
        ("excerpt", "a line", "excerpt: expected a list"),
        ("kernels", None, "kernels: expected an object"),
        ("more", 1, "expected an object with"),
    ],
)
def test_an_entry_that_is_not_as_it_must_be_is_refused(tmp_path, key, value, message):
    document = copy.deepcopy(DOCUMENT)
    document["incidents"][1][key] = value
    with pytest.raises(RecordError, match=rf"incidents\[1\].*{message}"):
        incidents.write(document, tmp_path / "sample.json")
    assert not list(tmp_path.iterdir())


def test_two_incidents_of_one_name_are_refused():
    document = {**DOCUMENT, "incidents": [ENTRY, ENTRY]}
    with pytest.raises(RecordError, match="recorded twice: missing_mask"):
        incidents.validate(document)


def test_a_fingerprint_is_of_the_words():
    kernel = "@jit\ndef f(x):\n    return x + 1\n"
    same = "@jit\ndef f(\n    x\n):\n    # a comment\n    return  x+1"
    assert incidents.fingerprint(kernel) == incidents.fingerprint(same)
    for other in ("x - 1", "x + 2"):
        assert incidents.fingerprint(kernel) != incidents.fingerprint(
            kernel.replace("x + 1", other)
        )
    deeper = "def f(x):\n    if x:\n        x = 1\n        x = 2\n"
    shallower = "def f(x):\n    if x:\n        x = 1\n    x = 2\n"
    assert incidents.fingerprint(deeper) != incidents.fingerprint(shallower)


# -- making it ----------------------------------------------------------------------------------


def test_kernels_are_found_with_the_constants_they_use(tmp_path, write_notebook):
    path = write_notebook(
        tmp_path / "lesson.ipynb",
        "# Title",
        "TILE = 256\nOTHER = 1\nx = 3\n\n\n@triton.jit\ndef f(a_ptr):\n    return TILE",
        "W = tl.constexpr(8)\n\n\n@triton.jit\ndef g(x):\n    return W\n\n\ndef host():\n    pass",
        "%matplotlib inline",
    )
    sources = making.kernel_sources(path)
    assert list(sources) == ["TILE", "W", "f", "g"]
    assert sources["f"] == "@triton.jit\ndef f(a_ptr):\n    return TILE"
    compile(making.module_text(sources), "kernels", "exec")


def test_what_only_holds_for_one_run_is_left_out():
    line = "    at f+0x1d0 in /scratch/run/kernels.py:14, address 0x7f1c00000fa0"
    assert making.clean(line) == "at f+0x1d0 in kernels.py:14, address 0x…"


def test_of_the_sanitizers_output_the_first_error_is_kept():
    lines = [
        "torch prints something",
        "========= COMPUTE-SANITIZER",
        "========= Invalid __global__ write of size 4 bytes",
        "=========     at f+0x1d0 in /scratch/kernels.py:14",
        "=========     by thread (106,0,0) in block (3,0,0)",
        "=========     Saved host backtrace up to driver entry point at kernel launch time",
        "=========         Host Frame: main [0x123456] in libcuda.so",
        "========= ",
        "========= Invalid __global__ write of size 4 bytes",
        "========= ERROR SUMMARY: 24 errors",
    ]
    assert making.sanitizer_excerpt(lines) == [
        "Invalid __global__ write of size 4 bytes",
        "at f+0x1d0 in kernels.py:14",
        "by thread (106,0,0) in block (3,0,0)",
        "ERROR SUMMARY: 24 errors",
    ]


def test_the_sanitizers_errors_are_counted_by_kind():
    write = "========= Invalid __global__ write of size 8 bytes"
    lines = [
        "========= COMPUTE-SANITIZER",
        write,
        "=========     at f+0x1d0 in /scratch/kernels.py:14",
        "========= ",
        write,
        "=========     Access to 0x7f1c00000fa0 is out of bounds",
        "========= Program hit an error on CUDA API call to cuStreamSynchronize",
        "=========     Saved host backtrace up to driver entry point at error",
        "========= Target application returned an error",
        "========= ERROR SUMMARY: 3 errors",
        "torch prints something",
    ]
    assert making.sanitizer_kinds(lines) == {
        "Invalid __global__ write of size 8 bytes": 2,
        "Program hit an error on CUDA API call to cuStreamSynchronize": 1,
    }


def ncu_page(durations, unit="ns"):
    """A page of ncu's as CSV, among other lines: a duration and a count per launch."""
    names = '"ID","Kernel Name","gpu__time_duration.sum","smsp__inst_executed_op_global_ld.sum"'
    launches = [f'"{i}","gelu","{time:,}","{8 * i:,}"' for i, time in enumerate(durations)]
    return "\n".join(
        ["==PROF== Connected", names, f'"","","{unit}","inst"', *launches, "incident: 1"]
    )


def test_of_each_case_under_ncu_the_median_launch_is_kept():
    times = [[1000 * case + shift for shift in (9, 1, 2, 3, 4, 5, 900)] for case in (120, 121, 129)]
    found = making.ncu_medians(ncu_page(itertools.chain(*times)))
    assert list(found) == list(making.METRICS)
    assert found["gpu__time_duration.sum"] == [120_004, 121_004, 129_004]
    assert found["smsp__inst_executed_op_global_ld.sum"] == [8 * 3, 8 * 10, 8 * 17]
    assert found["dram__bytes_read.sum"] == [None, None, None]


def test_what_ncu_says_otherwise_is_not_taken_for_durations():
    right = range(100, 100 + len(incident_cases.NCU_CASES) * incident_cases.NCU_REPEATS)
    assert making.ncu_medians(ncu_page(right)) is not None
    assert making.ncu_medians(ncu_page(right, "us")) is None
    assert making.ncu_medians(ncu_page(right[1:])) is None
    assert making.ncu_medians("==ERROR== no permission") is None


def test_there_is_one_case_for_each_of_ten_mistakes():
    numbers = [case.mistake for case in incident_cases.CASES.values() if case.mistake]
    assert sorted(set(numbers)) == list(range(1, 11))


# -- the record and the lesson ------------------------------------------------------------------


def recorded_files():
    return sorted(incidents.FOLDER.glob("*.json"))


@pytest.mark.parametrize("path", recorded_files(), ids=lambda path: path.stem)
def test_each_record_is_valid_and_whole(path):
    document = json.loads(path.read_text(encoding="utf-8"))
    incidents.validate(document, path.name)
    assert document["gpu_key"] == path.stem
    names = [entry["name"] for entry in document["incidents"]]
    tools = ["memcheck_cached", "memcheck", "initcheck", "ncu"]
    assert names == [*incident_cases.CASES, *tools]
    assert not [entry["name"] for entry in document["incidents"] if not entry["kernels"]]


@pytest.mark.parametrize("path", recorded_files(), ids=lambda path: path.stem)
def test_what_was_recorded_is_what_the_lesson_shows(path):
    if not LESSON.exists():
        pytest.skip("the lesson is not there yet")
    sources = making.kernel_sources(LESSON)
    shown = {name: incidents.fingerprint(source) for name, source in sources.items()}
    for incident in incidents.load(path.stem).values():
        for kernel, fingerprint in incident.kernels.items():
            assert shown.get(kernel) == fingerprint, (
                f"{kernel} has changed since {incident.name} was recorded: run "
                "`python -m course_utils.authoring.incidents` on that GPU again"
            )
