"""An action waits for a module without importing it, and happens once."""

import importlib
import importlib.util
import sys

import pytest

from course_utils.when_imported import when_imported


@pytest.fixture
def module(tmp_path, monkeypatch):
    """The name of a module that can be imported, and is not yet."""
    (tmp_path / "a_module_to_wait_for.py").write_text("value = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    name = "a_module_to_wait_for"
    finders = list(sys.meta_path)
    yield name
    sys.modules.pop(name, None)
    assert sys.meta_path == finders


def test_it_happens_after_the_import_and_once(module):
    seen = []

    def action():
        seen.append(sys.modules[module].value)

    when_imported(module, action)
    when_imported(module, action)
    assert seen == [] and module not in sys.modules
    assert importlib.util.find_spec(module) is not None  # to look is not to import
    assert seen == []
    importlib.import_module(module)
    assert seen == [1, 1]
    del sys.modules[module]
    importlib.import_module(module)
    assert seen == [1, 1]


def test_it_happens_at_once_where_the_module_is_there(module):
    importlib.import_module(module)
    seen = []
    when_imported(module, lambda: seen.append(True))()
    assert seen == [True]


def test_it_can_be_called_off(module):
    call_off = when_imported(module, lambda: pytest.fail("called off"))
    spec = importlib.util.find_spec(module)
    call_off()
    spec.loader.exec_module(importlib.util.module_from_spec(spec))
    importlib.import_module(module)
    call_off()


def test_a_module_that_does_not_exist_is_missing_as_ever():
    call_off = when_imported("no_module_of_this_name", lambda: None)
    with pytest.raises(ModuleNotFoundError, match="no_module_of_this_name"):
        importlib.import_module("no_module_of_this_name")
    call_off()
