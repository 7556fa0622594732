"""Lesson 01's tasks."""

from task_tests import lesson_tests

test_right, test_mistakes, test_complete, test_untouched = lesson_tests("01")
