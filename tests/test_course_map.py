"""The list of lessons, the record of passed tasks, and the map made of both."""

from __future__ import annotations

import importlib
import json
import pkgutil
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

import course_utils
from course_utils import course_map, lessons
from course_utils.checks import library


@pytest.fixture(autouse=True)
def file(tmp_path, monkeypatch) -> Path:
    """A progress file of this test's own, and nothing remembered from other tests."""
    file = tmp_path / "folder" / "progress.json"
    monkeypatch.setenv(course_map.PATH_VARIABLE, str(file))
    monkeypatch.setattr(course_map, "_memory", {})
    monkeypatch.setattr(course_map, "_told", set())
    return file


@pytest.fixture
def project(tmp_path, monkeypatch) -> Path:
    """A project folder without an address, with lessons 00 and 03 and three tasks, two of 03."""
    root = (tmp_path / "project").resolve()
    (root / "notebooks").mkdir(parents=True)
    (root / "pyproject.toml").write_text('[project]\nname = "course"\n')
    for number in (0, 3):
        (root / "notebooks" / lessons.LESSONS[number].notebook).touch()
    exercises = root / "exercises" / "03_fusion" / "03_fusion.ipynb"
    exercises.parent.mkdir(parents=True)
    exercises.touch()
    monkeypatch.setattr(course_map, "_PROJECT", root)
    tasks = ("03/best_partition", "03/predict_fusions", "04/scale_add")
    monkeypatch.setattr(course_map, "tasks", lambda: tasks)
    return root


# The list of lessons


def test_lessons_are_numbered_in_order_with_distinct_names():
    assert [entry.number for entry in lessons.LESSONS] == list(range(14))
    assert len({entry.name for entry in lessons.LESSONS}) == 14
    assert len({entry.title for entry in lessons.LESSONS}) == 14
    for entry in lessons.LESSONS:
        assert re.fullmatch(r"[a-z][a-z0-9_]*", entry.name)
        assert entry.question.endswith("?")


def test_a_lesson_takes_30_to_90_minutes_and_builds_on_earlier_ones_only():
    for entry in lessons.LESSONS:
        assert 30 <= entry.minutes <= 90
        assert all(0 <= number < entry.number for number in entry.prerequisites)
        assert list(entry.prerequisites) == sorted(set(entry.prerequisites))
        assert entry.prerequisites or entry.number == 0


@pytest.mark.parametrize("which", [3, "3", "03", "fusion", "03_fusion", "03_fusion.ipynb"])
def test_a_lesson_is_found_by_number_or_name(which):
    assert lessons.lesson(which).notebook == "03_fusion.ipynb"


def test_an_unknown_lesson_is_an_error_that_lists_them():
    with pytest.raises(KeyError, match="there is no lesson 14; the lessons are 00_start_here"):
        lessons.lesson(14)


# The record


def test_nothing_is_passed_at_first_and_no_file_is_made(file):
    assert course_map.passed() == []
    assert not file.exists()


def test_passed_tasks_are_kept_sorted_in_the_file(file):
    course_map.mark_passed("04/scale_add")
    course_map.mark_passed("trips_of", lesson_number=1)
    course_map.mark_passed("04/scale_add")
    assert course_map.passed() == ["01/trips_of", "04/scale_add"]
    assert course_map.passed(4) == course_map.passed("first_triton_kernels") == ["04/scale_add"]
    data = json.loads(file.read_text())
    assert data["schema"] == 1
    assert list(data["passed"]) == ["01/trips_of", "04/scale_add"]
    assert [entry.name for entry in file.parent.iterdir()] == ["progress.json"]


def test_the_day_of_the_first_pass_stays(file):
    file.parent.mkdir()
    file.write_text('{"schema": 1, "passed": {"04/scale_add": "2020-01-01"}}')
    course_map.mark_passed("04/scale_add")
    assert json.loads(file.read_text())["passed"] == {"04/scale_add": "2020-01-01"}


def test_what_another_notebook_wrote_meanwhile_is_kept(file):
    course_map.mark_passed("01/trips_of")
    data = json.loads(file.read_text())
    data["passed"]["02/ridge"] = "2020-01-01"
    file.write_text(json.dumps(data))
    course_map.mark_passed("03/partition")
    assert course_map.passed() == ["01/trips_of", "02/ridge", "03/partition"]


def test_reset_forgets_everything(file):
    course_map.reset()
    assert not file.exists()
    course_map.mark_passed("04/scale_add")
    course_map.reset()
    assert course_map.passed() == []


@pytest.mark.parametrize("task", ["scale_add", "4/scale_add", "04/", "04/scale add", "../x", ""])
def test_a_task_without_its_lesson_is_refused(task, file):
    with pytest.raises(ValueError, match="is no task: write the lesson's number"):
        course_map.mark_passed(task)
    assert not file.exists()


def test_a_task_of_no_lesson_is_refused():
    with pytest.raises(KeyError, match="there is no lesson '77'"):
        course_map.mark_passed("77/scale_add")


def test_the_default_is_the_readers_own_folder(monkeypatch, tmp_path):
    monkeypatch.delenv(course_map.PATH_VARIABLE)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert course_map.path() == tmp_path / ".writing-fast-kernels" / "progress.json"


def test_a_user_without_a_home_folder_gets_a_temporary_one(monkeypatch):
    def no_home(self):
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv(course_map.PATH_VARIABLE)
    monkeypatch.setattr(Path, "expanduser", no_home)
    assert course_map.path().name == "progress.json"


@pytest.mark.parametrize(
    "content",
    [
        b"{ not json",
        b"",
        b"[]",
        b"3",
        b'{"schema": 1}',
        b'{"passed": ["04/scale_add"]}',
        b'{"passed": {"04/scale_add": 7}}',
        b"\xff\xfe\x00",
    ],
)
def test_a_damaged_file_is_set_aside_once_and_said_so(content, file, capsys):
    file.parent.mkdir()
    file.write_bytes(content)
    assert course_map.passed() == []
    assert file.with_name("progress.json.bak").read_bytes() == content
    assert "is damaged; it is kept as progress.json.bak" in capsys.readouterr().out
    course_map.mark_passed("04/scale_add")
    assert course_map.passed() == ["04/scale_add"]
    assert capsys.readouterr().out == ""


def test_an_earlier_backup_is_not_overwritten(file):
    file.parent.mkdir()
    for content in ("first", "second"):
        file.write_text(content)
        course_map.passed()
    assert file.with_name("progress.json.bak").read_text() == "first"
    assert file.with_name("progress.json.bak2").read_text() == "second"


def test_where_nothing_can_be_written_it_is_kept_in_memory(file, capsys):
    # A file where the folder should be: this fails for root too.
    file.parent.write_text("in the way")
    course_map.mark_passed("04/scale_add")
    course_map.mark_passed("04/gelu_tanh")
    assert course_map.passed() == ["04/gelu_tanh", "04/scale_add"]
    out = capsys.readouterr().out
    assert out.count("cannot be saved to") == 1
    assert course_map.PATH_VARIABLE in out
    course_map.reset()
    assert course_map.passed() == []


def test_a_folder_in_the_place_of_the_file_is_left_alone(file, capsys):
    file.mkdir(parents=True)
    course_map.mark_passed("04/scale_add")
    assert file.is_dir() and list(file.parent.iterdir()) == [file]
    assert course_map.passed() == ["04/scale_add"]
    assert "cannot be read" in capsys.readouterr().out


def test_a_file_that_cannot_be_read_is_not_replaced(file, monkeypatch, capsys):
    course_map.mark_passed("01/trips_of")
    before = file.read_text()

    def refuse(*args, **kwargs):
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patch:
        # File modes do not stop root, under whom the tests may run.
        patch.setattr(Path, "read_text", refuse)
        patch.setattr(Path, "read_bytes", refuse)
        course_map.mark_passed("04/scale_add")
        assert course_map.passed() == ["04/scale_add"]
    assert file.read_text() == before
    out = capsys.readouterr().out
    assert "cannot be read" in out and "cannot be saved" in out


def test_a_failed_write_leaves_the_old_file(file, monkeypatch, capsys):
    course_map.mark_passed("01/trips_of")
    before = file.read_text()

    def full(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(course_map.os, "replace", full)
    course_map.mark_passed("04/scale_add")
    assert file.read_text() == before
    assert [entry.name for entry in file.parent.iterdir()] == ["progress.json"]
    assert course_map.passed() == ["01/trips_of", "04/scale_add"]
    assert "No space left on device" in capsys.readouterr().out


# The map


class Table(HTMLParser):
    """The cells and attributes of a table, row by row."""

    def __init__(self, text: str):
        super().__init__()
        self.rows: list[list[str]] = []
        self.scopes: list[str | None] = []
        self.links: list[str | None] = []
        self.caption = ""
        self.open: list[str] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")
        if tag == "th":
            self.scopes.append(dict(attrs).get("scope"))
        if tag == "a":
            self.links.append(dict(attrs)["href"])

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "caption" in self.open:
            self.caption += data
        elif "td" in self.open or "th" in self.open:
            self.rows[-1][-1] += data


def test_the_map_shows_every_lesson_and_its_state(project):
    course_map.mark_passed("03/best_partition")
    table = Table(course_map.progress()._repr_html_())
    assert table.rows[0] == ["Lesson", "Question", "Minutes", "After", "State", "Tasks passed"]
    assert table.rows[1] == [
        "00 Start here",
        "Is my machine ready, and how do I work through this?",
        "30",
        "none",
        "available",
        "",
    ]
    assert table.rows[2][4:] == ["coming", ""]
    assert table.rows[4] == [
        "03 Fusion",
        "What is the highest-leverage move?",
        "45",
        "01, 02",
        "available",
        "1 of 2",
    ]
    assert table.rows[5][4:] == ["coming", "0 of 1"]
    assert len(table.rows) == 15


def test_the_map_is_an_accessible_table_without_links(project):
    table = Table(course_map.progress()._repr_html_())
    assert table.scopes == ["col"] * 6 + ["row"] * 14
    assert table.caption == (
        "Map of the course. 2 of 14 lessons are available, about 75 minutes; 0 of 3 tasks passed."
    )
    assert table.links == []


def test_the_text_of_the_map(project):
    course_map.mark_passed("03/best_partition")
    lines = str(course_map.progress()).splitlines()
    assert lines[0].split() == ["lesson", "min", "after", "state", "passed"]
    assert lines[1].split() == ["00", "Start", "here", "30", "none", "available"]
    assert lines[2].strip() == lessons.LESSONS[0].question
    assert lines[7].split() == ["03", "Fusion", "45", "01,", "02", "available", "1", "of", "2"]
    assert lines[-1] == "2 of 14 lessons are available, about 75 minutes; 1 of 3 tasks passed."
    assert repr(course_map.progress()) == "\n".join(lines)
    assert max(map(len, lines)) <= 100
    assert all(line == line.rstrip() for line in lines)


def test_the_tasks_are_those_of_the_library():
    course_utils.machine()  # decides how kernels run, before the tasks import triton
    names = [module.name for module in pkgutil.iter_modules(library.__path__)]
    modules = [importlib.import_module(f"{library.__name__}.{name}") for name in names]
    assert course_map.tasks() == tuple(sorted(module.TASK.key for module in modules))


def test_a_task_that_is_no_longer_there_does_not_count(project):
    course_map.mark_passed("03/partition")
    assert str(course_map.progress()).endswith("0 of 3 tasks passed.")


def test_the_map_says_nothing_of_the_machine(project, tmp_path, file):
    shown = course_map.progress()
    for text in (str(shown), shown._repr_html_()):
        assert str(tmp_path) not in text and str(Path.home()) not in text


@pytest.mark.parametrize(
    ("folder", "links"),
    [
        (
            "notebooks",
            ["00_start_here.ipynb", "03_fusion.ipynb", "../exercises/03_fusion/03_fusion.ipynb"],
        ),
        (
            "exercises/03_fusion",
            [
                "../../notebooks/00_start_here.ipynb",
                "../../notebooks/03_fusion.ipynb",
                "03_fusion.ipynb",
            ],
        ),
    ],
)
def test_lessons_and_exercises_are_linked_from_where_the_notebook_is(
    project, monkeypatch, folder, links
):
    monkeypatch.chdir(project / folder)
    table = Table(course_map.progress()._repr_html_())
    assert table.links == links
    assert all((project / folder / link).is_file() for link in links)
    assert [row[-1] for row in table.rows[:5]] == ["Exercises", "", "", "", "exercises 03"]


@pytest.mark.parametrize("ending", ["", "/", ".git"])
def test_links_to_colab_once_the_project_has_an_address(project, ending):
    (project / "pyproject.toml").write_text(
        f'[project]\nname = "course"\n[project.urls]\nRepository = "https://github.com/o/n{ending}"\n'
    )
    table = Table(course_map.progress()._repr_html_())
    colab = "https://colab.research.google.com/github/o/n/blob/main"
    assert table.links == [
        f"{colab}/notebooks/00_start_here.ipynb",
        f"{colab}/notebooks/03_fusion.ipynb",
        f"{colab}/exercises/03_fusion/03_fusion.ipynb",
    ]
    assert table.rows[1][-1] == "open 00 in Colab"
    assert table.rows[2][-1] == ""
    assert table.rows[4][-1] == "open 03 in Colab, exercises 03 in Colab"


@pytest.mark.parametrize(
    "text",
    [
        None,
        "not toml =",
        '[project.urls]\nHomepage = "https://github.com/o/n"\n',
        '[project.urls]\nRepository = "https://example.org/o/n"\n',
        '[project.urls]\nRepository = "https://github.com/\\"><script>"\n',
    ],
)
def test_no_link_is_made_up_without_an_address(project, text):
    (project / "pyproject.toml").unlink()
    if text is not None:
        (project / "pyproject.toml").write_text(text)
    shown = course_map.progress()
    assert shown.repository is None
    assert "http" not in shown._repr_html_()


def test_a_package_without_its_notebooks_does_not_call_lessons_coming(tmp_path, monkeypatch):
    monkeypatch.setattr(course_map, "_PROJECT", tmp_path / "site-packages")
    text = str(course_map.progress())
    assert "coming" not in text and "not known" in text
    assert "not beside the package" in text
