"""Render the repository's public address into notebooks and README: badge and Colab set-up.

    python -m course_utils.authoring.colab [--check] [owner/name]

One setting, `Repository` under `[project.urls]` in pyproject.toml, is the source. While it is unset
there is no badge and nothing tries to download. An empty name unsets it.
"""

import argparse
import re
import sys
import tomllib
from pathlib import Path

import nbformat

from course_utils.authoring import canonical, notebooks
from course_utils.authoring.notebooks import NotebookError

REPOSITORY = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,37}[A-Za-z0-9])?/[A-Za-z0-9._-]{1,100}")
HOST = "https://github.com/"
BRANCH = "main"
URLS, EXTRAS = "[project.urls]", "[project.optional-dependencies]"

LOCAL_SETUP = """\
import course_utils

machine = course_utils.setup()
"""
COLAB_SETUP = """\
import os
import sys
from importlib.util import find_spec

if "COLAB_RELEASE_TAG" in os.environ:  # on Colab: fetch what is missing, upgrade nothing
    if not os.path.isdir("/content/course"):
        !git clone --depth 1 {host}{repository} /content/course
        !pip install --no-deps -e /content/course
    if find_spec("triton") is None:
        !pip install --no-deps "{triton}"
    sys.path.insert(0, "/content/course")  # pip's entry is seen only after a restart

"""
BADGE = "[![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)]({link})"
BEGIN, END = "<!-- colab:begin -->", "<!-- colab:end -->"


class SettingError(Exception):
    """The repository's name cannot be used; the message says why and what is expected."""


def repository(root: Path = notebooks.ROOT) -> str | None:
    """The setting, as owner/name; None while it is unset. Raises `SettingError`."""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    url = project.get("urls", {}).get("Repository")
    return None if url is None else checked(url.removeprefix(HOST))


def checked(name: str) -> str:
    """The name itself, if it has the form owner/name. Raises `SettingError`."""
    if not REPOSITORY.fullmatch(name) or name.endswith((".git", "/.", "/..")):
        raise SettingError(
            f"{name!r} is no repository name: write owner/name, as in `make colab REPO=owner/name`"
        )
    return name


def set_repository(name: str | None, root: Path = notebooks.ROOT) -> None:
    """Write the setting to pyproject.toml, or remove it. Raises `SettingError`."""
    path = root / "pyproject.toml"
    old = _text(path)
    new = re.sub(r'^Repository = "[^"]*"\n', "", old, flags=re.MULTILINE)
    if name:
        line = f'Repository = "{HOST}{checked(name)}"\n'
        if URLS not in new:
            new = new.replace(f"\n{EXTRAS}\n", f"\n{URLS}\n\n{EXTRAS}\n", 1)
        new = new.replace(f"{URLS}\n", f"{URLS}\n{line}", 1)
    else:
        new = new.replace(f"{URLS}\n\n", "")
    if new != old:
        path.write_text(new, encoding="utf-8")


def setup_cell(name: str | None, root: Path = notebooks.ROOT) -> str:
    """The source of every notebook's set-up cell."""
    colab = ""
    if name:
        colab = COLAB_SETUP.format(host=HOST, repository=name, triton=_triton(root))
    return (colab + LOCAL_SETUP).rstrip()


def link(path: str, name: str) -> str:
    """Where Colab opens the notebook; `path` is relative to the course's folder."""
    return f"https://colab.research.google.com/github/{name}/blob/{BRANCH}/{path}"


def rendered(
    notebook: nbformat.NotebookNode, path: Path, name: str | None, root: Path = notebooks.ROOT
) -> nbformat.NotebookNode:
    """Put badge and set-up cell into the notebook (which is changed and returned).

    A solution has no badge: in Colab one opens the exercise that is made of it.
    """
    where = path.resolve().relative_to(root)
    notebook.cells = [cell for cell in notebook.cells if cell.get("id") != notebooks.BADGE_ID]
    for cell in notebook.cells:
        if notebooks.is_setup(cell):
            cell.source = setup_cell(name, root)
    if name and where.parts[0] != "solutions":
        badge = nbformat.v4.new_markdown_cell(BADGE.format(link=link(where.as_posix(), name)))
        badge.id = notebooks.BADGE_ID
        notebook.cells.insert(0, badge)
    return notebook


def readme(text: str, name: str | None, root: Path = notebooks.ROOT) -> str:
    """README's text with the badge and one link per lesson between the two marks.

    The marks are put below the title where there are none.
    """
    if BEGIN not in text:
        if name is None:
            return text
        text = re.sub(r"\A(#[^\n]*\n)", rf"\1\n{BEGIN}\n{END}\n", text)
    block = f"{BEGIN}\n"
    lessons = [path.relative_to(root).as_posix() for path in notebooks.lessons(root)]
    if name and lessons:
        links = " · ".join(f"[{Path(path).name[:2]}]({link(path, name)})" for path in lessons)
        block += f"{BADGE.format(link=link(lessons[0], name))}\n\nA lesson in Colab: {links}\n"
    return re.sub(
        rf"{re.escape(BEGIN)}\n.*?(?={re.escape(END)})", lambda _: block, text, flags=re.DOTALL
    )


def stale(root: Path = notebooks.ROOT) -> list[str]:
    """The files that do not show the setting. Raises `SettingError` and `NotebookError`."""
    return [name for name, text in _wanted(root).items() if _text(root / name) != text]


def write(root: Path = notebooks.ROOT) -> list[str]:
    """Render the setting everywhere; returns the files that changed."""
    changed = []
    for name, text in _wanted(root).items():
        if _text(root / name) != text:
            (root / name).write_text(text, encoding="utf-8")
            changed.append(name)
    return changed


def _wanted(root: Path) -> dict[str, str]:
    name = repository(root)
    wanted = {}
    for path in notebooks.find(root):
        notebook = notebooks.read(path)
        before = (notebooks.executed_source(notebook), notebooks.source_hash(notebook))
        old = [(cell.get("id"), cell.source) for cell in notebook.cells]
        notebook = rendered(notebook, path, name, root)
        if old != [(cell.get("id"), cell.source) for cell in notebook.cells]:
            assert before == (notebooks.executed_source(notebook), notebooks.source_hash(notebook))
            form = canonical.canonical(notebook, outputs=notebooks.keeps_outputs(path))
            wanted[path.relative_to(root).as_posix()] = canonical.text(form)
    if (root / "README.md").exists():
        wanted["README.md"] = readme(_text(root / "README.md"), name, root)
    return wanted


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def _triton(root: Path) -> str:
    """Triton's version range, from the one place that has it."""
    project = tomllib.loads(_text(root / "pyproject.toml"))["project"]
    return next(d.split(";")[0].strip() for d in project["dependencies"] if d.startswith("triton"))


def main(arguments: list[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description="Set and render the repository's address.")
    parser.add_argument("--check", action="store_true", help="only say what is stale")
    parser.add_argument("repository", nargs="?", help="owner/name; empty to unset it")
    options = parser.parse_args(arguments)
    try:
        if options.repository is not None and not options.check:
            set_repository(options.repository or None)
        changed = stale() if options.check else write()
    except (SettingError, NotebookError) as error:
        print(error)
        return 2
    for name in changed:
        print(f"{name}: {'stale' if options.check else 'rendered'}")
    if not options.check:
        now = repository()
        print(f"The course's address is {HOST}{now}" if now else "The course has no address yet.")
    return int(options.check and bool(changed))


if __name__ == "__main__":
    sys.exit(main())
