"""README and CONTRIBUTING say what is true: commands, links, messages, modules, pictures."""

import ast
import dataclasses
import re
import subprocess

import pytest

import course_utils
from course_utils.authoring import check, colab, install, notebooks, picture, readme
from course_utils.diagnosis import TRITON_OLDEST, TRITON_TOO_NEW
from course_utils.lessons import LESSONS

PAGES = ("README.md", "CONTRIBUTING.md")
NAME = "some-owner/some.course"


@pytest.fixture(scope="module", autouse=True)
def set_up():
    """The picture is counted, and counting imports triton: in this process too, after setup()."""
    picture.inputs()


@pytest.fixture(params=PAGES)
def page(request, root):
    return (root / request.param).read_text(encoding="utf-8")


@pytest.fixture
def front(root):
    return (root / "README.md").read_text(encoding="utf-8")


@pytest.fixture
def contributing(root):
    return (root / "CONTRIBUTING.md").read_text(encoding="utf-8")


def code(text):
    """Every code block and code span of a page."""
    blocks = re.findall(r"^ *```\w*\n(.*?)^ *```", text, re.MULTILINE | re.DOTALL)
    rest = re.sub(r"^ *```\w*\n.*?^ *```", "", text, flags=re.MULTILINE | re.DOTALL)
    return blocks + re.findall(r"`([^`\n]+)`", rest)


def commands(text):
    return [words for entry in code(text) for words in re.findall(r"^make\b.*", entry, re.M)]


# Commands, links, files


def test_every_make_command_exists_and_takes_what_it_is_given(page, root):
    makefile = (root / "Makefile").read_text(encoding="utf-8")
    targets = set(re.search(r"^\.PHONY: (.*)", makefile, re.M)[1].split())
    found = commands(page)
    assert len(found) > 10
    for command in found:
        words = re.sub(r'"[^"]*"', "", command).split()[1:]
        for word in words:
            name, equals, _ = word.partition("=")
            if equals:
                assert re.search(rf"\$[({{]?{name}\b", makefile), command
            else:
                assert word in targets, command


def test_contributing_names_every_make_command(contributing, root):
    makefile = (root / "Makefile").read_text(encoding="utf-8")
    targets = set(re.search(r"^\.PHONY: (.*)", makefile, re.M)[1].split())
    table = re.findall(r"^\| `make ([a-z-]+)", contributing, re.MULTILINE)
    assert set(table) == targets and len(table) == len(targets)


def test_every_local_link_resolves(page, root):
    links = re.findall(r"\]\(([^)\s]+)\)", page)
    assert links
    for link in links:
        if not re.match(r"[a-z]+:", link):
            assert (root / link.split("#")[0]).exists(), link


def test_every_file_that_is_named_exists(page, root):
    # The shelf and the exercises are spoken of before they are there.
    coming = ("course_utils/kernels/", "exercises/", "solutions/", "/")
    named = [
        entry
        for entry in code(page)
        if re.fullmatch(r"[\w.-]+/[\w./-]*|[\w-]+\.(?:md|txt|toml|yml)", entry)
        and not entry.startswith(coming)
        and "NN_" not in entry
        and entry not in ("owner/name", ".venv")
    ]
    assert named
    for entry in named:
        assert (root / entry).exists(), entry


def test_nothing_names_this_machine_or_a_made_up_address(page):
    before, _, rest = page.partition(colab.BEGIN)
    text = before + rest.partition(colab.END)[2]
    assert "://" not in text
    assert not re.search(r"(?<![\w.])/(?:work|root|home|tmp)/", text)


def test_no_page_has_a_badge_or_a_link_to_colab_before_the_address_is_set(front, root):
    if colab.repository(root) is None:
        assert "colab.research" not in front and "badge" not in front


# What is rendered


def test_the_marked_parts_and_the_picture_are_fresh(root):
    assert readme.stale(root) == [], "run: make fix"


def test_readme_has_every_part(front):
    for begin, end in (*map(readme.marks, readme.PARTS), (colab.BEGIN, colab.END)):
        assert front.count(begin) == front.count(end) == 1


def test_every_lesson_is_on_the_map_and_those_that_exist_are_links(front, root):
    there = {path.name for path in notebooks.lessons(root)}
    for lesson in LESSONS:
        (row,) = re.findall(rf"^\| {lesson.number:02d} \|.*", front, re.MULTILINE)
        assert lesson.title in row and lesson.question in row
        assert f"| {lesson.minutes} |" in row
        linked = f"[{lesson.title}](notebooks/{lesson.notebook})" in row
        assert linked == (lesson.notebook in there)
        assert ("coming" in row) != linked
    assert f"{len(there)} of the {len(LESSONS)} lessons" in front


@pytest.fixture
def project(course, write_notebook, front):
    """A small course with two lessons and the course's own README."""
    for lesson in (LESSONS[0], LESSONS[3]):
        write_notebook(course / "notebooks" / lesson.notebook, "# Title")
    (course / "README.md").write_text(front, encoding="utf-8")
    return course


def test_the_map_follows_the_lessons(project):
    assert readme.stale(project)
    assert "README.md" in readme.write(project)
    assert readme.stale(project) == [] and readme.write(project) == []
    text = (project / "README.md").read_text(encoding="utf-8")
    assert text.count("](notebooks/0") == 2
    minutes = LESSONS[0].minutes + LESSONS[3].minutes
    assert f"2 of the 14 lessons are here, about {minutes} minutes" in text
    assert "[Fusion](notebooks/03_fusion.ipynb)" in text
    assert "| Start here (*coming*)" not in text and "| The roofline (*coming*)" in text


def test_what_is_written_by_hand_stays(project, front):
    def by_hand(text):
        for begin, end in map(readme.marks, readme.PARTS):
            text = re.sub(f"{begin}.*?{end}", "", text, flags=re.DOTALL)
        return text

    text = front.replace("## Two commands", "## Three commands")
    made = readme.rendered(text, project)
    assert by_hand(made) == by_hand(text) and made != text
    assert readme.rendered("# A page without marks\n", project) == "# A page without marks\n"


def test_links_to_colab_come_with_the_address_and_go_with_it(project):
    readme.write(project)
    before = (project / "README.md").read_text(encoding="utf-8")
    colab.set_repository(NAME, project)
    assert readme.stale(project)
    readme.write(project)
    text = (project / "README.md").read_text(encoding="utf-8")
    assert f"/github/{NAME}/blob/main/notebooks/03_fusion.ipynb" in text
    assert colab.readme(text, NAME, project) == text
    colab.set_repository(None, project)
    readme.write(project)
    assert (project / "README.md").read_text(encoding="utf-8") == before


@pytest.mark.parametrize(
    "text",
    [
        "<!-- map:begin -->\n",
        "<!-- map:end -->\n",
        "<!-- map:end -->\n<!-- map:begin -->\n",
        "<!-- map:begin -->\n<!-- map:end -->\n" * 2,
    ],
)
def test_a_mark_without_its_partner_is_one_clear_error(project, text, monkeypatch, capsys):
    (project / "README.md").write_text(text, encoding="utf-8")
    with pytest.raises(readme.MarkError, match="'map'"):
        readme.write(project)
    assert (project / "README.md").read_text(encoding="utf-8") == text
    (found,) = readme.stale(project)
    assert "<!-- map:begin -->" in found
    monkeypatch.setattr(readme, "write", lambda: readme.rendered(text, project))
    assert readme.main(["--fix"]) == 2
    assert len(capsys.readouterr().out.splitlines()) == 1


def test_the_command_line_says_what_is_stale_and_how_to_repair_it(monkeypatch, capsys):
    monkeypatch.setattr(readme, "stale", lambda: ["README.md: a part between marks is stale"])
    assert readme.main(["--check"]) == 1
    assert "repair: make fix" in capsys.readouterr().out
    monkeypatch.setattr(readme, "stale", list)
    assert readme.main(["--check"]) == 0
    assert capsys.readouterr().out == ""
    monkeypatch.setattr(readme, "write", lambda: ["README.md"])
    assert readme.main(["--fix"]) == 0
    assert capsys.readouterr().out == "README.md: rendered\n"


def test_no_readme_is_no_crash(course):
    (course / "README.md").unlink()
    assert readme.stale(course) == ["README.md is missing"]
    with pytest.raises(readme.MarkError, match="missing"):
        readme.write(course)


def test_make_check_and_make_fix_look_after_readme(project, monkeypatch, capsys):
    (one,) = [one for one in check.CHECKS if "README" in one.name]
    assert one.find(project) and one.repair == "make fix"
    monkeypatch.setattr(check, "ruff", lambda *arguments: None)
    check.fix(project)
    assert one.find(project) == []
    assert "README.md: rendered" in capsys.readouterr().out


# The card


def test_the_card_is_a_check_s_on_a_mistake_and_the_same_in_every_run(front):
    begin, end = readme.marks("card")
    card = front.split(begin)[1].split(end)[0]
    assert card.startswith("\n```\nscale_add: failed (0 of 2 points)\n")
    assert "✗ every lane inside its tensor" in card and "Likely mistake:\n" in card
    assert max(map(len, card.splitlines())) <= 100


# The picture


def test_the_picture_shows_ten_trips_and_two_and_the_recorded_times(front):
    shown = picture.inputs()
    eager, compiled = shown.ways
    assert (eager.trips, compiled.trips) == (10.0, 2.0)
    assert (len(eager.launches), len(compiled.launches)) == (5, 1)
    assert (eager.intensity, compiled.intensity) == (0.125, 0.625)
    assert eager.bytes == 40 * picture.N
    for way in shown.ways:
        row = course_utils.records.load("h200").row(
            "chain", way.case, n=picture.N, dtype=picture.DTYPE
        )
        assert (way.milliseconds, way.bytes, way.flops) == (row.milliseconds, row.bytes, row.flops)
        assert way.time in shown.caption and way.time in shown.alt
    assert f"![{shown.alt}](" in front and shown.label in front


def test_the_alt_text_cannot_break_the_link(front):
    assert not set("[]\n") & set(picture.inputs().alt)


def test_the_picture_is_redrawn_when_what_it_shows_changes():
    shown = picture.inputs()
    eager, compiled = shown.ways
    faster = dataclasses.replace(compiled, milliseconds=compiled.milliseconds / 2)
    others = [
        dataclasses.replace(shown, label=shown.label + "."),
        dataclasses.replace(shown, bandwidth=shown.bandwidth + 1),
        dataclasses.replace(shown, copy_bandwidth=shown.copy_bandwidth + 1),
        dataclasses.replace(shown, ways=(eager, faster)),
        dataclasses.replace(shown, ways=(eager, dataclasses.replace(compiled, flops=1))),
    ]
    fingerprints = {one.fingerprint for one in (shown, *others)}
    assert len(fingerprints) == 1 + len(others)
    assert dataclasses.replace(shown).fingerprint == shown.fingerprint


def test_the_picture_is_redrawn_when_its_drawing_changes(monkeypatch):
    before = picture.inputs().fingerprint
    monkeypatch.setattr(picture, "SIZE", (9.0, 4.0))
    assert picture.inputs().fingerprint != before


def test_the_file_carries_fingerprint_and_description(tmp_path, monkeypatch):
    from PIL import Image

    assert picture.fingerprint(tmp_path / picture.PICTURE) is None
    assert not picture.is_fresh(tmp_path)
    picture.write(tmp_path)
    assert picture.is_fresh(tmp_path)
    path = tmp_path / picture.PICTURE
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]
    with Image.open(path) as image:
        assert image.info["Description"] == picture.inputs().alt
        assert "Software" not in image.info
        # Wide enough to be read, light enough to be loaded.
        assert image.width > 1200
    assert path.stat().st_size < 120_000
    other = dataclasses.replace(picture.inputs(), label="recorded elsewhere")
    monkeypatch.setattr(picture, "inputs", lambda: other)
    assert not picture.is_fresh(tmp_path)


def test_a_file_that_is_no_picture_is_stale(tmp_path):
    path = tmp_path / picture.PICTURE
    path.parent.mkdir(parents=True)
    path.write_text("no picture")
    assert picture.fingerprint(path) is None


# Troubleshooting


def messages(root, *names):
    """What modules can say to a reader: texts of errors, notes, reasons; "…" for what varies."""
    places = []
    for name in names:
        tree = ast.parse((root / "course_utils" / name).read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("explain_"):
                places += [n.value for n in ast.walk(node) if isinstance(n, ast.Return)]
            elif isinstance(node, ast.Assign):
                if getattr(node.targets[0], "id", "") in ("note", "reason"):
                    places.append(node.value)
            elif isinstance(node, ast.Call):
                called = getattr(node.func, "id", getattr(node.func, "attr", ""))
                if called in ("SetupError", "Decision", "write"):
                    places += node.args
    texts = [_text(place).strip() for place in places]
    return [text for text in texts if " " in text]


def _text(node):
    """The text that an expression makes, as far as it stands in the code."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        parts = [part.value if isinstance(part, ast.Constant) else "…" for part in node.values]
        return re.sub("…+", "…", "".join(parts))
    if isinstance(node, ast.BinOp):
        return _text(node.left) + _text(node.right)
    if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "format":
        return _text(node.func.value).replace("{}.{}", "…")
    return ""


def explains(quoted, text):
    return quoted.strip("… ") in text


def quotations(front, title):
    """The code spans in the first column of the table under a heading, and those in brackets."""
    section = front.split(f"### {title}\n")[1].split("\n### ")[0]
    rows = re.findall(r"^\| (`.*?) \| (.*) \|$", section, re.MULTILINE)
    assert len(rows) > 5
    found = [quoted for cell, _ in rows for quoted in re.findall("`([^`]+)`", cell)]
    found += [quoted for _, cell in rows for quoted in re.findall(r"\(`([^`]+)`\)", cell)]
    assert min(map(len, found)) >= len("no GPU found")
    return found


TABLES = [
    ("What the first cell says", ("diagnosis.py", "runtime.py", "probe.py")),
    ("What `make` says", ("authoring/install.py",)),
]
# Said to somebody who has just pressed Ctrl-C.
ASIDE = "Interrupted: run the command again"


@pytest.mark.parametrize(("title", "modules"), TABLES)
def test_every_message_is_explained(front, root, title, modules):
    quoted, said = quotations(front, title), messages(root, *modules)
    assert len(said) > 5
    for text in said:
        if not text.startswith(ASIDE):
            assert any(explains(one, text) for one in quoted), f"README does not explain: {text}"


@pytest.mark.parametrize(("title", "modules"), TABLES)
def test_every_message_that_is_explained_exists(front, root, title, modules):
    said = messages(root, *modules)
    makefile = (root / "Makefile").read_text(encoding="utf-8").replace("$$python", "python3")
    said += re.findall(r'echo "([^"]*)"', makefile)
    for one in quotations(front, title):
        assert any(explains(one, text) for text in said), f"nothing says: {one}"


def test_versions_and_sizes_are_those_of_the_code(front, contributing):
    newest = f"{TRITON_TOO_NEW[0]}.{TRITON_TOO_NEW[1] - 1}"
    for text in (front, contributing):
        assert f"Triton {'.'.join(map(str, TRITON_OLDEST))} to {newest}" in text
        assert f"Python {'.'.join(map(str, install.OLDEST))} to " in text
    assert f"asks for {install.FREE_GB} GB free" in re.sub(r"\s+", " ", front)
    assert f"{install.FREE_GB} GB for the first installation" in front


# The map of the house


def modules_on_the_map(contributing):
    """The files of course_utils that the map lists, in its order, as paths below course_utils."""
    block = contributing.split("## The map of the house")[1].split("```")[1]
    found, folder = [], ""
    for line in block.splitlines():
        entry = re.match(r"( {2}| {4})([\w/]+\.py|\w+/)(?:\s{2,}(\S.*))?$", line)
        if not entry:
            continue
        indent, name, words = entry.groups()
        if name.endswith("/"):
            folder = name
            continue
        assert words, f"{name} has no words"
        found.append((folder if len(indent) == 4 else "") + name)
    return found


def modules_there(root):
    """The package's files that the map lists; in a git repository, those that it knows.

    The generated shelf and the tasks are aside: they are listed by their folder.
    """
    listed = subprocess.run(
        ["git", "ls-files", "course_utils"], cwd=root, capture_output=True, text=True
    ).stdout.splitlines()
    paths = [root / name for name in listed] or (root / "course_utils").rglob("*.py")
    files = {path.relative_to(root / "course_utils") for path in paths if path.exists()}
    return {
        path.as_posix()
        for path in files
        if path.suffix == ".py"
        and path.parts[0] != "kernels"
        and not re.match(r"checks/library/l\d\d_", path.as_posix())
    }


def test_the_map_names_every_module_and_no_other(contributing, root):
    listed = modules_on_the_map(contributing)
    assert len(listed) == len(set(listed))
    assert set(listed) == modules_there(root)


def test_modules_import_only_what_stands_above_them(contributing, root):
    # A folder stands where its last file does: what only meter/traffic.py gives is asked of it.
    place = {}
    for index, name in enumerate(modules_on_the_map(contributing)):
        place[name.split("/")[0].removesuffix(".py")] = index
    for name in modules_there(root):
        unit = name.split("/")[0].removesuffix(".py")
        if unit == "__init__":
            continue
        tree = ast.parse((root / "course_utils" / name).read_text(encoding="utf-8"))
        for used in set(imported(tree)) - {
            "kernels"
        }:  # the shelf: generated, imports runtime alone
            assert used == unit or place[used] < place[unit], f"{name} imports {used}"


def imported(tree):
    """The modules and folders of course_utils that a module imports, to run and not to check."""
    typing = {
        id(node)
        for branch in ast.walk(tree)
        if isinstance(branch, ast.If) and getattr(branch.test, "id", "") == "TYPE_CHECKING"
        for node in ast.walk(branch)
    }
    for node in ast.walk(tree):
        if id(node) in typing:
            continue
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        for name in names:
            package, *rest = name.split(".")
            if package == "course_utils" and rest:
                yield course_utils._NAMES.get(rest[0], rest[0])
