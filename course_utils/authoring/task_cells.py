"""The cells of a task in a solution notebook, and what of them is written from the task itself.

    task-<name>     Markdown: heading, facts, the author's words, hints
    answer-<name>   code: what is given, and the solution between nbgrader's marks
    check-<name>    code: the check, and the hidden one

An author writes the words and the answer. Heading, facts, hints, the check and nbgrader's metadata
come from the `Task`, so that each of them has one source.
"""

import ast
import copy
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import nbformat
from nbformat import NotebookNode

from course_utils.authoring import notebooks
from course_utils.checks.base import Task

BEGIN, END = "### BEGIN SOLUTION", "### END SOLUTION"

_ID = re.compile(r"(task|answer|check)-(\w+)")
_HEAD = re.compile(r"\A##[ \t][^\n]*\n*(?:\*Difficulty [^\n]*\n*)?")
_HINTS = re.compile(r"\n*<details><summary>Hint .*\Z", re.DOTALL)
_DEFINITION = re.compile(r"def (\w+)\(")

_CHECK = """\
checks.check_{name}({name})
### BEGIN HIDDEN TESTS
checks.grade_{name}({name})
### END HIDDEN TESTS"""
_HINT = "<details><summary>Hint {number}</summary>\n\n{hint}\n\n</details>"


@dataclass(frozen=True)
class Place:
    """A cell that belongs to a task: its part ("task", "answer" or "check"), name and position."""

    part: str
    task: str
    index: int


def places(notebook: NotebookNode) -> list[Place]:
    """The cells that belong to tasks, in the notebook's order."""
    found = ((index, _ID.fullmatch(cell.id)) for index, cell in enumerate(notebook.cells))
    return [Place(match[1], match[2], index) for index, match in found if match]


def cell(notebook: NotebookNode, part: str, task: str) -> NotebookNode | None:
    """The first cell of this part of a task; None where there is none."""
    wanted = f"{part}-{task}"
    return next((cell for cell in notebook.cells if cell.id == wanted), None)


def rendered(notebook: NotebookNode, tasks: Sequence[Task]) -> NotebookNode:
    """A copy of a solution notebook in which all that comes from its tasks is up to date.

    A check cell that is missing is put below its answer. A task whose words or answer are missing
    is left alone: only an author can write them.
    """
    notebook = copy.deepcopy(notebook)
    for setup in filter(notebooks.is_setup, notebook.cells):
        setup.metadata["nbgrader"] = _metadata(setup.id, locked=True)
    for task in tasks:
        words, answer = (cell(notebook, part, task.name) for part in ("task", "answer"))
        if words is None or answer is None:
            continue
        words.source = _words(words.source, answer.source, task)
        answer.metadata["nbgrader"] = _metadata(answer.id, solution=True)
        check = cell(notebook, "check", task.name)
        if check is None:
            check = nbformat.v4.new_code_cell(id=f"check-{task.name}")
            notebook.cells.insert(notebook.cells.index(answer) + 1, check)
        check.source = _CHECK.format(name=task.name)
        check.metadata["nbgrader"] = _metadata(
            check.id, grade=True, locked=True, points=task.points
        )
    return notebook


def own_words(source: str) -> str:
    """What the author wrote in a task's Markdown cell: all but heading, facts and hints."""
    return _HINTS.sub("", _HEAD.sub("", source)).strip()


def regions(source: str) -> Iterator[tuple[str, list[str]]]:
    """Each solution in an answer: the function that it is in ("" for none), and its lines of code.

    Raises:
        ValueError: marks are not in pairs.
    """
    inside, function, lines = False, "", []
    for line in source.splitlines():
        if BEGIN in line or END in line:
            if inside is (BEGIN in line):
                raise ValueError(f"{line.strip()!r} has no partner")
            inside = not inside
            if inside:
                function, lines = function if line[0] in " \t" else "", []
            else:
                yield function, lines
        elif inside:
            if line.strip() and not line.lstrip().startswith("#"):
                lines.append(line)
        elif match := _DEFINITION.match(line):
            function = match[1]
    if inside:
        raise ValueError(f"{BEGIN!r} has no partner")


def functions(source: str) -> dict[str, ast.FunctionDef]:
    """The functions that a cell defines at its top level; of two with one name the later.

    Raises:
        SyntaxError: the cell is no Python.
    """
    found: dict[str, ast.FunctionDef] = {}
    for statement in ast.parse(source).body:
        if isinstance(statement, ast.FunctionDef):
            found.pop(statement.name, None)
            found[statement.name] = statement
    return found


def _metadata(grade_id: str, **what: bool | int) -> NotebookNode:
    """What nbgrader wants to know of a cell."""
    metadata = {"grade": False, "locked": False, "solution": False, "task": False}
    return nbformat.from_dict({**metadata, "grade_id": grade_id, "schema_version": 3, **what})


def _words(words: str, answer: str, task: Task) -> str:
    facts = [
        f"Difficulty {task.difficulty} of 3",
        _count(task.minutes, "minute"),
        _count(task.points, "point"),
        *_hole(answer, task),
    ]
    hints = (_HINT.format(number=i, hint=hint) for i, hint in enumerate(task.hints, 1))
    parts = [f"## {task.title}", f"*{' · '.join(facts)}*", own_words(words), *hints]
    return "\n\n".join(filter(None, parts))


def _hole(answer: str, task: Task) -> list[str]:
    """How much is to be written, in the lines that our own solution takes."""
    try:
        found = list(regions(answer))
    except ValueError:  # a rule says so
        return []
    if task.kind == "repair":
        given = {line.strip() for line in answer.split(BEGIN)[0].splitlines()}
        changed = [line for _, lines in found for line in lines if line.strip() not in given]
        return [f"to repair: {_count(len(changed), 'line')}"] if changed else []
    sizes: dict[str, int] = {}
    for function, lines in found:
        sizes[function] = sizes.get(function, 0) + len(lines)
    where = [
        _count(size, "line") + (f" in `{function}`" if function else "")
        for function, size in sizes.items()
    ]
    return [f"the hole: {', '.join(where)}"] if where else []


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")
