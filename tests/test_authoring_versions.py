"""`make test-versions`: which versions, which Python, what it installs, and what it says."""

import subprocess
import sys
from types import SimpleNamespace

import pytest

from course_utils.authoring import versions
from course_utils.authoring.versions import CASES, Case, Result, check, main, table

REPORT = (
    '<testsuites><testsuite tests="{tests}" failures="{failures}" errors="{errors}" '
    'skipped="{skipped}"/></testsuites>'
)


class Fake:
    """Stands in for subprocess.run: answers as a machine would, and keeps the commands."""

    def __init__(self, python="3.11", imported=None, pip=0, pytest_status=0, **counts):
        self.python, self.imported, self.pip = python, imported, pip
        self.pytest_status = pytest_status
        self.counts = {"tests": 10, "failures": 0, "errors": 0, "skipped": 1, **counts}
        self.commands, self.environments = [], []

    def __call__(self, command, env=None, **options):
        self.commands.append(command)
        self.environments.append(env)
        answer = SimpleNamespace(returncode=0, stdout="", stderr="")
        if "pip" in command:
            answer.returncode, answer.stderr = self.pip, "a\nERROR: no such version"
            if not self.pip:
                versions.Path(command[command.index("--target") + 1]).mkdir(parents=True)
        elif "pytest" in command:
            answer.returncode, answer.stdout = self.pytest_status, "what pytest printed"
            if self.counts["tests"] is not None:
                report = next(a for a in command if a.startswith("--junitxml=")).split("=", 1)[1]
                versions.Path(report).write_text(REPORT.format(**self.counts), encoding="utf-8")
        elif "sys.version_info" in command[-1]:
            answer.stdout = self.python if command[0] == sys.executable else ""
            answer.returncode = int(command[0] != sys.executable)
        else:
            answer.stdout = self.imported or "3.9.0 2.4.6"
        return answer

    def command(self, word):
        return next(command for command in self.commands if word in command)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(versions, "FOLDER", tmp_path / "versions")
    (tmp_path / "versions").mkdir()
    return tmp_path / "versions"


def test_every_supported_triton_is_a_case():
    assert {case.triton for case in CASES} == {"3.6.0", "3.7.1", "3.8.0", "3.9.0"}
    numpies = {case.numpy for case in CASES if case.triton == "3.6.0"}
    assert {numpy[:3] for numpy in numpies} == {"2.1", "2.4", "2.5"}


def test_a_case_is_installed_into_its_own_folder_and_tested_there(folder):
    run = Fake()
    result = check(Case("3.9.0"), sys.executable, run)
    assert result.verdict == "passed"
    assert (result.passed, result.failed, result.skipped) == (9, 0, 1)
    pip = run.command("pip")
    assert pip[-1] == "triton==3.9.0"
    assert "--no-deps" in pip
    target = folder / "python3.11" / "triton-3.9.0"
    assert target.is_dir()
    assert not target.with_name("triton-3.9.0.unfinished").exists()
    environment = run.environments[-1]
    assert environment["PYTHONPATH"].split(":")[:2] == [str(target), str(versions.ROOT)]
    assert "TRITON_INTERPRET" not in environment
    assert "tests/meter" in run.command("pytest")


def test_what_is_installed_is_not_installed_again():
    run = Fake()
    check(Case("3.9.0"), sys.executable, run)
    check(Case("3.9.0"), sys.executable, run)
    assert sum("pip" in command for command in run.commands) == 1


def test_numpy_is_installed_beside_triton(folder):
    run = Fake(imported="3.6.0 2.4.6")
    assert check(Case("3.6.0", numpy="2.4.6"), sys.executable, run).verdict == "passed"
    path = run.environments[-1]["PYTHONPATH"].split(":")
    assert [folder / "python3.11" / name for name in ("triton-3.6.0", "numpy-2.4.6")] == [
        versions.Path(entry) for entry in path[:2]
    ]


def test_an_older_python_skips_with_the_reason():
    result = check(Case("3.6.0", "2.5.0", oldest_python=(3, 12)), sys.executable, Fake())
    assert result.was_skipped
    assert result.verdict == (
        "skipped: needs Python 3.12 or newer with torch and pytest; found none"
    )


def test_a_newer_python_is_looked_for(monkeypatch):
    run = Fake(imported="3.6.0 2.5.0")
    monkeypatch.setattr(versions.shutil, "which", lambda name: {"python3.13": "/newer"}.get(name))

    def answer(command, **options):
        if command[0] == "/newer" and "sys.version_info" in command[-1]:
            return SimpleNamespace(returncode=0, stdout="3.13\n", stderr="")
        return run(command, **options)

    result = check(Case("3.6.0", "2.5.0", oldest_python=(3, 12)), sys.executable, answer)
    assert (result.python, result.verdict) == ("3.13", "passed")
    assert run.command("pip")[0] == run.command("pytest")[0] == "/newer"


@pytest.mark.parametrize(
    "fake, verdict",
    [
        (Fake(pip=1), "FAILED: pip could not install triton==3.9.0: ERROR: no such version"),
        (Fake(imported="3.7.1 2"), "FAILED: triton 3.7.1 and numpy 2 were imported instead"),
        (Fake(failures=2, errors=1, pytest_status=1), "FAILED: 3 of 10 tests"),
        (Fake(tests=None, pytest_status=4), "FAILED: pytest ended with status 4 and no report"),
        (Fake(tests=1, pytest_status=0), "FAILED: pytest ended with status 0, 0 passed"),
    ],
    ids=["pip", "wrong version", "failures", "no report", "nothing passed"],
)  # fmt: skip
def test_what_went_wrong_is_said(fake, verdict):
    assert check(Case("3.9.0"), sys.executable, fake).verdict == verdict


def test_a_failed_installation_leaves_no_folder(folder):
    check(Case("3.9.0"), sys.executable, Fake(pip=1))
    assert not (folder / "python3.11" / "triton-3.9.0").exists()


def test_the_table_has_a_row_a_case():
    rows = table(
        [
            Result(Case("3.6.0", "2.4.6"), "3.11", 9, 0, 1, 12.4),
            Result(Case("3.9.0"), "3.11", 7, 2, 1, 8.0, "2 of 10 tests"),
        ]
    ).splitlines()
    assert rows[0].split() == [
        "versions", "Python", "passed", "failed", "skipped", "seconds", "verdict",
    ]  # fmt: skip
    assert rows[1].split() == "triton 3.6.0, numpy 2.4.6 3.11 9 0 1 12 passed".split()
    assert rows[2].endswith("FAILED: 2 of 10 tests")


@pytest.mark.parametrize("fake, status", [(Fake(), 0), (Fake(failures=1), 1)], ids=["good", "bad"])
def test_the_exit_status(fake, status, capsys):
    assert main(["--only", "3.9"], run=fake) == status
    printed = capsys.readouterr().out
    assert printed.splitlines()[-1].startswith("triton 3.9.0")
    assert ("what pytest printed" in printed) == bool(status)
    assert sum("pytest" in command for command in fake.commands) == 1


def test_a_skipped_case_is_no_failure(capsys):
    assert main(["--only", "numpy 2.5"], run=Fake()) == 0
    assert "skipped: needs Python 3.12" in capsys.readouterr().out


def test_an_unknown_case_is_an_error(capsys):
    with pytest.raises(SystemExit):
        main(["--only", "1.0"], run=subprocess.run)
    assert "there are: triton 3.6.0, numpy 2.4.6;" in capsys.readouterr().err
