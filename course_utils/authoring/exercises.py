"""Generate exercises/ from solutions/, with nbgrader.

    python -m course_utils.authoring.exercises [--check] [LESSON ...]

Solution notebooks are first brought up to date with their tasks (`task_cells`), and then have to
keep their rules (`exercise_rules`). What nbgrader makes of them is what is committed, in canonical
form. No gradebook is needed, and none is made.
"""

import argparse
import logging
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import nbformat
from nbgrader.converters import GenerateAssignment
from nbgrader.converters.base import NbGraderException
from nbgrader.coursedir import CourseDirectory
from traitlets.config import Config
from traitlets.config.loader import PyFileConfigLoader

from course_utils import checks
from course_utils.authoring import canonical, colab, exercise_rules, notebooks, task_cells
from course_utils.authoring.notebooks import ROOT, NotebookError
from course_utils.checks.base import Task

Lessons = Sequence[str]
"""Numbers of lessons, such as "04"; none for all."""

Tasks = Callable[[str], Sequence[Task]]
"""The tasks of a lesson, by its number, such as "04"."""


def outdated(root: Path = ROOT, tasks: Tasks = checks.tasks) -> list[str]:
    """The solution notebooks that do not say what their tasks say. Raises `NotebookError`."""
    found = []
    for path in notebooks.solutions(root):
        notebook = notebooks.read(path)
        if task_cells.rendered(notebook, tasks(path.name[:2])) != notebook:
            found.append(notebooks.name(path, root))
    return found


def stale(root: Path = ROOT) -> list[str]:
    """The files of exercises/ that are not what the solutions make. Raises `NotebookError`."""
    return sorted(_differing(root, notebooks.solutions(root), _files(root / "exercises")))


def breaches(root: Path = ROOT, tasks: Tasks = checks.tasks, lessons: Lessons = ()) -> list[str]:
    """One sentence for each breach of a rule, with the notebook's name."""
    found = []
    for path in _chosen(root, lessons):
        name = notebooks.name(path, root)
        try:
            solution, own = notebooks.read(path), tasks(path.name[:2])
            said = list(exercise_rules.of_solution(solution, own))
            if not said:
                text = generated(path, root)[f"exercises/{path.parent.name}/{path.name}"]
                exercise = nbformat.reads(text.decode(), as_version=4)
                said = list(exercise_rules.of_exercise(solution, exercise, own))
            found += [f"{name}: {sentence}" for sentence in said]
        except NotebookError as error:
            found.append(str(error))
    return found


def write(root: Path = ROOT, tasks: Tasks = checks.tasks, lessons: Lessons = ()) -> list[str]:
    """Bring solutions up to date with their tasks, and exercises/ with the solutions.

    Returns the files that changed. Raises `NotebookError`.
    """
    changed = []
    paths = _chosen(root, lessons)
    for path in paths:
        wanted = _solution(path, root, tasks(path.name[:2]))
        if path.read_bytes() != wanted:
            path.write_bytes(wanted)
            changed.append(notebooks.name(path, root))
    folder = root / "exercises"
    folders = [folder / path.parent.name for path in paths] if lessons else [folder]
    there = [file for folder in folders for file in _files(folder)]
    for name, content in sorted(_differing(root, paths, there).items()):
        file = root / name
        if content is None:
            file.unlink()
        else:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
        changed.append(name)
    return changed


def generated(path: Path, root: Path = ROOT) -> dict[str, bytes]:
    """What nbgrader makes of a solution notebook and the files beside it.

    The keys are paths relative to the course's folder. Raises `NotebookError`.
    """
    with tempfile.TemporaryDirectory() as scratch:
        config, log = _config(root, Path(scratch)), _Log()
        course = CourseDirectory(config=config, log=log, assignment_id=path.parent.name)
        try:
            GenerateAssignment(coursedir=course, config=config, log=log).start()
        except NbGraderException:
            name = notebooks.name(path, root)
            raise NotebookError(f"{name}: nbgrader says: {log.why()}") from None
        made = {file.relative_to(scratch).as_posix(): file for file in _files(Path(scratch))}
        return {
            name: _exercise(file, root / name, root)
            if file.suffix == ".ipynb"
            else file.read_bytes()
            for name, file in made.items()
        }


def _chosen(root: Path, lessons: Lessons) -> list[Path]:
    return [path for path in notebooks.solutions(root) if not lessons or path.name[:2] in lessons]


def _differing(root: Path, paths: list[Path], there: list[Path]) -> dict[str, bytes | None]:
    """Of what the solutions at `paths` make and of what is there: what differs.

    Returns what it should hold by name, None for what should not be there.
    """
    wanted: dict[str, bytes | None] = {notebooks.name(file, root): None for file in there}
    for path in paths:
        wanted |= generated(path, root)
    return {
        name: content
        for name, content in wanted.items()
        if content is None or not (root / name).exists() or (root / name).read_bytes() != content
    }


def _solution(path: Path, root: Path, tasks: Sequence[Task]) -> bytes:
    """A solution notebook as it is committed."""
    notebook = task_cells.rendered(notebooks.read(path), tasks)
    return _text(colab.rendered(notebook, path, colab.repository(root), root), path, root)


def _exercise(made: Path, path: Path, root: Path) -> bytes:
    """An exercise as it is committed, made of nbgrader's own file."""
    notebook = colab.rendered(notebooks.read(made), path, colab.repository(root), root)
    return _text(notebook, path, root)


def _text(notebook: nbformat.NotebookNode, path: Path, root: Path) -> bytes:
    try:
        return canonical.text(canonical.canonical(notebook, outputs=False)).encode()
    except NotebookError as error:
        raise NotebookError(f"{notebooks.name(path, root)}, {error}") from None


def _config(root: Path, scratch: Path) -> Config:
    """The course's own settings of nbgrader, with folders elsewhere and without a gradebook."""
    config = PyFileConfigLoader("nbgrader_config.py", path=str(ROOT)).load_config()
    folders = config.CourseDirectory
    folders.root = str(scratch)
    folders.source_directory = str(root.resolve() / folders.source_directory)
    folders.release_directory = str(scratch / folders.release_directory)
    config.GenerateAssignment.no_database = True
    config.SaveCells.enabled = False
    return config


def _files(folder: Path) -> list[Path]:
    return [
        path
        for path in sorted(folder.rglob("*"))
        if path.is_file() and ".ipynb_checkpoints" not in path.parts
    ]


class _Log(logging.Logger):
    """nbgrader's log, kept to say why something failed."""

    def __init__(self) -> None:
        super().__init__("nbgrader", logging.ERROR)
        self.said: list[str] = []
        self.addHandler(logging.NullHandler())

    def handle(self, record: logging.LogRecord) -> None:
        self.said.append(record.getMessage())

    def why(self) -> str:
        """The last line of the traceback, if one was logged; else what was logged first."""
        traces = [text for text in self.said if text.startswith("Traceback")]
        return (traces or self.said or ["nothing"])[0].strip().splitlines()[-1]


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; the exit status is 1 where something is stale or breaks a rule."""
    parser = argparse.ArgumentParser(description="Generate the exercises from their solutions.")
    parser.add_argument("--check", action="store_true", help="only say what is stale")
    parser.add_argument("lessons", nargs="*", help="numbers, such as 04; default: all")
    options = parser.parse_args(arguments)
    found = []
    try:
        if options.check:
            found += [f"{name}: not what its tasks say" for name in outdated()]
            found += [f"{name}: not what the solutions make" for name in stale()]
        else:
            for name in write(lessons=options.lessons):
                print(f"{name}: written")
        broken = breaches(lessons=options.lessons)
    except (NotebookError, colab.SettingError) as error:
        print(error)
        return 2
    for line in broken + found:
        print(line)
    if found:
        print("repair: make exercises")
    return int(bool(found or broken))


if __name__ == "__main__":
    sys.exit(main())
