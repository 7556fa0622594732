"""The commands: set-up once and whole, friendly refusals, arguments passed on.

Nothing is installed here: the Python that make calls is a script that notes what it is asked for.
That a real installation works is what running `make test` in a fresh clone shows.
"""

import ast
import os
import re
import shutil
import subprocess
import sys

import pytest

from course_utils.authoring import install

# Stands in for the Python that makes .venv: leaves a `python` there, and the stamp.
FAKE_PYTHON = """#!/bin/sh
case "$1" in -c) exit {status};; esac
echo "{name} $@" >> {log}
mkdir -p .venv/bin
printf '#!/bin/sh\\nfor a in "$@"; do printf "<%%s>" "$a"; done >> {log}\\necho >> {log}\\n' \\
    > .venv/bin/python
printf 'echo "OMP=$OMP_NUM_THREADS PYTHONPATH=$PYTHONPATH" >> {log}\\n' >> .venv/bin/python
printf 'echo "$WRITING_FAST_KERNELS_PROGRESS" >> {log}\\n' >> .venv/bin/python
chmod +x .venv/bin/python
printf %s "$PWD" > .venv/.installed
"""


class Project:
    """A copy of what make needs, with stand-ins for the programs that it calls."""

    def __init__(self, root, folder):
        self.folder, self.log = folder / "the course", folder / "log"
        self.programs = folder / "bin"
        self.programs.mkdir()
        shutil.copytree(
            root / "course_utils" / "authoring", self.folder / "course_utils" / "authoring"
        )
        for name in ("Makefile", "pyproject.toml", "constraints.txt"):
            shutil.copy2(root / name, self.folder)
        self.program("fake-python", FAKE_PYTHON)

    def program(self, name, script, status=0):
        path = self.programs / name
        path.write_text(script.replace("{log}", str(self.log)).format(name=name, status=status))
        path.chmod(0o755)

    def make(self, *arguments, path=None, **environment):
        outer = {k: v for k, v in os.environ.items() if not k.startswith(("MAKE", "MFLAGS"))}
        outer.pop("PYTHONPATH", None)
        outer["PATH"] = path or f"{self.programs}{os.pathsep}{outer['PATH']}"
        if not any(a.startswith("PYTHON=") for a in arguments) and path is None:
            arguments = ("PYTHON=fake-python", *arguments)
        return subprocess.run(
            ["make", "--no-print-directory", *arguments],
            cwd=self.folder,
            env=outer | environment,
            capture_output=True,
            text=True,
        )

    def asked(self):
        """What the stand-ins were asked for since the last look."""
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        self.log.unlink(missing_ok=True)
        return lines


@pytest.fixture
def project(root, tmp_path):
    if shutil.which("make") is None:
        pytest.skip("make is not installed")
    return Project(root, tmp_path)


def installs(lines):
    return [line for line in lines if line.startswith("fake-python")]


def test_help_lists_every_command(project):
    said = project.make("help").stdout
    assert project.make().stdout == said
    phony = re.search(r"^\.PHONY: (.*)", (project.folder / "Makefile").read_text(), re.M)[1].split()
    assert [line.split()[1] for line in said.splitlines()] == phony
    assert not (project.folder / ".venv").exists()


def test_the_second_start_installs_nothing(project):
    assert project.make("lab").returncode == 0
    first = project.asked()
    assert len(installs(first)) == 1 and "<jupyterlab>" in first[1]
    for command in ("lab", "test", "check"):
        assert project.make(command).returncode == 0
        assert installs(project.asked()) == []


@pytest.mark.parametrize("name", ["pyproject.toml", "constraints.txt"])
def test_a_change_of_what_is_needed_installs_again(project, name):
    project.make("lab")
    project.asked()
    stamp = project.folder / ".venv" / ".installed"
    later = stamp.stat().st_mtime + 10
    os.utime(project.folder / name, (later, later))
    project.make("lab")
    assert len(installs(project.asked())) == 1


def test_a_folder_that_was_moved_is_set_up_again(project):
    project.make("lab")
    project.asked()
    moved = project.folder.parent / "elsewhere"
    project.folder.rename(moved)
    project.folder = moved
    project.make("lab")
    assert len(installs(project.asked())) == 1


def test_a_failed_set_up_starts_nothing(project):
    project.program("fake-python", "#!/bin/sh\necho no >&2\nexit 1\n")
    done = project.make("lab")
    assert done.returncode != 0 and "no" in done.stderr
    assert project.asked() == []


@pytest.mark.parametrize(("user", "expected"), [(0, True), (1000, False)])
def test_lab_opens_the_first_lesson_and_allows_root_only_to_root(project, user, expected):
    project.program("id", f"#!/bin/sh\necho {user}\n")
    project.make("lab", "LAB_ARGS=--no-browser --port 8890")
    asked = project.asked()[1]
    assert asked.endswith("<--no-browser><--port><8890>")
    assert "default_url=/lab/tree/notebooks/00_start_here.ipynb>" in asked
    assert ("<--allow-root>" in asked) == expected


def test_test_is_one_parallel_run_of_tests_and_notebooks(project):
    project.make("test", "TEST_ARGS=-k meter")
    asked = project.asked()
    assert asked[1].startswith("<-m><pytest>") and asked[1].endswith("<-k><meter>")
    for flag in ("-n", "auto", "--dist", "loadscope", "--nbval-lax", "--nbval-current-env"):
        assert f"<{flag}>" in asked[1]
    assert asked[2] == "OMP=1 PYTHONPATH="
    # A reader's progress is kept out of the way, in a folder that is gone afterwards.
    assert asked[3].endswith("/progress.json") and not os.path.exists(os.path.dirname(asked[3]))
    assert len(asked) == 4


@pytest.mark.parametrize(
    ("command", "module"),
    [
        ("notebooks", "execute"),
        ("shelf", "export"),
        ("check", "check"),
        ("fix", "check"),
        ("record", "record"),
        ("test-versions", "versions"),
    ],
)
def test_commands_run_their_module(project, command, module):
    assert project.make(command).returncode == 0
    asked = project.asked()[1]
    assert asked.startswith(f"<-m><course_utils.authoring.{module}>")
    assert ("<--fix>" in asked) == (command == "fix")


@pytest.mark.parametrize("name", ["owner/name", "", "a b", '"; echo x; "', "$(shell false)"])
def test_colab_passes_the_name_on_as_it_is(project, name):
    # `$$` is how make is told a dollar sign.
    done = project.make("colab", f"REPO={name.replace('$', '$$')}")
    assert done.returncode == 0
    assert project.asked()[1] == f"<-m><course_utils.authoring.colab><--><{name}>"


def test_colab_asks_for_a_name(project):
    done = project.make("colab")
    assert done.returncode != 0
    assert "make colab REPO=owner/name" in done.stderr
    assert len(project.asked()) == 1


def test_a_python_of_ones_own_is_used_as_it_is(project):
    project.program("my-python", '#!/bin/sh\necho "mine $@ $PYTHONPATH" >> {log}\n')
    assert project.make("test", "PY=my-python").returncode == 0
    (line,) = project.asked()
    assert line.startswith("mine -m pytest") and line.endswith(str(project.folder))
    assert not (project.folder / ".venv").exists()


def test_clean_leaves_a_fresh_clone(project):
    project.make("lab")
    for name in ("__pycache__/a.pyc", "notebooks/.ipynb_checkpoints/a.ipynb", "x.egg-info/a"):
        (project.folder / name).parent.mkdir(parents=True)
        (project.folder / name).write_text("")
    (project.folder / "notebooks" / "mine.ipynb").write_text("")
    assert project.make("clean").returncode == 0
    left = {path.name for path in project.folder.iterdir()}
    assert left == {"Makefile", "pyproject.toml", "constraints.txt", "course_utils", "notebooks"}
    assert [p.name for p in (project.folder / "notebooks").iterdir()] == ["mine.ipynb"]


def only(project, *programs):
    """A PATH that holds these stand-ins, and of the system only what a shell needs."""
    bare = project.programs.parent / "bare"
    bare.mkdir()
    for name in ("sh", "id", "cat", "rm", "mkdir", "chmod", "make", "awk"):
        (bare / name).symlink_to(shutil.which(name))
    for name, status in programs:
        project.program(name, FAKE_PYTHON, status)
        shutil.move(project.programs / name, bare / name)
    return str(bare)


def test_the_first_python_that_runs_and_is_new_enough_is_taken(project):
    path = only(project, ("python3.11", 127), ("python3.12", 0), ("python3.13", 0), ("python3", 0))
    assert project.make("lab", path=path).returncode == 0
    assert project.asked()[0].startswith("python3.12 course_utils/authoring/install.py")


def test_a_python_that_is_too_old_is_left_to_say_so(project):
    path = only(project, ("python3", 1))
    project.make("lab", path=path)
    assert project.asked()[0].startswith("python3 course_utils/authoring/install.py")


def test_no_python_is_one_line(project):
    done = project.make("lab", path=only(project))
    assert done.returncode != 0
    assert done.stderr.splitlines()[0] == "There is no python3 here: install Python 3.11 or newer."


@pytest.mark.parametrize(
    ("check", "test", "expected"), [(0, 0, 0), (1, 0, 1), (0, 2, 1), (1, 1, 1)]
)
def test_ci_checks_and_tests_and_fails_where_one_does(project, root, check, test, expected):
    (project.folder / ".ci").mkdir()
    shutil.copy2(root / ".ci" / "run", project.folder / ".ci")
    path = only(project)
    bare = project.programs.parent / "bare"
    for name in ("bash", "dirname", "mktemp", "tail"):
        (bare / name).symlink_to(shutil.which(name))
    (bare / "make").unlink()
    for name, script in {
        "make": 'echo "make $@" >> {log}; case $1 in check) exit %d;; test) exit %d;; esac',
        "apt-get": 'echo "apt-get $@" >> {log}; echo no such mirror; exit 1',
        "id": "echo 0",
    }.items():
        (bare / name).unlink(missing_ok=True)
        script = script % (check, test) if "%" in script else script
        project.program(name, f"#!/bin/sh\n{script}\n")
        shutil.move(project.programs / name, bare / name)
    done = subprocess.run(
        ["bash", ".ci/run"], env={"PATH": path}, cwd=project.folder, capture_output=True, text=True
    )
    assert done.returncode == expected
    # No browser to be had is no reason to test nothing; the tests' summary is what comes last.
    assert project.asked() == ["apt-get update", "make check", "make test"]
    assert "browser tests will be skipped" in done.stdout and "no such mirror" in done.stdout


GOOD = {"version": (3, 12), "system": "Linux", "free_gb": 50.0, "wanted_gb": 9.0}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"version": (3, 10)}, ["3.10", "3.11", "PYTHON="]),
        ({"version": (3, 6)}, ["3.6"]),
        ({"system": "Darwin"}, ["macOS", "Colab", "Linux"]),
        ({"system": "Windows"}, ["Windows", "Colab", "Linux", "WSL"]),
        ({"free_gb": 1.26}, ["1.3 GB", "9 GB", "COURSE_FREE_GB=1"]),
        ({"has_venv": False}, ["python3-venv"]),
        ({"system": "Darwin", "version": (3, 8), "free_gb": 1.0}, ["macOS"]),
    ],
)
def test_a_machine_that_will_not_do_is_told_so_in_one_line(change, words):
    with pytest.raises(install.SetupError) as raised:
        install.check_machine(**GOOD | change)
    said = str(raised.value)
    assert "\n" not in said
    for word in words:
        assert word in said


def test_a_machine_that_will_do_is_not_held_up():
    install.check_machine(**GOOD)
    install.check_machine(**GOOD | {"version": (3, 11)})


def test_even_an_old_python_can_read_the_installer(root):
    source = (root / "course_utils" / "authoring" / "install.py").read_text()
    tree = ast.parse(source, feature_version=(3, 6))
    modules = {
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
    }
    assert modules <= sys.stdlib_module_names
    assert not any(isinstance(node, ast.ImportFrom) for node in ast.walk(tree))


def test_a_full_disk_is_one_line_and_leaves_nothing(root, tmp_path):
    done = subprocess.run(
        [sys.executable, root / "course_utils" / "authoring" / "install.py"],
        cwd=tmp_path,
        env=os.environ | {"COURSE_FREE_GB": "1e9"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1 and "GB are free" in done.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("printed", "words"),
    [
        ("ERROR: [Errno 28] No space left on device", "disk is full"),
        ("ERROR: No matching distribution found for torch", "network"),
        ("something else", "see above"),
    ],
)
def test_a_command_that_fails_is_explained(printed, words, capsys):
    with pytest.raises(install.SetupError, match=words):
        install.run(["sh", "-c", f"echo '{printed}' >&2; exit 1"], os.environ)
    assert printed in capsys.readouterr().err


@pytest.fixture
def venv(tmp_path, monkeypatch):
    """A folder for the environment, and the commands that `install` ran."""
    folder = tmp_path / ".venv"
    ran = []

    def run(command, environment):
        ran.append(command)
        assert environment["TMPDIR"].startswith(str(folder))
        assert not (folder / ".installed").exists()
        if command[1:3] == ["-m", "venv"]:
            (folder / "bin").mkdir()
            (folder / "bin" / "python").symlink_to(sys.executable)

    monkeypatch.setattr(install, "run", run)
    return folder, ran


def test_an_installation_ends_with_the_stamp(venv, tmp_path):
    folder, ran = venv
    install.install(str(tmp_path), str(folder))
    assert (folder / ".installed").read_text() == str(tmp_path)
    assert not (folder / ".unfinished").exists() and not (folder / "tmp").exists()
    assert [command[2] for command in ran] == ["venv", "pip", "pip"]
    for command in ran[1:]:
        assert command[command.index("--constraint") + 1] == str(tmp_path / "constraints.txt")
    assert ran[2][-1] == f"{tmp_path}[dev]"


@pytest.mark.parametrize("error", [install.SetupError("x"), KeyboardInterrupt(), OSError(28, "x")])
def test_an_interrupted_installation_is_never_taken_for_a_whole_one(
    venv, tmp_path, monkeypatch, error
):
    folder, ran = venv
    whole = install.run

    def broken(command, environment):
        whole(command, environment)
        if "pip" in command:
            (folder / "half-a-package").write_text("")
            raise error

    monkeypatch.setattr(install, "run", broken)
    with pytest.raises(type(error)):
        install.install(str(tmp_path), str(folder))
    assert not (folder / ".installed").exists()

    monkeypatch.setattr(install, "run", whole)
    ran.clear()
    install.install(str(tmp_path), str(folder))
    assert ran[0][1:3] == ["-m", "venv"]
    assert not (folder / "half-a-package").exists()
    assert (folder / ".installed").exists()


def test_an_update_keeps_the_environment(venv, tmp_path):
    folder, ran = venv
    install.install(str(tmp_path), str(folder))
    (folder / "a-package-of-mine").write_text("")
    ran.clear()
    install.install(str(tmp_path), str(folder))
    assert [command[2] for command in ran] == ["pip", "pip"]
    assert (folder / "a-package-of-mine").exists()


def test_an_environment_whose_python_is_gone_is_made_anew(venv, tmp_path):
    folder, ran = venv
    install.install(str(tmp_path), str(folder))
    (folder / "bin" / "python").unlink()
    ran.clear()
    install.install(str(tmp_path), str(folder))
    assert ran[0][1:3] == ["-m", "venv"]


@pytest.mark.parametrize(
    ("error", "status", "words"),
    [
        (install.SetupError("why not"), 1, "why not"),
        (KeyboardInterrupt(), 130, "Interrupted"),
        (OSError(28, "No space left on device"), 1, "disk is full"),
    ],
)
def test_main_prints_one_line(monkeypatch, tmp_path, capsys, error, status, words):
    def fail(*_):
        raise error

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COURSE_FREE_GB", "0")
    monkeypatch.setattr(install, "install", fail)
    assert install.main() == status
    said = capsys.readouterr().err.strip()
    assert words in said and "\n" not in said
