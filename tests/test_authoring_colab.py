"""The repository's address: one setting, rendered everywhere, reversible, and nothing before it."""

import json
import os
import subprocess
import sys
import tomllib

import nbformat
import pytest

from course_utils.authoring import canonical, colab, notebooks

NAME = "some-owner/some.course"
ADDRESS = f"https://github.com/{NAME}"
SETUP = "import course_utils\n\nmachine = course_utils.setup()"


@pytest.fixture
def project(course, write_notebook):
    """A course with two lessons and an exercise, in canonical form."""
    for name in ("notebooks/00_start_here", "notebooks/01_next", "exercises/04_x/04_x"):
        path = write_notebook(course / f"{name}.ipynb", "# Title", SETUP, "1 + 1")
        notebook = notebooks.read(path)
        for count, cell in enumerate(notebooks.code_cells(notebook), 1):
            cell.execution_count = count
        notebook.metadata.course = {"executed_source": notebooks.source_hash(notebook)}
        nbformat.write(notebook, path)
        canonical.fix(path)
    return course


def everything(root):
    return {
        path.relative_to(root).as_posix(): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


def test_unset_means_no_badge_and_no_download(project):
    assert colab.repository(project) is None
    assert colab.write(project) == []
    for name, data in everything(project).items():
        assert b"colab.research" not in data and b"git clone" not in data, name


def test_set_render_unset_leads_back_byte_for_byte(project):
    before = everything(project)
    colab.set_repository(NAME, project)
    changed = colab.write(project)
    assert "README.md" in changed and len(changed) == 4
    assert colab.stale(project) == [] and colab.write(project) == []
    colab.set_repository(None, project)
    colab.write(project)
    after = everything(project)
    # README keeps the two (invisible) marks, so that the badge comes back to the same place.
    readme = after.pop("README.md").decode()
    before.pop("README.md")
    assert colab.BEGIN in readme and "http" not in readme
    assert after == before


def test_the_setting_is_in_pyproject_alone(project):
    colab.set_repository(NAME, project)
    text = (project / "pyproject.toml").read_text()
    assert tomllib.loads(text)["project"]["urls"] == {"Repository": ADDRESS}
    assert colab.repository(project) == NAME
    colab.set_repository(NAME, project)
    assert (project / "pyproject.toml").read_text() == text
    colab.set_repository("other/name", project)
    assert colab.repository(project) == "other/name"
    assert text.count("[project.urls]") == 1


def test_other_addresses_in_pyproject_stay(project):
    path = project / "pyproject.toml"
    colab.set_repository(NAME, project)
    line = 'Documentation = "https://example.org"\n'
    path.write_text(path.read_text().replace("[project.urls]\n", f"[project.urls]\n{line}"))
    colab.set_repository(None, project)
    assert tomllib.loads(path.read_text())["project"]["urls"] == {
        "Documentation": "https://example.org"
    }
    colab.set_repository(NAME, project)
    assert len(tomllib.loads(path.read_text())["project"]["urls"]) == 2


def test_every_notebook_gets_the_same_set_up_and_its_own_badge(project):
    colab.set_repository(NAME, project)
    colab.write(project)
    cells = set()
    for path in notebooks.find(project):
        notebook = notebooks.read(path)
        cells.add(next(c.source for c in notebook.cells if notebooks.is_setup(c)))
        where = path.relative_to(project).as_posix()
        assert f"/github/{NAME}/blob/main/{where}" in notebook.cells[0].source
        assert canonical.is_canonical(path)
    assert len(cells) == 1


def test_rendering_leaves_lessons_executed(project):
    path = project / "notebooks" / "00_start_here.ipynb"
    colab.set_repository(NAME, project)
    colab.write(project)
    notebook = notebooks.read(path)
    assert notebooks.executed_source(notebook) == notebooks.source_hash(notebook)


def test_readme_links_every_lesson(project):
    colab.set_repository(NAME, project)
    colab.write(project)
    text = (project / "README.md").read_text()
    assert text.startswith(f"# A small course\n\n{colab.BEGIN}\n[![Open in Colab]")
    assert f"[01](https://colab.research.google.com/github/{NAME}/blob/main/notebooks/01_" in text
    assert "exercises" not in text
    assert text.endswith("\n\nText.\n")


def test_a_changed_set_up_cell_is_stale(project, write_notebook):
    other = SETUP.replace("machine =", "found =")
    write_notebook(project / "notebooks" / "01_next.ipynb", "# Title", other)
    assert colab.stale(project) == ["notebooks/01_next.ipynb"]
    colab.write(project)
    assert colab.stale(project) == []


@pytest.mark.parametrize(
    "name",
    [
        "name",
        "https://github.com/a/b",
        "a/b/c",
        "a/b c",
        "-a/b",
        "a/..",
        "a/b.git",
        'a/b"; touch x; "',
        "a/$(x)",
        "a/b\n",
        "ü/b",
    ],
)
def test_a_bad_name_is_one_clear_error(project, monkeypatch, name, capsys):
    monkeypatch.setattr(notebooks, "ROOT", project)
    before = everything(project)
    with pytest.raises(colab.SettingError, match="owner/name"):
        colab.set_repository(name, project)
    assert everything(project) == before
    assert colab.main(["--", name]) == 2
    assert len(capsys.readouterr().out.strip().splitlines()) <= 2


@pytest.mark.parametrize("name", [None, NAME])
def test_the_set_up_cell_is_in_canonical_form_short_and_visible(name):
    source = colab.setup_cell(name)
    cell = nbformat.v4.new_code_cell(source)
    made = canonical.canonical(nbformat.v4.new_notebook(cells=[cell]), outputs=True)
    assert made.cells[0].source == source
    assert len(source.splitlines()) <= 16
    assert notebooks.is_setup(cell)
    notebooks.syntax_tree(cell)
    for hidden in ("%%capture", "-q", "--quiet", "/dev/null", "--upgrade", "ipywidgets"):
        assert hidden not in source


# Runs the set-up cell as Colab would, with `git` and `pip` that only note what they are asked for.
AS_ON_COLAB = """
import importlib.util, json, os, sys, types
from IPython.core.interactiveshell import InteractiveShell

shell = InteractiveShell.instance()
asked, here = [], json.loads(sys.argv[2])
shell.system = asked.append
sys.modules["course_utils"] = types.SimpleNamespace(setup=lambda: asked.append("setup"))
importlib.util.find_spec = lambda name: here["triton"]
os.path.isdir = lambda path: here["clone"]
with open(sys.argv[1]) as cell:
    shell.run_cell(cell.read()).raise_error()
print(json.dumps(asked))
"""


@pytest.mark.parametrize(
    ("on_colab", "clone", "triton", "expected"),
    [
        (True, False, False, ["git clone", "pip install", "pip install", "setup"]),
        (True, False, True, ["git clone", "pip install", "setup"]),
        (True, True, True, ["setup"]),
        (False, False, False, ["setup"]),
    ],
)
def test_on_colab_only_what_is_missing_is_fetched(tmp_path, on_colab, clone, triton, expected):
    (tmp_path / "cell.py").write_text(colab.setup_cell(NAME))
    environment = {k: v for k, v in os.environ.items() if k != "COLAB_RELEASE_TAG"}
    environment["IPYTHONDIR"] = str(tmp_path)
    if on_colab:
        environment["COLAB_RELEASE_TAG"] = "release"
    here = json.dumps({"clone": clone, "triton": triton or None})
    done = subprocess.run(
        [sys.executable, "-c", AS_ON_COLAB, tmp_path / "cell.py", here],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    asked = json.loads(done.stdout.splitlines()[-1])
    assert [" ".join(command.split()[:2]) for command in asked] == expected
    for command in asked:
        if command.startswith("pip"):
            assert "--no-deps" in command
        if command.startswith("git"):
            assert f"{ADDRESS} /content/course" in command
