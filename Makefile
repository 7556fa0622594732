# The course's commands; `make help` lists them.
#
#   make lab LAB_ARGS="--no-browser --port 8890"     arguments for JupyterLab
#   make test TEST_ARGS="-k meter"                   arguments for pytest
#   make notebooks NB=notebooks/01_*.ipynb           only these notebooks
#   make exercises LESSON=04                         only these lessons'
#   make test PY=python3                             this Python as it is, no .venv
#   make lab PYTHON=/usr/bin/python3.12              the Python that .venv is made of

VENV := .venv
PY := $(VENV)/bin/python
STAMP := $(VENV)/.installed
FIRST := notebooks/00_start_here.ipynb
READY := $(if $(filter $(VENV)/bin/python,$(PY)),$(STAMP))

ifeq ($(READY),)
export PYTHONPATH := $(CURDIR)$(if $(PYTHONPATH),:$(PYTHONPATH))
endif

# The first Python that is new enough and can make environments. It is asked, not only looked for:
# version managers put names on the PATH that do not run.
NEW_ENOUGH := import sys, ensurepip; sys.exit(sys.version_info < (3, 11))
PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3; do \
	$$p -c '$(NEW_ENOUGH)' >/dev/null 2>&1 && { echo $$p; break; }; done)

# An environment works only where it was made: forget the stamp of a folder that was moved.
$(shell [ "$$(cat $(STAMP) 2>/dev/null)" = "$(CURDIR)" ] || rm -f $(STAMP))

# Two notebooks or tests at a time, each on one thread, not each on all of them.
THREADS := OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1
PYTEST := -n auto --maxprocesses 8 --dist loadscope \
	--nbval-lax --nbval-current-env --nbval-cell-timeout 300

.PHONY: help lab test test-versions notebooks exercises shelf check fix record colab clean
.DEFAULT_GOAL := help

help: ## list these commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "make %-14s %s\n", $$1, $$2}' Makefile

$(STAMP): pyproject.toml constraints.txt
	@python="$(PYTHON)"; python="$${python:-python3}"; \
	command -v "$$python" >/dev/null 2>&1 \
		|| { echo "There is no $$python here: install Python 3.11 or newer." >&2; exit 1; }; \
	"$$python" course_utils/authoring/install.py

lab: $(READY) ## open the course in JupyterLab
	@$(PY) -m jupyterlab $(if $(filter 0,$(shell id -u)),--allow-root) --log-level=WARN \
		--LabApp.default_url=/lab/tree/$(FIRST) --ServerApp.root_dir=. \
		--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate $(LAB_ARGS)

# A reader's own progress neither changes a test nor is changed by it.
test: $(READY) ## run every test and every notebook
	@colour=no; [ -t 1 ] && colour=yes; \
	scratch=$$(mktemp -d) && trap 'rm -rf "$$scratch"' EXIT; \
	WRITING_FAST_KERNELS_PROGRESS=$$scratch/progress.json \
	$(THREADS) $(PY) -m pytest --color=$$colour $(PYTEST) $(TEST_ARGS)

test-versions: $(READY) ## run the meter's tests on every supported Triton (downloads them)
	@$(PY) -m course_utils.authoring.versions

notebooks: $(READY) ## execute the lessons in place, without a GPU, and normalise them
	@$(PY) -m course_utils.authoring.execute $(NB)

exercises: $(READY) ## generate exercises/ from solutions/, with nbgrader
	@$(PY) -m course_utils.authoring.exercises $(LESSON)

shelf: $(READY) ## export the lessons' kernels to course_utils/kernels/
	@$(PY) -m course_utils.authoring.export

check: $(READY) ## check form and freshness; names the repair of each failure
	@$(PY) -m course_utils.authoring.check

fix: $(READY) ## repair what make check finds, where no notebook has to be executed for it
	@$(PY) -m course_utils.authoring.check --fix

record: $(READY) ## time the course's benchmarks on this machine's GPU
	@$(PY) -m course_utils.authoring.record $(RECORD_ARGS)

colab: $(READY) ## set the repository's address: make colab REPO=owner/name
	@$(if $(filter undefined,$(origin REPO)),echo "Say which: make colab REPO=owner/name" >&2; exit 2)
	@$(PY) -m course_utils.authoring.colab -- "$$REPO"
	@$(PY) -m course_utils.authoring.exercises

clean: ## remove what make has built: .venv, caches
	@rm -rf $(VENV) build .pytest_cache .ruff_cache *.egg-info
	@find . -name __pycache__ -prune -exec rm -rf {} + -o \
		-name .ipynb_checkpoints -prune -exec rm -rf {} +
