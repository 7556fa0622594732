"""pyproject.toml, constraints.txt and environment.yml say one thing, each in its own place."""

import importlib.metadata
import re
import tomllib

import pytest
import yaml
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name


@pytest.fixture
def project(root):
    return tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]


@pytest.fixture
def pins(root):
    """Package -> version, from constraints.txt."""
    found = {}
    for line in (root / "constraints.txt").read_text(encoding="utf-8").splitlines():
        if line.strip() and not line.startswith("#"):
            requirement = Requirement(line)
            name = canonicalize_name(requirement.name)
            assert name not in found, f"{name} is pinned twice"
            found[name] = requirement
    return found


@pytest.fixture
def direct(project):
    """Every requirement that pyproject.toml names, with the extra it is in."""
    listed = [("", text) for text in project["dependencies"]]
    for extra, texts in project["optional-dependencies"].items():
        listed += [(extra, text) for text in texts]
    return [(extra, Requirement(text)) for extra, text in listed]


def own(requirement, project):
    return canonicalize_name(requirement.name) == project["name"]


def test_every_pin_is_one_exact_version(pins):
    for name, requirement in pins.items():
        operators = [(s.operator, "*" in s.version) for s in requirement.specifier]
        assert operators == [("==", False)], name
        assert "+" not in str(requirement), f"{name}: a local build is on one machine only"
        assert not requirement.url and not requirement.marker, name


def test_one_environment_holds_every_extra(direct, project):
    """`make` installs the `dev` extra: pins that do not go together would show there."""
    (held,) = [found.extras for extra, found in direct if extra == "dev" and own(found, project)]
    assert held == set(project["optional-dependencies"]) - {"dev"}


def test_every_direct_dependency_is_pinned_within_its_range(direct, pins, project):
    for _, requirement in direct:
        if own(requirement, project):
            continue
        name = canonicalize_name(requirement.name)
        assert name in pins, f"constraints.txt lacks {name}"
        version = next(iter(pins[name].specifier)).version
        assert requirement.specifier.contains(version), f"{name} {version} is outside its range"


def test_every_direct_dependency_has_a_lower_bound_and_is_listed_once(direct, project):
    seen = set()
    for extra, requirement in direct:
        if own(requirement, project):
            assert requirement.extras <= set(project["optional-dependencies"])
            continue
        assert any(s.operator == ">=" for s in requirement.specifier), requirement.name
        assert requirement.name not in seen, f"{requirement.name} in {extra!r} is listed elsewhere"
        seen.add(requirement.name)


def test_what_is_needed_in_turn_is_pinned_too(direct, pins, project):
    """Follow the installed packages' own requirements from the `dev` extra down."""
    here = default_environment()
    todo = [(r.name, frozenset(r.extras)) for _, r in direct if not own(r, project)]
    done = set()
    while todo:
        name, extras = todo.pop()
        if (name, extras) in done:
            continue
        done.add((name, extras))
        assert canonicalize_name(name) in pins, f"constraints.txt lacks {name}"
        try:
            requires = importlib.metadata.requires(name) or []
        except importlib.metadata.PackageNotFoundError:
            continue
        for requirement in map(Requirement, requires):
            environments = [{**here, "extra": extra} for extra in ("", *extras)]
            if not requirement.marker or any(map(requirement.marker.evaluate, environments)):
                todo.append((requirement.name, frozenset(requirement.extras)))
    assert len(done) > 80


def test_conda_lists_nothing_twice(root, project):
    made = yaml.safe_load((root / "environment.yml").read_text(encoding="utf-8"))
    plain = [entry for entry in made["dependencies"] if isinstance(entry, str)]
    (pip,) = [entry["pip"] for entry in made["dependencies"] if isinstance(entry, dict)]
    assert made["name"] == project["name"]
    assert [re.split("[=<>]", entry)[0] for entry in plain] == ["python", "pip"]
    assert pip == ["-c constraints.txt", "-e .[lab]"]
    python = plain[0].removeprefix("python=")
    assert SpecifierSet(project["requires-python"]).contains(python)


def test_the_oldest_python_is_the_same_everywhere(root, project):
    from course_utils.authoring import install

    oldest = ".".join(map(str, install.OLDEST))
    assert project["requires-python"] == f">={oldest}"
    assert f"sys.version_info < {install.OLDEST}" in (root / "Makefile").read_text()
    ruff = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["ruff"]
    assert ruff["target-version"] == f"py{oldest.replace('.', '')}"


def test_data_files_of_the_package_are_installed_with_it(root):
    data = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["setuptools"]
    patterns = data["package-data"]["course_utils"]
    for path in (root / "course_utils").rglob("*"):
        if path.is_file() and path.suffix not in (".py", ".pyc"):
            inside = path.relative_to(root / "course_utils")
            assert any(inside.match(pattern) for pattern in patterns), inside


def test_every_folder_with_code_is_a_package(root):
    for path in (root / "course_utils").rglob("*.py"):
        assert (path.parent / "__init__.py").exists(), path.parent


def test_nothing_committed_names_a_registry_or_this_machine(root):
    for name in ("pyproject.toml", "constraints.txt", "environment.yml", "Makefile", ".ci/run"):
        text = (root / name).read_text(encoding="utf-8")
        assert "://" not in text.replace("https://github.com/", ""), name
        assert not re.search(r"(?<![\w.])/(?:work|root|home)/", text), name
