"""Lesson 04's tasks."""

from task_tests import tests_of

test_right, test_mistakes, test_complete, test_untouched = tests_of("04")
