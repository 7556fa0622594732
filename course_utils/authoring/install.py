"""Make .venv with the exact packages of constraints.txt; what `make lab` and `make test` do first.

    python3 course_utils/authoring/install.py

It runs under whatever Python a machine has, so that a Python which is too old can still print the
sentence that says so: standard library only, no syntax newer than Python 3.6. The last thing
written is a stamp; without it the next `make` starts over, so an interrupted installation never
passes for a whole one.
"""

import json
import os
import platform
import shutil
import subprocess
import sys

OLDEST = (3, 11)
# Measured with torch's CUDA build: 5.3 GB installed, 6.7 GB at the peak, when pip's downloads lie
# beside it, and 1.5 GB in pip's own cache. (With a CPU build of torch: 2.2 GB.)
FREE_GB = 9
HELP = "See 'Troubleshooting' in README.md."
# Extensions of JupyterLab that start disabled: Jupyter's news, and what comes with nbgrader.
QUIET = (
    "@jupyterlab/apputils-extension:announcements",
    "@jupyter/nbgrader",
    "@jupyter-notebook/lab-extension",
)


class SetupError(Exception):
    """Why the course cannot be installed here, and what to do, in one line."""


def check_machine(version, system, free_gb, wanted_gb, has_venv=True):
    """Raise `SetupError` where this Python, platform or disk will not do."""
    if system != "Linux":
        named = {"Darwin": "macOS"}.get(system, system)
        raise SetupError(
            f"Triton, which the course is about, has no build for {named}: "
            "open the course in Google Colab, or on Linux (WSL counts)."
        )
    if version < OLDEST:
        raise SetupError(
            "Python {}.{} is too old: the course needs {}.{} or newer. Install one and run the "
            "command again, or name it: make lab PYTHON=/path/to/python3.11".format(
                *(tuple(version[:2]) + OLDEST)
            )
        )
    if not has_venv:
        raise SetupError(
            "This Python comes without venv: install it (Debian, Ubuntu: apt install "
            "python3-venv), or name another Python: make lab PYTHON=/path/to/python3.11"
        )
    if free_gb < wanted_gb:
        raise SetupError(
            f"Only {free_gb:.1f} GB are free on this disk and the packages need {wanted_gb:g} GB "
            "(most of it is torch with CUDA): free some space, or insist with "
            f"COURSE_FREE_GB={max(free_gb - 0.5, 0):.0f}"
        )


def run(command, environment):
    """Run a command with its own output shown; raise `SetupError` where it fails."""
    process = subprocess.Popen(
        command, env=environment, stderr=subprocess.PIPE, universal_newlines=True
    )
    errors = []
    for line in process.stderr:
        sys.stderr.write(line)
        errors.append(line)
    if process.wait() == 0:
        return
    said = "".join(errors)
    if "No space left on device" in said or "Errno 28" in said or "Errno 122" in said:
        raise SetupError("The disk is full: free some space and run the command again.")
    if "No matching distribution" in said or "Failed to establish a new connection" in said:
        raise SetupError(
            "A package could not be fetched (the lines above say which): check the network, then "
            "run the command again."
        )
    raise SetupError("The installation failed (see above). Run the command again. " + HELP)


def install(root, venv):
    """Make or update the environment in the folder `venv` for the course in `root`."""
    stamp, unfinished = os.path.join(venv, ".installed"), os.path.join(venv, ".unfinished")
    python = os.path.join(venv, "bin", "python")
    if os.path.exists(stamp):
        os.remove(stamp)
    if os.path.exists(unfinished) or (os.path.isdir(venv) and not _runs(python)):
        shutil.rmtree(venv)
    temporary = os.path.join(venv, "tmp")
    for folder in (venv, temporary):
        if not os.path.isdir(folder):
            os.makedirs(folder)
    with open(unfinished, "w"):
        pass
    environment = dict(
        os.environ,
        PIP_DISABLE_PIP_VERSION_CHECK="1",
        PIP_ROOT_USER_ACTION="ignore",
        # Downloads of gigabytes do not fit the small /tmp that many machines have.
        TMPDIR=temporary,
    )
    if _runs(python):
        print("Bringing the packages in .venv up to date.", flush=True)
    else:
        print("Installing the course's packages into .venv: some minutes, this once.", flush=True)
        run([sys.executable, "-m", "venv", venv], environment)
    pip = [python, "-m", "pip", "install", "--constraint", os.path.join(root, "constraints.txt")]
    if not sys.stdout.isatty():
        pip += ["--quiet", "--quiet"]
    # First what builds the course's own package, so that no build fetches another version of it.
    run([*pip, "setuptools", "wheel"], environment)
    run([*pip, "--no-build-isolation", "--editable", root + "[dev]"], environment)
    _quieten(venv)
    shutil.rmtree(temporary)
    os.remove(unfinished)
    with open(stamp, "w") as file:
        file.write(root)


def _runs(python):
    return os.path.exists(python) and subprocess.call([python, "-c", ""]) == 0


def _quieten(venv):
    """Show newcomers JupyterLab as it is: no question about news, no buttons for instructors."""
    folder = os.path.join(venv, "etc", "jupyter", "labconfig")
    if not os.path.isdir(folder):
        os.makedirs(folder)
    with open(os.path.join(folder, "page_config.json"), "w") as file:
        json.dump({"disabledExtensions": dict.fromkeys(QUIET, True)}, file)


def main():
    """Install, or print one line that says why not."""
    root = os.getcwd()
    try:
        wanted = 1.0 if os.path.exists(os.path.join(".venv", ".installed")) else FREE_GB
        wanted = float(os.environ.get("COURSE_FREE_GB") or wanted)
        try:
            import ensurepip  # noqa: F401  (Debian ships it apart from Python)

            has_venv = True
        except ImportError:
            has_venv = False
        free = shutil.disk_usage(root).free / 1e9
        check_machine(sys.version_info[:2], platform.system(), free, wanted, has_venv)
        install(root, os.path.join(root, ".venv"))
    except SetupError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    except OSError as error:
        if error.errno not in (28, 122):
            raise
        sys.stderr.write("The disk is full: free some space and run the command again.\n")
        return 1
    except KeyboardInterrupt:
        sys.stderr.write("\nInterrupted: run the command again to start over.\n")
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
