"""Render the parts of README.md that come from data: picture, map, a card, links to Colab.

    python -m course_utils.authoring.readme --check
    python -m course_utils.authoring.readme --fix

`make check` and `make fix` do the same among others.

Each part stands between two HTML comments, `<!-- map:begin -->` and `<!-- map:end -->`; all else in
the file is written by hand and left alone.
"""

import argparse
import dataclasses
import functools
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from course_utils import checks
from course_utils.authoring import colab, picture
from course_utils.authoring.notebooks import ROOT, NotebookError
from course_utils.checks.verdict import Verdict
from course_utils.lessons import LESSONS, Lesson

README = "README.md"


class MarkError(Exception):
    """README is missing, or a mark in it lacks its partner; the message says what and where."""


def map_of_the_course(root: Path) -> str:
    """The table of lessons: those whose notebooks exist are links, the others are coming."""
    there = [lesson for lesson in LESSONS if _path(lesson, root).is_file()]
    minutes = sum(lesson.minutes for lesson in there)
    lines = [
        f"{len(there)} of the {len(LESSONS)} lessons are here, about {minutes} minutes together; "
        "those marked *coming* are not written yet. Minutes are for reading and running; *after* "
        "names the lessons to have done before.",
        "",
        "| | lesson | the question it answers | minutes | after |",
        "|---|---|---|---:|---|",
    ]
    for lesson in LESSONS:
        title = f"{lesson.title} (*coming*)"
        if lesson in there:
            title = f"[{lesson.title}]({_path(lesson, Path()).as_posix()})"
        after = ", ".join(f"{number:02d}" for number in lesson.prerequisites) or "–"
        lines.append(
            f"| {lesson.number:02d} | {title} | {lesson.question} | {lesson.minutes} | {after} |"
        )
    return "\n".join(lines)


def picture_of_the_course(root: Path) -> str:
    """The picture with its alt text, and its caption as a sentence that can be seen."""
    shown = picture.inputs()
    return f"![{shown.alt}]({picture.PICTURE.as_posix()})\n\n*{shown.caption}*"


def card_of_a_check(root: Path) -> str:
    """What a check says of an answer with a mistake, as text."""
    return f"```\n{_verdict()}\n```"


PARTS: Mapping[str, Callable[[Path], str]] = {
    "picture": picture_of_the_course,
    "map": map_of_the_course,
    "card": card_of_a_check,
}
"""What stands between which marks. The marks `colab` belong to `colab.py`."""


def marks(part: str) -> tuple[str, str]:
    """The two comments between which a part stands."""
    return f"<!-- {part}:begin -->", f"<!-- {part}:end -->"


def rendered(text: str, root: Path = ROOT) -> str:
    """README's text with every part as the data have it; a part without marks is left out.

    Raises:
        MarkError: a mark has no partner, or a part is there twice.
        colab.SettingError: the repository's address in pyproject.toml cannot be used.
    """
    for part, make in PARTS.items():
        begin, end = marks(part)
        if begin not in text and end not in text:
            continue
        if text.count(begin) != 1 or text.count(end) != 1 or text.index(begin) > text.index(end):
            raise MarkError(
                f"{README}: the part {part!r} must stand between one {begin} and one {end}"
            )
        before, rest = text.split(begin)
        text = f"{before}{begin}\n{make(root)}\n{end}{rest.split(end)[1]}"
    if colab.BEGIN in text:
        text = colab.readme(text, colab.repository(root), root)
    return text


def stale(root: Path = ROOT) -> list[str]:
    """One sentence for each thing that is not as the data have it."""
    path = root / README
    if not path.exists():
        return [f"{README} is missing"]
    text, found = path.read_text(encoding="utf-8"), []
    try:
        if rendered(text, root) != text:
            found.append(f"{README}: a part between marks is stale")
    except (MarkError, colab.SettingError) as error:
        found.append(str(error))
    if _shows_picture(text) and not picture.is_fresh(root):
        found.append(f"{picture.PICTURE.as_posix()}: not what the record says now")
    return found


def write(root: Path = ROOT) -> list[str]:
    """Bring README and its picture up to date; returns the files that changed.

    Raises:
        MarkError, colab.SettingError: as `rendered`; also where there is no README.
    """
    path = root / README
    if not path.exists():
        raise MarkError(f"{README} is missing")
    text = path.read_text(encoding="utf-8")
    wanted, changed = rendered(text, root), []
    if wanted != text:
        path.write_text(wanted, encoding="utf-8")
        changed.append(README)
    if _shows_picture(text) and not picture.is_fresh(root):
        picture.write(root)
        changed.append(picture.PICTURE.as_posix())
    return changed


@functools.cache
def _verdict() -> Verdict:
    """On a kernel whose mask is one too far; without the seconds, which differ from run to run."""
    task = checks.task("scale_add")
    (mistake,) = (one for one in task.mistakes if one.name == "mask_one_too_far")
    verdict = task.check(mistake.build(task.solution), seed=0, time_limit=checks.TIME_LIMIT)
    return dataclasses.replace(verdict, seconds=0.0)


def _shows_picture(text: str) -> bool:
    return marks("picture")[0] in text


def _path(lesson: Lesson, root: Path) -> Path:
    return root / "notebooks" / lesson.notebook


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; with --check the exit status is 1 where something is stale."""
    parser = argparse.ArgumentParser(description="Render what README.md shows from data.")
    choice = parser.add_mutually_exclusive_group(required=True)
    choice.add_argument("--check", action="store_true", help="only say what is stale")
    choice.add_argument("--fix", action="store_true", help="bring it up to date")
    options = parser.parse_args(arguments)
    try:
        found = stale() if options.check else [f"{name}: rendered" for name in write()]
    except (MarkError, colab.SettingError, NotebookError) as error:
        print(error)
        return 2
    for line in found:
        print(line)
    if options.check and found:
        print("repair: make fix")
    return int(options.check and bool(found))


if __name__ == "__main__":
    sys.exit(main())
