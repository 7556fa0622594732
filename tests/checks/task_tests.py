"""The tests of one lesson's tasks: mistakes are rejected and named, right answers are accepted.

One module a lesson uses this, so that lessons are tested side by side.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

import course_utils
from course_utils import checks
from course_utils.checks.question_task import Number, QuestionTask

course_utils.machine()
SEED = 20_261_130
TIME_LIMIT = 60.0


def lesson_tests(lesson: str) -> tuple[Callable, ...]:
    """Return the tests of a lesson's tasks: right answers, wrong answers, what all must have."""
    tasks = checks.tasks(lesson)
    assert tasks, f"lesson {lesson} has no tasks"

    @_each("answer", [pair for task in tasks for pair in right_answers(task)])
    def test_right_answer_is_accepted(task, name, answer):
        verdict = check(task, answer)
        assert verdict.passed, str(verdict)
        assert verdict.points == task.points

    @_each("answer", [pair for task in tasks for pair in wrong_answers(task)])
    def test_mistake_is_rejected_and_named(task, name, answer):
        verdict = check(task, answer)
        assert verdict.state == checks.FAILED, str(verdict)
        assert verdict.mistake == name, str(verdict)
        assert verdict.likely
        assert verdict.points == 0

    @pytest.mark.parametrize("task", tasks, ids=lambda task: task.name)
    def test_task_is_complete(task):
        assert len(task.hints) == 3
        assert 1 <= task.minutes <= 45
        for part in getattr(task, "questions", [task]):
            names = [wrong.name for wrong in getattr(part, "slips", None) or part.mistakes]
            assert len(names) == len(set(names)), "two mistakes with one name"
        if task.kind in ("kernel", "repair", "function"):
            assert len(task.mistakes) >= 6
            assert len(task.alternatives) >= 3

    @pytest.mark.parametrize("task", tasks, ids=lambda task: task.name)
    def test_untouched_exercise_is_not_attempted(task):
        for answer in untouched(task):
            assert check(task, answer).state == checks.NOT_ATTEMPTED

    return (
        test_right_answer_is_accepted,
        test_mistake_is_rejected_and_named,
        test_task_is_complete,
        test_untouched_exercise_is_not_attempted,
    )


def check(task, answer):
    """Judge an answer with the inputs that these tests always use."""
    return task.check(answer, seed=SEED, time_limit=TIME_LIMIT)


def untouched(task) -> list:
    """Return what is there before a reader has done anything."""
    if isinstance(task, QuestionTask):
        return [None, {}, {question.name: None for question in task.questions}]
    broken = [m for m in task.mistakes if m.name == getattr(task, "broken", None)]
    return [None, _nothing, *(mistake.build(task.solution) for mistake in broken)]


def _nothing(*arguments):
    pass


def right_answers(task) -> list[tuple]:
    """Return a task's right answers as (task, name, answer)."""
    if isinstance(task, QuestionTask):
        answers = right_dict(task)
        others = [
            (task, f"{question.name}={alias}", {**answers, question.name: alias})
            for question in task.questions
            if isinstance(question, Number)
            for alias in question.aliases
        ]
        return [(task, "solution", answers), *others]
    others = [(task, a.name, a.build(task.solution)) for a in task.alternatives]
    return [(task, "solution", task.solution[-1]), *others]


def wrong_answers(task) -> list[tuple]:
    """Return a task's known mistakes as (task, name, answer)."""
    if isinstance(task, QuestionTask):
        answers = right_dict(task)
        return [
            (task, slip.name, {**answers, question.name: slip.value})
            for question in task.questions
            for slip in question.slips
        ]
    return [(task, m.name, _touched(task, m)) for m in task.mistakes]


def _touched(task, mistake):
    """Build a mistake; the one that a repair begins with counts as attempted once it is changed."""
    if getattr(task, "broken", None) != mistake.name:
        return mistake.build(task.solution)
    edit = (f"def {task.name}(x):\n", f"def {task.name}(x):\n    assert x is not None\n")
    return replace(mistake, edits=[*mistake.edits, edit]).build(task.solution)


def right_dict(task: QuestionTask) -> dict:
    """Return the right answers to a task's questions, of a formula its first alias."""
    return {
        question.name: question.aliases[0] if question.aliases else question.truth()
        for question in task.questions
    }


def _each(what: str, answers: list[tuple]):
    return pytest.mark.parametrize(
        ("task", "name", what), answers, ids=[f"{task.name}-{name}" for task, name, _ in answers]
    )
