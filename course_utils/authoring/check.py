"""Every check of form and freshness, each with the one command that repairs it.

    python -m course_utils.authoring.check [--fix]

Nothing here executes a notebook. `--fix` repairs what can be repaired without doing so.
"""

import argparse
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from course_utils.authoring import canonical, colab, exercises, export, notebooks, readme, rules
from course_utils.authoring.notebooks import ROOT, NotebookError


@dataclass(frozen=True)
class Check:
    """A check: what it looks at, what it finds wrong (one line each), and the repair."""

    name: str
    find: Callable[[Path], list[str]]
    repair: str


def ruff(*arguments: str) -> subprocess.CompletedProcess:
    """Run the environment's own ruff in the course's folder."""
    command = [sys.executable, "-m", "ruff", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)


def _ruff_problems(*arguments: str) -> list[str]:
    done = ruff(*arguments, ".")
    return (done.stdout or done.stderr).strip().splitlines() if done.returncode else []


def lint(root: Path) -> list[str]:
    """Code that ruff finds wrong and could repair itself."""
    fixable = set(_ruff_problems("check", "--quiet", "--output-format=concise"))
    return sorted(line for line in fixable if "[*]" in line)


def lint_by_hand(root: Path) -> list[str]:
    """Code that ruff finds wrong and only a person can repair."""
    found = _ruff_problems("check", "--quiet", "--output-format=concise")
    return sorted(line for line in found if "[*]" not in line)


def format_(root: Path) -> list[str]:
    """Files that ruff would format differently."""
    return _ruff_problems("format", "--check", "--quiet")


def canonical_form(root: Path) -> list[str]:
    """Notebooks that are not byte for byte in canonical form."""
    return _each(
        notebooks.find(root),
        lambda path: [] if canonical.is_canonical(path) else ["not in canonical form"],
    )


def executed(root: Path) -> list[str]:
    """Lessons whose outputs are not those of their code."""
    return _each(
        notebooks.lessons(root), lambda path: list(rules.executed(notebooks.read(path), path))
    )


def lesson_rules(root: Path) -> list[str]:
    """Breaches of the rules for notebooks, those about execution aside."""

    def breaches(path: Path) -> list[str]:
        notebook, apart = notebooks.read(path), (rules.executed,)
        kept = [rule for rule in rules.rules_for(path) if rule not in apart]
        return [sentence for rule in kept for sentence in rule(notebook, path)]

    return _each(notebooks.find(root), breaches)


def shelf(root: Path) -> list[str]:
    """Files of course_utils/kernels/ that are not what the lessons export."""
    try:
        return [f"{name}: not what the lessons export" for name in export.stale(root)]
    except NotebookError as error:
        return [str(error)]


def solutions(root: Path) -> list[str]:
    """Solution notebooks in which something differs from the tasks that they solve."""
    try:
        return [f"{name}: not what its tasks say" for name in exercises.outdated(root)]
    except NotebookError as error:
        return [str(error)]


def exercises_fresh(root: Path) -> list[str]:
    """Files of exercises/ that are not what nbgrader makes of the solutions."""
    try:
        return [f"{name}: not what the solutions make" for name in exercises.stale(root)]
    except (NotebookError, colab.SettingError) as error:
        return [str(error)]


def address(root: Path) -> list[str]:
    """Files whose badge or set-up cell does not show the repository's address."""
    try:
        return [f"{name}: badge or set-up cell is stale" for name in colab.stale(root)]
    except (NotebookError, colab.SettingError) as error:
        return [str(error)]


def _each(paths: list[Path], problems: Callable[[Path], list[str]]) -> list[str]:
    found = []
    for path in paths:
        try:
            found += [f"{notebooks.name(path)}: {sentence}" for sentence in problems(path)]
        except NotebookError as error:
            found.append(str(error))
    return found


CHECKS = (
    Check("lint", lint, "make fix"),
    Check("lint, by hand", lint_by_hand, "edit these lines, then make check"),
    Check("format", format_, "make fix"),
    Check("notebooks: repository address", address, "make fix"),
    Check("notebooks: canonical form", canonical_form, "make fix"),
    Check("notebooks: executed", executed, "make notebooks"),
    Check(
        "notebooks: rules for lessons",
        lesson_rules,
        "edit these cells, then make notebooks",
    ),
    Check("shelf: course_utils/kernels/", shelf, "make shelf"),
    Check("solutions: what tasks say", solutions, "make fix"),
    Check(
        "solutions: rules for exercises",
        exercises.breaches,
        "edit these cells or tasks, then make exercises",
    ),
    Check("exercises: generated", exercises_fresh, "make exercises"),
    Check("README: picture, map and card", readme.stale, "make fix"),
)


def fix(root: Path = ROOT) -> None:
    """Repair what needs no execution: lint, format, notebooks' form, exercises, shelf, README.

    Raises `NotebookError`, `colab.SettingError` and `readme.MarkError`.
    """
    ruff("check", "--fix", "--quiet", "--exclude", "*.ipynb", ".")
    ruff("format", "--quiet", "--exclude", "*.ipynb", ".")
    for name in colab.write(root):
        print(f"{name}: rendered")
    for path in notebooks.find(root):
        if canonical.fix(path):
            print(f"{notebooks.name(path)}: rewritten in canonical form")
    for name in export.write(root):
        print(f"{name}: exported")
    for name in exercises.write(root):
        print(f"{name}: written")
    for name in readme.write(root):
        print(f"{name}: rendered")


def main(arguments: list[str] | None = None) -> int:
    """Run every check and print the outcome; the exit status is 1 where one failed."""
    parser = argparse.ArgumentParser(description="Check form and freshness of the whole course.")
    parser.add_argument("--fix", action="store_true", help="first repair what needs no execution")
    options = parser.parse_args(arguments)
    if options.fix:
        try:
            fix()
        except (NotebookError, colab.SettingError, readme.MarkError) as error:
            print(error)
    failed = 0
    for check in CHECKS:
        problems = check.find(ROOT)
        print(f"{'FAILED' if problems else 'ok':8}{check.name}")
        for line in problems:
            print(f"        {line}")
        if problems:
            failed += 1
            print(f"        repair: {check.repair}")
    print(f"{len(CHECKS) - failed} of {len(CHECKS)} checks passed")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
