"""How many mistakes the checks know, and how many other right answers: counted, and printed."""

from __future__ import annotations

import pytest
from task_tests import right_answers, wrong_answers

from course_utils import checks

MISTAKES, ALTERNATIVES, TASKS = 70, 30, 18


def test_the_checks_know_enough_mistakes_and_alternatives(record_property):
    rows = []
    for task in checks.tasks():
        mistakes, alternatives = len(wrong_answers(task)), len(right_answers(task)) - 1
        rows.append((task.key, task.kind, mistakes, alternatives))
    lessons = [row for row in rows if row[0] < "07"]
    mistakes, alternatives = (sum(row[i] for row in lessons) for i in (2, 3))
    table = [f"{'task':28} {'kind':9} {'mistakes':>8} {'alternatives':>12}"]
    table += [f"{key:28} {kind:9} {counts[0]:8} {counts[1]:12}" for key, kind, *counts in rows]
    table += [f"{'lessons 01-06':38} {mistakes:8} {alternatives:12}"]
    record_property("summary", "\n".join(table))
    assert len(lessons) >= TASKS
    assert mistakes >= MISTAKES
    assert alternatives >= ALTERNATIVES


def test_an_unknown_task_names_the_nearest():
    with pytest.raises(ValueError, match="did you mean 'scale_add'"):
        checks.task("scale_ad")
    with pytest.raises(AttributeError, match="did you mean 'scale_add'"):
        _ = checks.check_scale_ad
