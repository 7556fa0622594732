"""What a solution notebook must be like, and the exercise that is made of it, one rule a function.

Each rule yields one sentence per breach, which names the cell or the task. Rules for all notebooks
are in `rules.py`; the cells' form, points and hints are written by `task_cells.py`.
"""

import ast
from collections.abc import Iterator, Sequence

from nbformat import NotebookNode

from course_utils.authoring import notebooks, rules, task_cells
from course_utils.authoring.task_cells import cell, functions
from course_utils.checks.base import Task
from course_utils.checks.variants import same_code, source_of

HINTS = 3


def each_task_once(solution: NotebookNode, tasks: Sequence[Task]) -> Iterator[str]:
    """Every task of the lesson is there, in order, and nothing is there that is none."""
    found = list(dict.fromkeys(place.task for place in task_cells.places(solution)))
    wanted = [task.name for task in tasks]
    for name in wanted:
        if name not in found:
            yield f"the task {name!r} is missing: write the cells 'task-{name}' and 'answer-{name}'"
    for name in found:
        if name not in wanted:
            yield f"the cells of {name!r} belong to no task of this lesson"
    there = [name for name in found if name in wanted]
    if there != [name for name in wanted if name in there]:
        yield f"the tasks stand in the order {there}, their places say {wanted}"


def three_cells_each(solution: NotebookNode, tasks: Sequence[Task]) -> Iterator[str]:
    """Words, answer, check, in this order; only given code may stand before the answer."""
    places = task_cells.places(solution)
    for name in dict.fromkeys(place.task for place in places):
        own = [place for place in places if place.task == name]
        parts = [place.part for place in own]
        if parts != ["task", "answer", "check"]:
            yield f"the cells of {name!r} are {parts}, not task, answer, check"
            continue
        task, answer, check = (place.index for place in own)
        between = [cell.id for cell in solution.cells[task + 1 : answer]]
        between += [cell.id for cell in solution.cells[answer + 1 : check]]
        if strange := [found for found in between if not found.startswith("given-")]:
            yield f"among the cells of {name!r} stands {strange[0]!r}, which is not given code"
        kinds = [solution.cells[place.index].cell_type for place in own]
        if kinds != ["markdown", "code", "code"]:
            yield f"the cells of {name!r} are {kinds}, not Markdown, code, code"


def words_of_its_own(solution: NotebookNode, tasks: Sequence[Task]) -> Iterator[str]:
    """Each task is described, below the heading and above the hints that are written from it."""
    for task in tasks:
        found = cell(solution, "task", task.name)
        if found is None:
            continue
        words = task_cells.own_words(found.source)
        if rules.count_words(words) < rules.FEWEST_WORDS:
            yield f"cell {found.id!r}: say what to do, and why it matters"
        if "<details" in words or any(line.startswith("#") for line in _prose(words)):
            yield f"cell {found.id!r}: no heading or fold-out besides those that are written for it"


def three_hints(solution: NotebookNode, tasks: Sequence[Task]) -> Iterator[str]:
    """Each task has three hints."""
    for task in tasks:
        if len(task.hints) != HINTS:
            yield f"the task {task.name!r} has {len(task.hints)} hints, not {HINTS}"


def solutions_marked(solution: NotebookNode, tasks: Sequence[Task]) -> Iterator[str]:
    """Each answer has something to solve between marks, and no other cell has."""
    answers = {f"answer-{task.name}" for task in tasks}
    for found in notebooks.code_cells(solution):
        try:
            number = len(list(task_cells.regions(found.source)))
        except ValueError as error:
            yield f"cell {found.id!r}: {error}"
            continue
        if found.id in answers and not number:
            yield f"cell {found.id!r} has no {task_cells.BEGIN!r}"
        if found.id not in answers and number:
            yield f"cell {found.id!r} is no answer but has {task_cells.BEGIN!r}"


def solution_is_the_tasks_own(solution: NotebookNode, tasks: Sequence[Task]) -> Iterator[str]:
    """An answer's functions are the code with which the task's checks are tested."""
    for task, answer in _answers(solution, tasks):
        wanted = getattr(task, "solution", None)
        if wanted is not None and not _same(answer.source, source_of(wanted)):
            yield f"cell {answer.id!r} is not the code of the solution in the task's module"


def answer_is_named(solution: NotebookNode, tasks: Sequence[Task]) -> Iterator[str]:
    """The answer that the check looks at is made in the answer's cell."""
    for task, answer in _answers(solution, tasks):
        bound, _ = rules.names(ast.parse(answer.source))
        if task.name not in bound:
            yield f"cell {answer.id!r} does not define {task.name!r}"


def only_adds_lines(
    solution: NotebookNode, exercise: NotebookNode, tasks: Sequence[Task]
) -> Iterator[str]:
    """Solving adds lines to what is given, and changes none."""
    for task, answer in _answers(solution, tasks):
        given = _without_stubs(cell(exercise, "answer", task.name).source)
        rest = iter(answer.source.splitlines())
        lost = next((line for line in given if line not in rest), None)
        if lost is not None:
            yield f"cell {answer.id!r}: the solution lacks the given line {lost.strip()!r}"


def stubs_do_nothing(
    solution: NotebookNode, exercise: NotebookNode, tasks: Sequence[Task]
) -> Iterator[str]:
    """A hole is a comment and `pass`: Triton answers `...` and `raise` with riddles."""
    for _, answer in _answers(exercise, tasks):
        lines = answer.source.splitlines()
        for before, line in zip(["", *lines], lines, strict=False):
            if line.strip() == "pass" and not before.strip().startswith("#"):
                yield f"cell {answer.id!r}: a `pass` without a comment above it"
        for function in functions(answer.source).values():
            for node in ast.walk(function):
                if isinstance(node, ast.Raise) and _is_kernel(function):
                    yield f"cell {answer.id!r}: a kernel cannot raise"
                if isinstance(node, ast.Expr) and _is_ellipsis(node.value):
                    yield f"cell {answer.id!r}: `...` in {function.name}: mark the hole instead"


def repair_starts_broken(
    solution: NotebookNode, exercise: NotebookNode, tasks: Sequence[Task]
) -> Iterator[str]:
    """What is given to repair is the mistake that the task names."""
    for task, answer in _answers(exercise, tasks):
        if task.kind != "repair":
            continue
        (broken,) = (mistake for mistake in task.mistakes if mistake.name == task.broken)
        if not _same(answer.source, broken.source(task.solution)):
            yield f"cell {answer.id!r} does not give the broken code of {task.broken!r}"


OF_SOLUTIONS = (
    each_task_once,
    three_cells_each,
    words_of_its_own,
    three_hints,
    solutions_marked,
    solution_is_the_tasks_own,
    answer_is_named,
)
OF_EXERCISES = (only_adds_lines, stubs_do_nothing, repair_starts_broken)


def of_solution(solution: NotebookNode, tasks: Sequence[Task]) -> list[str]:
    """Every breach of the rules for a solution notebook."""
    return [sentence for rule in OF_SOLUTIONS for sentence in rule(solution, tasks)]


def of_exercise(solution: NotebookNode, exercise: NotebookNode, tasks: Sequence[Task]) -> list[str]:
    """Every breach of the rules for what nbgrader made of a solution notebook."""
    return [sentence for rule in OF_EXERCISES for sentence in rule(solution, exercise, tasks)]


def _answers(notebook: NotebookNode, tasks: Sequence[Task]) -> Iterator[tuple[Task, NotebookNode]]:
    """Each task with its answer's cell, where there is one that can be read."""
    for task in tasks:
        answer = cell(notebook, "answer", task.name)
        if answer is not None and answer.cell_type == "code" and _parses(answer.source):
            yield task, answer


def _parses(source: str) -> bool:
    try:
        ast.parse(source)
    except SyntaxError:  # rules.code_parses says so
        return False
    return True


def _same(source: str, wanted: str) -> bool:
    """Whether a cell defines just these functions; of two with one name the later counts."""
    return same_code("\n".join(map(ast.unparse, functions(source).values())), wanted)


def _without_stubs(source: str) -> list[str]:
    lines = source.splitlines()
    stubs = {i for i, line in enumerate(lines) if line.strip() == "pass"}
    return [line for i, line in enumerate(lines) if not {i, i + 1} & stubs]


def _is_kernel(function: ast.FunctionDef) -> bool:
    return any("jit" in ast.unparse(decorator) for decorator in function.decorator_list)


def _is_ellipsis(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and value.value is ...


def _prose(words: str) -> list[str]:
    return notebooks.prose(words).splitlines()
