"""`make check` says what is wrong and which one command repairs it; `make fix` does."""

import pytest

from course_utils.authoring import canonical, check, export, notebooks

SETUP = "import course_utils\n\nmachine = course_utils.setup()"
NOTEBOOK_CHECKS = {c.name: c for c in check.CHECKS if "lint" not in c.name and c.name != "format"}


@pytest.fixture
def project(course, write_notebook):
    """A course with one lesson that exports a function, all of it fresh but not executed."""
    write_notebook(
        course / "notebooks" / "04_first.ipynb",
        "# Title",
        SETUP,
        "#| default_exp elementwise",
        '#| export\ndef twice(x):\n    """Twice x."""\n    return 2 * x',
    )
    canonical.fix(course / "notebooks" / "04_first.ipynb")
    export.write(course)
    return course


def failing(root):
    return {name: one.find(root) for name, one in NOTEBOOK_CHECKS.items() if one.find(root)}


def test_each_check_has_a_repair():
    assert {one.repair for one in check.CHECKS} >= {"make fix", "make notebooks", "make shelf"}


def test_staleness_of_each_kind_is_found(project):
    found = failing(project)
    assert set(found) == {"notebooks: executed", "notebooks: rules for lessons"}
    assert NOTEBOOK_CHECKS["notebooks: executed"].repair == "make notebooks"

    path = project / "notebooks" / "04_first.ipynb"
    path.write_text(path.read_text().replace("2 * x", "3 * x"))
    assert set(failing(project)) - set(found) == {"shelf: course_utils/kernels/"}

    path.write_text(path.read_text().replace("machine = ", "found = "))
    assert "notebooks: repository address" in failing(project)

    path.write_text(path.read_text() + "\n")
    assert "notebooks: canonical form" in failing(project)


def test_fix_repairs_all_that_needs_no_execution(project, monkeypatch, capsys):
    asked = []
    monkeypatch.setattr(check, "ruff", lambda *arguments: asked.append(arguments[0]))
    path = project / "notebooks" / "04_first.ipynb"
    changed = path.read_text().replace("2 * x", "3*x").replace("machine = ", "found = ")
    path.write_text(changed + "\n")
    check.fix(project)
    assert set(failing(project)) == {"notebooks: executed", "notebooks: rules for lessons"}
    assert asked == ["check", "format"]
    path.write_text(path.read_text() + "\n")
    check.fix(project)
    assert canonical.is_canonical(path)
    assert "04_first.ipynb" in capsys.readouterr().out


def test_a_broken_notebook_is_reported_by_every_check_and_crashes_none(project):
    (project / "notebooks" / "04_first.ipynb").write_text("{")
    for name, found in failing(project).items():
        assert "04_first.ipynb" in found[0], name


@pytest.mark.parametrize("wrong", [[], ["a.py:1: x"]])
def test_the_summary_and_the_exit_status(monkeypatch, capsys, wrong):
    checks = (
        check.Check("first", lambda root: [], "make a"),
        check.Check("second", lambda root: wrong, "make b"),
    )
    monkeypatch.setattr(check, "CHECKS", checks)
    assert check.main([]) == len(wrong)
    said = capsys.readouterr().out
    assert ("repair: make b" in said) == bool(wrong)
    assert "repair: make a" not in said
    assert f"{2 - len(wrong)} of 2 checks passed" in said


def test_ruff_finds_what_it_should(tmp_path, monkeypatch):
    monkeypatch.setattr(check, "ROOT", tmp_path)
    (tmp_path / "a.py").write_text("import os\nx = undefined\ny = { 'a':1 }\n")
    assert any("F401" in line for line in check.lint(tmp_path))
    assert any("F821" in line for line in check.lint_by_hand(tmp_path))
    assert not any("F401" in line for line in check.lint_by_hand(tmp_path))
    assert check.format_(tmp_path)


def test_the_course_lints_notebooks_too(root):
    done = check.ruff("check", "--show-files", ".")
    listed = done.stdout
    for path in notebooks.find():
        assert str(path) in listed
    assert str(root / "course_utils" / "authoring" / "check.py") in listed
