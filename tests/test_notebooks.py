"""Every notebook of the course keeps every rule; new ones are found by themselves.

What the rules ask for is in course_utils/authoring/rules.py. That the notebooks also run, and print
what they claim, is nbval's part of `make test`.
"""

import ast

import pytest

from course_utils.authoring import canonical, check, colab, export, notebooks, rules

ALL = notebooks.find()
CASES = [
    pytest.param(path, rule, id=f"{notebooks.name(path)}-{rule.__name__}")
    for path in ALL
    for rule in rules.rules_for(path)
]


def repair(path, sentences):
    """The failure's text: what is wrong, and which command to run once it is repaired."""
    listed = "\n".join(f"  {sentence}" for sentence in sentences)
    then = "make notebooks" if notebooks.keeps_outputs(path) else "make fix"
    return f"{notebooks.name(path)}:\n{listed}\nRepair the cells, then run `{then}`."


@pytest.mark.parametrize(("path", "rule"), CASES)
def test_rule(path, rule):
    found = list(rule(notebooks.read(path), path))
    if found:
        pytest.fail(repair(path, found), pytrace=False)


@pytest.mark.parametrize("path", [pytest.param(p, id=notebooks.name(p)) for p in ALL])
def test_canonical_form(path):
    assert canonical.is_canonical(path), f"{notebooks.name(path)}: run `make fix`"


@pytest.mark.parametrize("path", [pytest.param(p, id=p.name) for p in notebooks.lessons()])
def test_every_lesson_has_its_place_on_the_map(path):
    from course_utils.lessons import LESSONS

    assert path.name in {lesson.notebook for lesson in LESSONS}


def test_nothing_but_notebooks_of_the_course_lies_in_notebooks(root):
    lessons = set(notebooks.lessons())
    others = {path for path in (root / "notebooks").glob("*.ipynb")} - lessons
    assert not others, f"name them NN_name.ipynb: {sorted(path.name for path in others)}"


def test_the_set_up_cell_is_the_same_everywhere():
    stale = colab.stale()
    assert not stale, f"{stale} show another set-up cell or address: run `make fix`"


def test_the_shelf_is_fresh():
    stale = export.stale()
    assert not stale, f"{stale} are not what the lessons export: run `make shelf`"


def test_the_shelf_imports_little(root):
    allowed = {"collections", "course_utils", "cuda", "math", "numba", "torch", "triton", "typing"}
    for path in (root / "course_utils" / "kernels").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            found = []
            if isinstance(node, ast.Import):
                found = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                # `from course_utils import runtime` names its module after `import`.
                inside = node.module == "course_utils"
                found = [f"course_utils.{a.name}" for a in node.names] if inside else [node.module]
            for module in found:
                assert module.split(".")[0] in allowed, f"{path.name} imports {module}"
                if module.startswith("course_utils"):
                    assert module.split(".")[1:2] in (["runtime"], ["kernels"]), path.name


PLAIN = [pytest.param(c, id=c.name) for c in check.CHECKS if "notebooks" not in c.name]


@pytest.mark.parametrize("one", PLAIN)
def test_code_is_linted_and_formatted(one, root):
    found = one.find(root)
    assert not found, "\n".join([*found, f"repair: {one.repair}"])
