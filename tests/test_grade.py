"""Notebooks without nbgrader's metadata: what they earn, what is said of them, how they cheat."""

import contextlib
import json
import os
import subprocess
import sys
import time
from fractions import Fraction

import pytest

import course_utils

course_utils.machine()  # decides how kernels run, before triton is imported

from course_utils import checks, course_map  # noqa: E402
from course_utils.checks import variants  # noqa: E402
from course_utils.checks.draw import Case  # noqa: E402
from course_utils.checks.function_task import FunctionTask  # noqa: E402
from course_utils.checks.question_task import Choice, Number, QuestionTask  # noqa: E402
from course_utils.grade import GradeError, Report, Result, grade, process, sandbox  # noqa: E402
from course_utils.grade import notebook as notebooks  # noqa: E402
from course_utils.grade.__main__ import main  # noqa: E402

IMPORTS = "import torch, os, sys, time\nfrom course_utils import checks"
DOUBLE = "FACTOR = 2\n\ndef double(number):\n    return FACTOR * number"
WRONG = "def double(number):\n    return number + 1"
TRAFFIC = (
    'traffic = {"bytes": None, "tile": None}\ntraffic["bytes"] = 3 * 4\ntraffic["tile"] = "big"'
)
NO_TRAFFIC = 'traffic = {"bytes": 99, "tile": "small"}'


def double(number):
    total = number
    total += number
    return total


def triple(number):
    return 3 * number


def function_task(solution, factor, lesson):
    return FunctionTask(
        solution.__name__,
        lesson,
        f"The {solution.__name__}",
        minutes=1,
        difficulty=1,
        place=1,
        solution=(solution,),
        reference=lambda number: factor * number,
        cases=lambda draw: [Case("a number", (draw.number(1, 2),))],
    )


TASKS = (
    function_task(double, 2, "04"),
    QuestionTask(
        "traffic",
        "04",
        "Traffic",
        minutes=1,
        difficulty=1,
        place=2,
        points=3,
        questions=(
            Number("bytes", "how many bytes", truth=lambda: 12, unit="bytes"),
            Choice("tile", "which", options={"big": "big", "small": "small"}, right="big"),
        ),
    ),
    function_task(triple, 3, "05"),
)


@pytest.fixture
def two_lessons(monkeypatch):
    """Three small tasks in place of the course's own."""
    known = {task.name: task for task in TASKS}
    monkeypatch.setattr(checks, "tasks", lambda: TASKS)
    monkeypatch.setattr(checks, "task", known.__getitem__)


@pytest.fixture
def graded(two_lessons, write_notebook, tmp_path):
    """A function that grades a notebook of cells."""

    def of(*cells, name="04_first_triton_kernels.ipynb", time_limit=20, **kwargs):
        return grade(write_notebook(tmp_path / name, *cells), time_limit=time_limit, **kwargs)

    return of


def outcome(report):
    """Task -> state and points."""
    return {result.task: (result.state, result.points) for result in report.results}


def result_of(report, task):
    return next(result for result in report.results if result.task == task)


# -- what answers earn ----------------------------------------------------------------------------


def test_right_answers_earn_their_points(graded):
    report = graded("# Title", IMPORTS, DOUBLE, TRAFFIC)
    assert outcome(report) == {"double": ("passed", 2), "traffic": ("passed", 3)}
    assert (report.points, report.possible, report.lesson, report.notes) == (5, 5, "04", ())
    assert "04_first_triton_kernels.ipynb, lesson 04: 5 of 5 points" in report.text


def test_wrong_open_and_missing_answers_are_told_apart(graded):
    report = graded("def double(number):\n    pass")
    assert outcome(report) == {"double": ("not attempted yet", 0), "traffic": ("missing", 0)}
    assert result_of(report, "traffic").reason == "nothing here is called traffic"
    report = graded(WRONG, NO_TRAFFIC)
    assert outcome(report) == {"double": ("failed", 0), "traffic": ("failed", 0)}
    assert "is wrong for a number" in report.text


def test_the_last_of_several_definitions_counts_and_is_said_to(graded):
    report = graded(DOUBLE, TRAFFIC, WRONG)
    assert outcome(report) == {"double": ("failed", 0), "traffic": ("passed", 3)}
    notes = result_of(report, "double").notes
    assert notes == ("defined in code cells 1 and 3: the last counts",)
    report = graded(WRONG, NO_TRAFFIC, DOUBLE, TRAFFIC)
    assert report.points == 5
    assert "defined in code cells 2 and 4: the last counts" in report.text


@pytest.mark.parametrize(
    ("cell", "found", "passes"),
    [
        (DOUBLE.replace("double", "duoble"), "duoble", True),
        ("def mine(number):\n    both = number\n    both += number\n    return both", "mine", True),
        (WRONG.replace("double", "double_"), "double_", False),
    ],
)
def test_a_renamed_answer_is_found_and_named(graded, cell, found, passes):
    result = result_of(graded(cell, TRAFFIC), "double")
    assert (result.state, result.points) == ("missing", 0)
    assert result.reason == f"found {found}, did you rename double?"
    word = "would pass" if passes else "would not pass"
    assert result.notes == (f"under the name double it {word}, for 2 points",)


@pytest.mark.parametrize(
    "cell",
    [
        "def mine(x):\n    total = x\n    total += x\n    return total",
        "def mine(number):\n    return [word for word in str(number).split()]",
        "@triton.jit\ndef double_(number):\n    pass",
        "def triple(number):\n    total = number\n    total += number\n    return total",
    ],
)
def test_what_only_looks_a_little_alike_is_no_renamed_answer(graded, cell):
    result = result_of(graded("doubly_so = 1", cell, TRAFFIC, which="04"), "double")
    assert result.reason == "nothing here is called double"


def test_an_answer_may_be_made_of_many_statements(graded):
    report = graded(
        "from fractions import Fraction\nimport functools as tools",
        "def helper(number):\n    return scale(number)",
        "%%time\ntable = {}\ntable['by'] = 1",
        "if True:\n    table['by'] += 1",
        "class Scale:\n    by = table['by']",
        "def scale(number, *, by=Scale.by):\n    return number * by",
        "@tools.wraps(helper)\ndef double(number):\n    return helper(number)",
        "traffic = dict(tile=' big ')\ndef fill(them):\n    them['bytes'] = Fraction(24, 2)",
        "fill(traffic)",
    )
    assert report.points == 5, report.text


def test_numbers_of_libraries_and_texts_are_judged_as_they_are(graded):
    for value in ("torch.tensor(12.)", "'3 * 4 bytes'", "12.0", "__import__('numpy').int32(12)"):
        report = graded("import torch", f"traffic = {{'bytes': {value}, 'tile': 'big'}}")
        assert result_of(report, "traffic").points == 3, value


def test_plain_data_keeps_its_kind_and_nothing_else():
    class Text(str):
        pass

    class Equal(float):
        def __eq__(self, other):
            return True

        __hash__ = float.__hash__

    answers = {
        "a": Text("x"),
        "b": Equal(3),
        "c": [(1, ["x"])],
        "d": ...,
        1: Fraction(1, 2),
        "e": True,
    }
    plain = dict(sandbox._plain(answers))
    assert plain == {"a": "x", "b": 3.0, "c": [[1, ["x"]]], "d": None, 1: 0.5, "e": True}
    types = [str, float, list, type(None), float, bool]
    assert [type(value) for value in plain.values()] == types


# -- which lesson ---------------------------------------------------------------------------------


def test_the_lesson_follows_from_the_name_or_the_answers(graded):
    triple = DOUBLE.replace("double", "triple").replace("2", "3")
    assert graded(triple, name="homework.ipynb").lesson == "05"
    both = graded(DOUBLE, triple, name="Copy of 05_when_kernels_go_wrong (1).ipynb")
    assert (both.lesson, both.points) == ("05", 2)
    assert both.notes == ("it also answers tasks of lesson 04: graded with --lesson",)
    assert graded(DOUBLE.replace("double", "duoble"), name="homework.ipynb").lesson == "04"
    assert graded("def double(number", name="homework.ipynb").lesson == "04"
    assert graded(DOUBLE, name="05_when_kernels_go_wrong.ipynb").lesson == "04"
    report = graded("x = 1", which="4")
    assert outcome(report) == {"double": ("missing", 0), "traffic": ("missing", 0)}


@pytest.mark.parametrize(
    ("which", "words"),
    [
        (None, "answers no task of the course"),
        ("77", "there is no lesson '77'"),
        ("6", "lesson 06 has no tasks; the lessons that have are 04, 05"),
    ],
)
def test_a_notebook_without_tasks_cannot_be_graded(graded, which, words):
    with pytest.raises(GradeError, match=words):
        graded("x = 1", which=which)


# -- what cells do beside -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cell", "note"),
    [
        ("y = 1\nz = undefined\nz.more()", "raised NameError: name 'undefined' is not defined "
         "(in `z = undefined`)"),
        ("import no_such_library", "raised ModuleNotFoundError: No module named 'no_such_library'"),
        ("import sys\nsys.exit(0)", "raised SystemExit: 0 (in `sys.exit(0)`)"),
        ("exit()", "raised SystemExit"),
        ("import os\nos._exit(0)", "ended the process with exit status 0 (in `os._exit(0)`)"),
        ("import os\nos.kill(os.getpid(), 9)", "ended the process by signal SIGKILL"),
        ("input('name?')", "raised EOFError"),
        ("import os\nos.closerange(3, 99)", "ended the process with exit status 1"),
        ("x =", "is left out: it has a syntax error in line 1: invalid syntax"),
        ("return 5", "is left out: it has a syntax error in line 1: 'return' outside function"),
        ("x = 'a\0b'", "is left out: it has a syntax error"),
        ("!pip install x", "`!pip install x` is not run"),
        ("if True:\n    %pip install y", "`%pip install y` is not run"),
        ("files = !ls", "`!ls` is not run"),
        ("%%bash\nrm -rf /", "is not run, for it begins with `%%bash`"),
        ("raise ValueError('one\\ntwo')", "raised ValueError: one (in"),
        ("open('big', 'wb').write(bytes(10**8))", "raised OSError"),
    ],
)  # fmt: skip
def test_a_cell_that_fails_is_named_and_costs_no_points(graded, cell, note):
    report = graded(IMPORTS, cell, DOUBLE, TRAFFIC)
    assert report.points == 5
    (found,) = report.notes
    assert note in found
    assert "code cell 2" in found
    assert f"- {found}" in report.text
    assert found in report.gradescope()["output"]


@pytest.mark.parametrize(
    "cell",
    [
        "%matplotlib inline\nimport matplotlib.pyplot as plt\nplt.plot([1])\nplt.show()",
        "import webbrowser\nwebbrowser.open('page.html')",
        "for _ in range(2000):\n    print('x' * 100_000)",
        "%time z = 1\nassert z == 1",
        "%%capture out\nz = 1",
        "checks.check_double(double)\nchecks.grade_double(double)",
        "display(3)\nget_ipython().run_line_magic('time', 'q = 2')\nq",
        "import threading\nthreading.Thread(target=time.sleep, args=(99,)).start()",
        "pattern = '\\d'",
        "no_such_name.check_double(double)",
        "class Own:\n    pass\nown = Own()\nown.size = 3",
        "assert os.environ['MPLBACKEND'] == 'Agg' and 'DISPLAY' not in os.environ",
        "",
    ],
)
@pytest.mark.filterwarnings("error")
def test_what_is_usual_in_notebooks_is_no_failure(graded, cell):
    report = graded(IMPORTS, DOUBLE, cell, TRAFFIC)
    assert report.points == 5
    assert not [note for note in report.notes if "matplotlib inline" not in note]


def test_an_endless_cell_is_stopped_and_the_answers_are_judged(graded):
    loop = "while True:\n    try:\n        time.sleep(9)\n    except:\n        pass"
    report = graded(IMPORTS, loop, DOUBLE, TRAFFIC, time_limit=1.5)
    assert report.points == 5
    (note,) = report.notes
    assert note == "code cell 2 did not end within 1.5 seconds, and was stopped (in `while True:`)"


@pytest.mark.parametrize(
    ("definition", "words"),
    [
        ("def double(number):\n    while True:\n        pass", "did not end within 1.5 seconds"),
        ("while True:\n    double = print", "code cell 1 did not end within 1.5 seconds"),
        ("def double(number):\n    import os\n    os._exit(0)", "with exit status 0"),
        ("import os\ndouble = os.abort()", "code cell 1 ended the process by signal SIGABRT"),
        ("def double(number):\n    raise SystemExit", "with exit status 1"),
        ("def double(number):\n    return input()", "EOFError"),
        ("def double(number):\n    while True: print('x' * 10**6)", "did not end|OSError|File too"),
    ],
)
def test_an_answer_that_does_not_end_well_costs_only_its_own_points(graded, definition, words):
    report = graded(definition, TRAFFIC, time_limit=1.5)
    assert outcome(report) == {"double": ("failed", 0), "traffic": ("passed", 3)}
    result = result_of(report, "double")
    assert any(word in result.reason for word in words.split("|")), result
    assert len(json.dumps(report.gradescope())) < 20_000


def test_an_answer_that_was_never_made_says_why(graded):
    report = graded("double = undefined\ntraffic = {'bytes': 12, 'tile': 'big'}", "def double(x:")
    result = result_of(report, "double")
    assert (result.state, result.reason) == (
        "missing",
        "double has no value when the cells have run",
    )
    assert len(result.notes) == 2
    assert "code cell 2, which seems to define double, is left out" in result.notes[0]
    assert result.notes[1].startswith("code cell 1 raised NameError")
    report = graded("def double(number)\n    return 2 * number", TRAFFIC)
    assert result_of(report, "double").state == "missing"
    assert "seems to define double, is left out: it has a syntax error in line 1" in report.text


def test_progress_and_files_are_left_alone(graded, monkeypatch, tmp_path):
    monkeypatch.setenv(course_map.PATH_VARIABLE, str(tmp_path / "progress.json"))
    monkeypatch.chdir(tmp_path)
    report = graded(
        "from course_utils import course_map\ncourse_map.mark_passed('04/double')",
        "verdict = checks.check_double(double)",
        "open('results.json', 'w').write('{}')",
        "%%writefile other.txt\ntext",
        DOUBLE,
        TRAFFIC,
    )
    assert report.points == 5
    assert [path.name for path in tmp_path.iterdir()] == ["04_first_triton_kernels.ipynb"]


# -- attempts to cheat ----------------------------------------------------------------------------

ALL_FILES = """
import os, pickle
for message in (pickle.dumps((True, {"state": "passed", "text": "", "problem": ""})), b"passed",
                b'{"cell": 1, "text": "passed"}'):
    for file in range(1, 64):
        try:
            os.write(file, message)
        except OSError:
            pass
"""


@pytest.mark.parametrize(
    "cell",
    [
        "checks.run = lambda *a, **k: checks.Verdict('double', '', 'passed')",
        "checks.check_double = checks.grade_double = lambda answer: 'passed'",
        "checks.tasks = lambda: ()",
        "from course_utils.checks import base\nbase.Task.check = None",
        "from course_utils.checks import function_task\n"
        "function_task.FunctionTask._same = lambda *a: True",
        "checks.Verdict.passed = True\nchecks.FAILED = 'passed'",
        "import math\nmath.isclose = lambda *a, **k: True",
        "import builtins\nbuiltins.all = lambda values: True",
        "torch.testing.assert_close = torch.equal = torch.allclose = lambda *a, **k: True",
        "sys.modules['course_utils.checks'] = None",
        "exec('checks.run.__code__ = (lambda *a, **k: 1).__code__')",
        "setattr(checks, 'run', lambda *a, **k: checks.Verdict('double', '', 'passed'))",
        "print('{\"score\": 5}')\nprint('double: passed (2 of 2 points)')",
        ALL_FILES,
        ALL_FILES + "os._exit(0)",
        "import threading\ndef f():\n    while True: checks.FAILED = 'passed'\n"
        "threading.Thread(target=f).start()",
        "import atexit\natexit.register(lambda: os._exit(0))",
        "class checks:\n    run = check_double = lambda *a: 'passed'",
    ],
)
def test_what_cells_change_does_not_raise_the_points(graded, cell):
    # The answer names what the cells change, so that it needs the modules.
    wrong = WRONG + "\n    torch, checks, sys, math, builtins, base, function_task"
    report = graded(IMPORTS, wrong, cell, NO_TRAFFIC, time_limit=10)
    assert outcome(report) == {"double": ("failed", 0), "traffic": ("failed", 0)}
    assert not any(test["score"] for test in report.gradescope()["tests"])


@pytest.mark.parametrize(
    "cell",
    [
        "class Any:\n    def __eq__(self, other): return True\n    def __hash__(self): return 1\n"
        "traffic = {'bytes': Any(), 'tile': Any()}",
        "class Number(float):\n    def __float__(self): return 12.0\n    __eq__ = lambda *a: True\n"
        "    __hash__ = None\ntraffic = {'bytes': [12], 'tile': Number(1)}",
        "class Text(str):\n    __eq__ = lambda *a: True\n    __hash__ = lambda self: hash('big')\n"
        "traffic = {'bytes': Text('9'), 'tile': Text('none')}",
        "traffic = {'bytes': 1, 'tile': 'small'}\n"
        "setattr(checks, 'run', lambda *a, **k: (traffic, checks.Verdict('', '', 'passed'))[1])",
        "import math\ntraffic = {'bytes': 1, 'tile': 'big'}\n"
        "setattr(math, 'isclose', lambda *a, **k: bool(traffic))",
        ALL_FILES.replace("import os", "traffic = {}\nimport os"),
    ],
)
def test_a_dict_cannot_deceive_the_judge(graded, cell):
    report = graded(IMPORTS, DOUBLE, cell)
    assert result_of(report, "traffic").points == 0


@pytest.mark.parametrize("end", ["", "    os._exit(0)\n"])
def test_a_function_that_writes_to_every_file_earns_nothing(graded, end):
    body = (
        ALL_FILES.strip()
        .replace("\n", "\n    ")
        .replace("pickle.dumps(", "str(")
        .replace('"problem": ""})', '"problem": ""})).encode(')
    )
    report = graded("import os", f"def double(number):\n    {body}\n{end}", TRAFFIC)
    assert outcome(report)["double"] == ("failed", 0)


def test_only_what_is_signed_comes_back():
    def work(send):
        send(first=1)
        for number in range(64):
            with contextlib.suppress(OSError):
                os.write(number, b'{"forged": 1}\n' + b"0" * 64 + b' {"forged": 2}\n')
        send(second="\ud800 2")
        os._exit(3)

    ended = process.run(work, 20)
    assert ended.messages == ({"first": 1}, {"second": "\ud800 2"})
    assert ended.cause == "ended the process with exit status 3"


def test_a_fork_is_ended_with_what_it_started(tmp_path):
    def work(send):
        send(process=subprocess.Popen(["sleep", "60"]).pid)
        time.sleep(60)

    ended = process.run(work, 0.5)
    assert ended.cause == "did not end within 0.5 seconds, and was stopped"
    for _ in range(100):
        if not os.path.exists(f"/proc/{ended.messages[0]['process']}"):
            break
        time.sleep(0.05)
    else:
        pytest.fail("the process that it started still runs")


def test_a_change_of_a_module_is_reported(graded):
    report = graded(IMPORTS, "torch.equal = print\ntorch.manual_seed(0)", DOUBLE, TRAFFIC)
    assert report.notes == ("code cell 2 sets `torch.equal`, which the checks do not see",)


# -- files, JSON and the command ------------------------------------------------------------------


def notebook_text(**changes):
    cell = {"cell_type": "code", "source": [*DOUBLE.splitlines(keepends=True)], "metadata": {}}
    return json.dumps({"nbformat": 4, "metadata": {}, "cells": [cell]} | changes)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "there is no file"),
        (b"", "not JSON"),
        (b"{'cells': []}", "not JSON"),
        (b"[" * 10**5, "not JSON"),
        (b"[]", "no notebook: without cells"),
        (b'{"cells": 3}', "no notebook: without cells"),
        (b'{"worksheets": []}', "a notebook of an old format"),
        (
            notebook_text(cells=[{"cell_type": "markdown", "source": "x"}]).encode(),
            "without a code",
        ),
        (notebook_text().replace("number", "n\u00fcmber").encode("latin-1"), "is not UTF-8 text"),
    ],
)
def test_what_is_no_notebook_is_refused_in_one_line(two_lessons, tmp_path, capsys, content, words):
    path = tmp_path / "file.ipynb"
    if content is not None:
        path.write_bytes(content)
    assert main([str(path), "--json", str(tmp_path / "out.json")]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    (line,) = printed.err.splitlines()
    assert line.startswith("could not be graded: ")
    assert words in line
    assert not (tmp_path / "out.json").exists()


def test_other_encodings_of_unicode_are_read(two_lessons, tmp_path):
    for encoding in ("utf-8-sig", "utf-16"):
        path = tmp_path / f"{encoding}.ipynb"
        path.write_text(notebook_text().replace("FACTOR", "Fäctor"), encoding=encoding)
        assert grade(path).points == 2


def test_gradescope_gets_what_it_reads(two_lessons, write_notebook, tmp_path, capsys):
    path = write_notebook(tmp_path / "04_first_triton_kernels.ipynb", DOUBLE, NO_TRAFFIC)
    out = tmp_path / "results.json"
    assert main([str(path), "--json", str(out), "--time-limit", "30"]) == 0
    assert "2 of 5 points" in capsys.readouterr().out
    written = json.loads(out.read_text(encoding="utf-8"))
    tests = written.pop("tests")
    assert written == {
        "score": 2,
        "execution_time": written["execution_time"],
        "output": "04_first_triton_kernels.ipynb, lesson 04: 2 of 5 points",
        "output_format": "text",
        "visibility": "visible",
        "stdout_visibility": "hidden",
    }
    assert written["score"] == sum(test["score"] for test in tests)
    assert tests[0] == {
        "name": "The double",
        "number": "04.1",
        "score": 2,
        "max_score": 2,
        "status": "passed",
        "output": tests[0]["output"],
        "output_format": "text",
        "tags": ["double"],
        "visibility": "visible",
    }
    assert [test["max_score"] for test in tests] == [2, 3]
    assert [test["status"] for test in tests] == ["passed", "failed"]
    assert "traffic: failed" in tests[1]["output"]


def test_a_card_that_is_too_long_is_cut():
    result = Result("double", "", "failed", 2, "wrong", "x" * 10_007)
    assert result.shortened == "x" * 10_000 + "\n... 7 characters left out"
    report = Report("file.ipynb", "04", (result,))
    assert len(report.text) < 11_000
    assert len(report.gradescope()["tests"][0]["output"]) < 11_000


def test_json_is_written_whole_or_not_at_all(
    two_lessons, write_notebook, tmp_path, capsys, monkeypatch
):
    path = write_notebook(tmp_path / "a" / "04_first_triton_kernels.ipynb", DOUBLE)
    out = tmp_path / "out" / "results.json"
    assert main([str(path), "--json", str(out)]) == 2
    assert "in a folder that is there" in capsys.readouterr().err
    out.parent.mkdir()
    out.write_text("old", encoding="utf-8")

    def full(*names):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    assert main([str(path), "--json", str(out)]) == 2
    assert "cannot be written: No space left on device" in capsys.readouterr().err
    assert out.read_text(encoding="utf-8") == "old"
    assert list(out.parent.iterdir()) == [out]


@pytest.mark.parametrize("limit", ["0", "-1", "nan", "many"])
def test_a_time_limit_is_a_number_of_seconds(limit, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["x.ipynb", "--time-limit", limit])
    assert ended.value.code == 2
    assert "--time-limit" in capsys.readouterr().err


# -- the course's own tasks -----------------------------------------------------------------------


@pytest.fixture
def scale_add():
    return checks.task("scale_add")


def cells_of(task, edits=()):
    source = variants.edited(variants.source_of(task.solution), edits, "test")
    imports = "import torch\nimport triton\nimport triton.language as tl"
    return (
        "import course_utils\n\nmachine = course_utils.setup()",
        imports,
        f"from course_utils import checks\nBLOCK = {task.solution[-1].__globals__.get('BLOCK')}",
        f"#| export\n{source}",
        "checks.check_scale_add(scale_add)",
    )


def test_the_command_grades_a_real_kernel(scale_add, write_notebook, tmp_path):
    path = write_notebook(tmp_path / "submission.ipynb", *cells_of(scale_add))
    out = tmp_path / "out.json"
    done = subprocess.run(
        [sys.executable, "-m", "course_utils.grade", path, "--json", out],
        capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=120,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    tests = {test["tags"][0]: test for test in json.loads(out.read_text())["tests"]}
    assert tests.keys() == {task.name for task in checks.tasks("04")}
    assert tests["scale_add"]["score"] == scale_add.points
    assert tests["scale_add"]["status"] == "passed"
    assert all(test["score"] == 0 for name, test in tests.items() if name != "scale_add")
    assert f"{scale_add.points} of {scale_add.points}  passed" in done.stdout


def test_a_real_mistake_is_named(scale_add, write_notebook, tmp_path):
    cells = cells_of(scale_add, [("mask = offsets < n", "mask = offsets <= n")])
    name = "04_first_triton_kernels.ipynb"
    report = grade(write_notebook(tmp_path / name, *cells))
    result = result_of(report, "scale_add")
    assert (result.state, result.points) == ("failed", 0)
    mistake = next(m for m in scale_add.mistakes if m.name == "mask_one_too_far")
    assert mistake.says[:40].lower() in " ".join(result.card.split()).lower()
    assert report.notes == ()


@pytest.mark.parametrize("name", ["01_from_op_to_kernel", "03_fusion"])
@pytest.mark.parametrize("folder", ["solutions", "exercises"])
def test_the_courses_own_notebooks_earn_all_or_nothing(
    root, write_notebook, tmp_path, folder, name
):
    content = json.loads((root / folder / name / f"{name}.ipynb").read_text(encoding="utf-8"))
    cells = [cell | {"metadata": {}} for cell in content["cells"]]
    report = grade(write_notebook(tmp_path / f"{name}.ipynb", *cells))
    assert len(report.results) == len(checks.tasks(name[:2]))
    state = "passed" if folder == "solutions" else "not attempted yet"
    assert {result.state for result in report.results} == {state}, report.text
    assert report.points == (report.possible if folder == "solutions" else 0)
    assert report.notes == ()


def test_stored_outputs_are_not_looked_at(two_lessons, write_notebook, tmp_path):
    said = {"output_type": "stream", "name": "stdout", "text": "double: passed (2 of 2 points)"}
    cell = {"id": "a", "cell_type": "code", "source": WRONG, "metadata": {}, "outputs": [said],
            "execution_count": 1}  # fmt: skip
    path = write_notebook(tmp_path / "04_first_triton_kernels.ipynb", cell)
    assert "passed" not in grade(path).text
    assert notebooks.read(path).statements[0].binds == {"double"}
