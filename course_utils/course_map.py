"""The map of the course, and which of its tasks the reader has passed.

Passed tasks are kept in one small JSON file on the reader's own machine: by default
`~/.writing-fast-kernels/progress.json`, elsewhere if the environment variable
`WRITING_FAST_KERNELS_PROGRESS` names a file. Nothing is sent anywhere.
"""

from __future__ import annotations

import contextlib
import functools
import html
import json
import os
import re
import tempfile
import tomllib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from course_utils.lessons import LESSONS, Lesson, lesson

PATH_VARIABLE = "WRITING_FAST_KERNELS_PROGRESS"
_SCHEMA = 1
_PROJECT = Path(__file__).resolve().parent.parent

# What could not be written to the file; lost when the kernel ends.
_memory: dict[str, str] = {}
_told: set[str] = set()


def path() -> Path:
    """The file that holds the progress; it need not exist yet."""
    chosen = os.environ.get(PATH_VARIABLE) or "~/.writing-fast-kernels/progress.json"
    try:
        return Path(chosen).expanduser()
    except RuntimeError:  # a user without a home folder, as in some containers
        return Path(tempfile.gettempdir(), "writing-fast-kernels", "progress.json")


def mark_passed(task: str, lesson_number: int | str | None = None) -> None:
    """Note that a task is passed. Doing so again changes nothing.

    Args:
        task: "04/scale_add", or only "scale_add" with `lesson_number`.
        lesson_number: the lesson that the task belongs to, as `lessons.lesson` takes it.

    Raises:
        ValueError, KeyError: the task has no such form, or there is no such lesson.
    """
    key = _key(task, lesson_number)
    entries = _load()
    if key not in entries:
        entries[key] = date.today().isoformat()
        _save(entries)


def passed(lesson_number: int | str | None = None) -> list[str]:
    """The tasks passed so far, sorted, such as "04/scale_add"; of one lesson or of all."""
    entries = sorted(_load())
    if lesson_number is None:
        return entries
    prefix = f"{lesson(lesson_number).number:02d}/"
    return [key for key in entries if key.startswith(prefix)]


def reset() -> None:
    """Forget every passed task."""
    _memory.clear()
    if path().exists():
        _save({})


def progress() -> CourseMap:
    """The fourteen lessons: question, minutes, what to do first, whether there, tasks passed.

    Show it as the last line of a cell. A lesson is available if its notebook lies in the
    `notebooks` folder beside this package, and coming if not.
    """
    here = Path.cwd()
    notebooks = _PROJECT / "notebooks"
    available = None
    if notebooks.is_dir():
        available = frozenset(
            entry.number for entry in LESSONS if (notebooks / entry.notebook).is_file()
        )
    return CourseMap(
        available=available,
        tasks=_by_lesson(tasks()),
        # A task may have been renamed since it was passed.
        passed=_by_lesson(set(tasks()).intersection(passed())),
        exercises=frozenset(
            entry.number for entry in LESSONS if (_PROJECT / entry.exercises).is_file()
        ),
        repository=_repository(),
        folder=here.relative_to(_PROJECT) if here.is_relative_to(_PROJECT) else None,
    )


@functools.cache
def tasks() -> tuple[str, ...]:
    """All tasks, sorted, such as "04/scale_add".

    They are found by the names of the files in `checks/library/`; none of these is imported.
    """
    library = Path(__file__).with_name("checks") / "library"
    names = (re.fullmatch(r"l(\d\d)_(\w+)\.py", file.name) for file in library.iterdir())
    return tuple(sorted(f"{name[1]}/{name[2]}" for name in names if name))


@dataclass(frozen=True)
class CourseMap:
    """The map of the course; a table in a notebook, plain text elsewhere.

    Attributes:
        available: numbers of the lessons whose notebooks are there; None where the package was
            installed without its notebooks, so that nothing is known about them.
        tasks: lesson number -> how many tasks it has.
        passed: lesson number -> how many of them are passed.
        exercises: numbers of the lessons whose exercises are there.
        repository: address of the project on GitHub, for links to Colab; None for no links.
        folder: the working directory, relative to the project, from which links lead to
            notebooks; None outside the project, for no such links.
    """

    available: frozenset[int] | None
    tasks: dict[int, int]
    passed: dict[int, int]
    exercises: frozenset[int] = frozenset()
    repository: str | None = None
    folder: Path | None = None

    def __str__(self) -> str:
        """The map as a table of plain text."""
        rows = [("", "lesson", "min", "after", "state", "passed")]
        rows += [
            (
                f"{entry.number:02d}",
                entry.title,
                str(entry.minutes),
                _numbers(entry),
                self._state(entry),
                self._passed(entry),
            )
            for entry in LESSONS
        ]
        widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
        lines = []
        for index, row in enumerate(rows):
            cells = [text.ljust(width) for text, width in zip(row, widths, strict=True)]
            lines.append("  ".join(cells).rstrip())
            if index > 0:
                lines.append("    " + LESSONS[index - 1].question)
        return "\n".join([*lines, self._summary()])

    def __repr__(self) -> str:
        """The same as `str()`, so that a console shows the table too."""
        return str(self)

    def _repr_html_(self) -> str:
        columns = ["Lesson", "Question", "Minutes", "After", "State", "Tasks passed"]
        if self.folder is not None:
            columns.append("Exercises")
        if self.repository:
            columns.append("Colab")
        head = "".join(f'<th scope="col" style="text-align:left">{name}</th>' for name in columns)
        body = "\n".join(self._html_row(entry) for entry in LESSONS)
        return (
            '<table style="text-align:left">\n'
            '<caption style="text-align:left;caption-side:top">'
            f"Map of the course. {html.escape(self._summary())}</caption>\n"
            f"<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table>"
        )

    def _html_row(self, entry: Lesson) -> str:
        title = html.escape(f"{entry.number:02d} {entry.title}")
        lesson = f"notebooks/{entry.notebook}" if self._state(entry) == "available" else None
        exercises = entry.exercises if entry.number in self.exercises else None
        cells = [
            html.escape(entry.question),
            str(entry.minutes),
            _numbers(entry),
            self._state(entry),
            self._passed(entry),
        ]
        if self.folder is not None:
            if lesson:
                title = self._link(lesson, title)
            cells.append(self._link(exercises, f"exercises {entry.number:02d}"))
        if self.repository:
            links = (
                self._colab(lesson, f"open {entry.number:02d} in Colab"),
                self._colab(exercises, f"exercises {entry.number:02d} in Colab"),
            )
            cells.append(", ".join(filter(None, links)))
        row = "".join(f'<td style="text-align:left">{cell}</td>' for cell in cells)
        return f'<tr><th scope="row" style="text-align:left">{title}</th>{row}</tr>'

    def _link(self, notebook: str | None, words: str) -> str:
        """A link to a notebook that lies beside the package; nothing where there is none."""
        if notebook is None or self.folder is None:
            return ""
        target = Path(os.path.relpath(notebook, self.folder)).as_posix()
        return f'<a href="{target}">{words}</a>'

    def _colab(self, notebook: str | None, words: str) -> str:
        """A link that opens a notebook in Colab; nothing where there is none."""
        if notebook is None or self.repository is None:
            return ""
        # repository is https://github.com/OWNER/NAME; Colab takes the part after the host.
        slug = self.repository.removeprefix("https://github.com/")
        target = f"https://colab.research.google.com/github/{slug}/blob/main/{notebook}"
        return f'<a href="{target}">{words}</a>'

    def _state(self, entry: Lesson) -> str:
        if self.available is None:
            return "not known"
        return "available" if entry.number in self.available else "coming"

    def _passed(self, entry: Lesson) -> str:
        """Such as "2 of 4"; nothing for a lesson without tasks."""
        total = self.tasks.get(entry.number, 0)
        return f"{self.passed.get(entry.number, 0)} of {total}" if total else ""

    def _summary(self) -> str:
        done = f"{sum(self.passed.values())} of {sum(self.tasks.values())} tasks passed."
        if self.available is None:
            return f"The notebooks are not beside the package, see the project's folder; {done}"
        minutes = sum(entry.minutes for entry in LESSONS if entry.number in self.available)
        return (
            f"{len(self.available)} of {len(LESSONS)} lessons are available, "
            f"about {minutes} minutes; {done}"
        )


def _by_lesson(keys: Iterable[str]) -> dict[int, int]:
    """How many of these tasks each lesson has, by its number."""
    return dict(Counter(int(key.split("/")[0]) for key in keys))


def _numbers(entry: Lesson) -> str:
    """The prerequisites as text, such as "04, 08"."""
    return ", ".join(f"{number:02d}" for number in entry.prerequisites) or "none"


def _repository() -> str | None:
    """The project's address on GitHub from pyproject.toml; None as long as none is set there."""
    try:
        text = (_PROJECT / "pyproject.toml").read_text(encoding="utf-8")
        address = tomllib.loads(text)["project"]["urls"]["Repository"]
    except (OSError, KeyError, tomllib.TOMLDecodeError):
        return None
    address = str(address).rstrip("/").removesuffix(".git")
    return address if re.fullmatch(r"https://github\.com/[\w.-]+/[\w.-]+", address) else None


def _key(task: str, lesson_number: int | str | None) -> str:
    if lesson_number is not None:
        prefix = f"{lesson(lesson_number).number:02d}/"
        task = task if task.startswith(prefix) else prefix + task
    if not re.fullmatch(r"\d\d/\w+", task):
        raise ValueError(
            f"{task!r} is no task: write the lesson's number and the task's name as in "
            "'04/scale_add', or give lesson_number=4 beside 'scale_add'"
        )
    lesson(task[:2])  # raises for a lesson that does not exist
    return task


def _load() -> dict[str, str]:
    """Passed tasks and their dates, from the file and from memory."""
    return {**_read(path()), **_memory}


def _read(file: Path) -> dict[str, str]:
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    except UnicodeDecodeError:
        _set_aside(file)
        return {}
    except OSError as error:
        _tell(f"Your progress cannot be read from {_shown(file)} ({error.strerror}).")
        return {}
    try:
        data = json.loads(text)
        entries = data["passed"]
        if not all(isinstance(item, str) for pair in entries.items() for item in pair):
            raise TypeError
    except (ValueError, KeyError, TypeError, AttributeError):
        _set_aside(file)
        return {}
    return dict(entries)


def _save(entries: dict[str, str]) -> None:
    """Write the file whole or not at all; where it cannot be written, keep things in memory."""
    file = path()
    text = json.dumps({"schema": _SCHEMA, "passed": dict(sorted(entries.items()))}, indent=1)
    temporary: str | None = None
    try:
        if file.exists():
            file.read_bytes()  # what cannot be read must not be replaced
        file.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=file.parent, prefix=file.name, suffix=".tmp")
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write(text + "\n")
        # Another notebook that reads at this moment sees the old file or the new one.
        os.replace(temporary, file)
    except OSError as error:
        if temporary is not None:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
        _memory.clear()
        _memory.update(entries)
        _tell(
            f"Your progress cannot be saved to {_shown(file)} ({error.strerror}); it is kept "
            f"until this kernel stops. Set {PATH_VARIABLE} to a file that can be written."
        )


def _set_aside(file: Path) -> None:
    """Move a file that is no progress file out of the way, without losing it."""
    backup = file.with_name(file.name + ".bak")
    number = 1
    while backup.exists():
        number += 1
        backup = file.with_name(f"{file.name}.bak{number}")
    try:
        os.replace(file, backup)
    except OSError as error:
        _tell(f"{_shown(file)} is damaged and cannot be moved ({error.strerror}).")
        return
    _tell(f"{_shown(file)} is damaged; it is kept as {backup.name}, and a new one is begun.")


def _shown(file: Path) -> str:
    """The path as a reader would write it: with `~` for the home folder."""
    try:
        return "~/" + file.relative_to(Path.home()).as_posix()
    except (ValueError, RuntimeError):
        return str(file)


def _tell(message: str) -> None:
    """Print a message, once in a kernel's life."""
    if message not in _told:
        _told.add(message)
        print(message)
