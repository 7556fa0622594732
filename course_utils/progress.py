"""Which tasks the reader has passed, and the map of the course that shows it.

Passed tasks are kept in one small JSON file on the reader's own machine: by default
`~/.writing-fast-kernels/progress.json`, elsewhere if the environment variable
`WRITING_FAST_KERNELS_PROGRESS` names a file. Nothing is sent anywhere.
"""

from __future__ import annotations

import contextlib
import html
import json
import os
import re
import tempfile
import tomllib
from collections import Counter
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


def course_map() -> CourseMap:
    """The fourteen lessons: question, minutes, what to do first, whether there, tasks passed.

    Show it as the last line of a cell. A lesson is available if its notebook lies in the
    `notebooks` folder beside this package, and coming if not.
    """
    notebooks = _PROJECT / "notebooks"
    counts = Counter(key.split("/")[0] for key in passed())
    available = None
    if notebooks.is_dir():
        available = frozenset(
            entry.number for entry in LESSONS if (notebooks / entry.notebook).is_file()
        )
    return CourseMap(
        available=available,
        passed={entry.number: counts[f"{entry.number:02d}"] for entry in LESSONS},
        repository=_repository(),
        # Relative links lead somewhere only from a notebook of that folder.
        local_links=available is not None and Path.cwd() == notebooks,
    )


@dataclass(frozen=True)
class CourseMap:
    """The map of the course; a table in a notebook, plain text elsewhere.

    Attributes:
        available: numbers of the lessons whose notebooks are there; None where the package was
            installed without its notebooks, so that nothing is known about them.
        passed: lesson number -> how many of its tasks are passed.
        repository: address of the project on GitHub, for links to Colab; None for no links.
        local_links: whether a lesson's title links to its notebook.
    """

    available: frozenset[int] | None
    passed: dict[int, int]
    repository: str | None = None
    local_links: bool = False

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
                str(self.passed.get(entry.number, 0)),
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
        there = self._state(entry) == "available"
        title = html.escape(f"{entry.number:02d} {entry.title}")
        if there and self.local_links:
            title = f'<a href="{entry.notebook}">{title}</a>'
        cells = [
            html.escape(entry.question),
            str(entry.minutes),
            _numbers(entry),
            self._state(entry),
            str(self.passed.get(entry.number, 0)),
        ]
        if self.repository:
            link = f'<a href="{self._colab(entry)}">open {entry.number:02d} in Colab</a>'
            cells.append(link if there else "")
        row = "".join(f'<td style="text-align:left">{cell}</td>' for cell in cells)
        return f'<tr><th scope="row" style="text-align:left">{title}</th>{row}</tr>'

    def _colab(self, entry: Lesson) -> str:
        # repository is https://github.com/OWNER/NAME; Colab takes the part after the host.
        slug = (self.repository or "").removeprefix("https://github.com/")
        return (
            f"https://colab.research.google.com/github/{slug}/blob/main/notebooks/{entry.notebook}"
        )

    def _state(self, entry: Lesson) -> str:
        if self.available is None:
            return "not known"
        return "available" if entry.number in self.available else "coming"

    def _summary(self) -> str:
        tasks = f"tasks passed: {sum(self.passed.values())}."
        if self.available is None:
            return f"The notebooks are not beside the package, see the project's folder; {tasks}"
        minutes = sum(entry.minutes for entry in LESSONS if entry.number in self.available)
        return (
            f"{len(self.available)} of {len(LESSONS)} lessons are available, "
            f"about {minutes} minutes; {tasks}"
        )


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
