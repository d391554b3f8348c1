# Every task of this project. `make` alone lists them; hooks and CI call nothing else.
#   ARGS=...       is handed on to the command:   make train ARGS="+experiment=x"
#   PYTHON=...     makes .venv (3.11 or newer):   make train PYTHON=python3.12
#   VENV=...       a ready environment, used as it is, nothing is installed:   make test VENV="$CONDA_PREFIX"
# Paths are relative, because make cannot handle targets with blanks in them.

PYTHON ?= python3
VENV ?=
ARGS ?=
EXTRAS ?=
SWEEP ?=
PARTS ?=

ifeq ($(strip $(VENV)),)
BIN := .venv/bin
INSTALLED := .venv/.installed
else
BIN := $(VENV)/bin
INSTALLED :=
endif

PIP_INSTALL := .venv/bin/python -m pip install -qq --disable-pip-version-check --no-compile

EXTRA_PINS := -c requirements.lock --no-build-isolation

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help train test test-fast chaos lint format dashboard benchmark benchmark-sweep audit install extras lock clean update-template
# begin template
.PHONY: template manifest
# end template

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "%-15s %s\n", $$1, $$2} /^#   / {sub(/^#   /, ""); print}' Makefile

train: $(INSTALLED) ## one run of the default experiment, or what ARGS say
	@exec "$(BIN)/python" train.py $(ARGS)

test: $(INSTALLED) ## the whole test suite; PARTS=2 runs it in two sessions side by side
	@exec "$(BIN)/python" $(if $(PARTS),-m tests.parallel $(PARTS),-m pytest) $(ARGS)

test-fast: $(INSTALLED) ## the tests that take less than a minute together
	@exec "$(BIN)/python" -m pytest -m "not slow" $(ARGS)

lint: $(INSTALLED) ## style, types and the direction of imports
	@"$(BIN)/ruff" check .
	@"$(BIN)/ruff" format --check .
	@"$(BIN)/mypy" project $(wildcard train.py eval.py predict.py template)
	@"$(BIN)/lint-imports"

format: $(INSTALLED) ## lay out the code and mend what can be mended
	@"$(BIN)/ruff" check --fix .
	@"$(BIN)/ruff" format .

chaos: $(INSTALLED) ## what can happen to each process, in each phase, with the real program; an hour on two cores
	@exec "$(BIN)/python" -m tests.chaos.run $(ARGS)

dashboard: $(INSTALLED) ## optuna-dashboard on a sweep: make dashboard SWEEP=sweeps/x ARGS="--port 8081"
	@test -n "$(SWEEP)" || { echo "SWEEP: nothing was given; make dashboard SWEEP=sweeps/x" >&2; exit 1; }
	@test -n "$(VENV)" || "$(BIN)/python" -c "import optuna_dashboard" 2>/dev/null || $(PIP_INSTALL) $(EXTRA_PINS) -e ".[dashboard]"
	@exec "$(BIN)/python" -m project.sweeps.shown.dashboard "$(SWEEP)" $(ARGS)

benchmark: $(INSTALLED) ## how long processes take to start
	@exec "$(BIN)/python" benchmarks/startup.py $(ARGS)

benchmark-sweep: $(INSTALLED) ## what a trial costs in a sweep, beside other launchers; half an hour on two cores
	@test -n "$(VENV)" || "$(BIN)/python" -c "import hydra_plugins.hydra_joblib_launcher, hydra_plugins.hydra_submitit_launcher" 2>/dev/null || $(PIP_INSTALL) $(EXTRA_PINS) -e ".[benchmark]"
	@exec "$(BIN)/python" benchmarks/sweep.py $(ARGS)

# Strict: what could not be looked up, as without a network, must not read as clean.
audit: $(INSTALLED) ## known vulnerabilities of the pins, by pip-audit, which asks PyPI
	@test -n "$(VENV)" || "$(BIN)/python" -c "import pip_audit" 2>/dev/null || $(PIP_INSTALL) $(EXTRA_PINS) -e ".[audit]"
	@exec "$(BIN)/python" -m pip_audit --strict --disable-pip --no-deps -r requirements.lock $(ARGS)

install: $(INSTALLED) ## make .venv and install the pins, if that is not done

# The stamp comes last, so an interrupted installation is done again. What pip was writing when it was cut looks
# installed and is not: .venv-installing has content then, and .venv is made anew. A lock on that file, which pip
# inherits, makes others wait, also when make was killed and pip lives on. Compiling all at once uses every core.
.venv/.installed: requirements.lock setup.cfg pyproject.toml
	@$(check-python)
	@set -e; exec 9>>.venv-installing; $(wait-for-others); \
	if test -e $@ && test -z "$$(find $^ -newer $@)"; then exit 0; fi; \
	if test -s .venv-installing || ! .venv/bin/python -c "" 2>/dev/null; then rm -rf .venv; fi; \
	echo "begun, not ended" >&9; \
	.venv/bin/python -m pip --version >/dev/null 2>&1 || "$(PYTHON)" -m venv .venv; \
	echo "Installing requirements.lock into .venv; this takes minutes once, torch is the largest part"; \
	$(PIP_INSTALL) "$$(grep '^torch==' requirements.lock)"; \
	$(PIP_INSTALL) -r requirements.lock; \
	$(PIP_INSTALL) --no-deps --no-build-isolation -e .; \
	$(if $(strip $(EXTRAS)),$(PIP_INSTALL) $(EXTRA_PINS) -e ".[$(EXTRAS)]";) \
	.venv/bin/python -m compileall -qq -j 0 .venv/lib || true; \
	touch $@; : >.venv-installing

extras: .venv/.installed ## optional packages: make extras EXTRAS=lora,postgres
	@test -n "$(EXTRAS)" || { echo "EXTRAS: nothing was given; make extras EXTRAS=lora,postgres" >&2; exit 1; }
	@$(PIP_INSTALL) $(EXTRA_PINS) -e ".[$(EXTRAS)]"

# torch stays at its pin until the lock is edited by hand: the first installation decides which build comes.
lock: ## write requirements.lock from setup.cfg; ARGS="-c requirements.lock" keeps the pins that are there
	@$(check-python)
	@dir=$$(mktemp -d) && trap 'rm -rf "$$dir" requirements.lock.new' EXIT && trap 'exit 130' INT && trap 'exit 143' TERM && \
	torch=$$(grep '^torch==' requirements.lock) && echo "$$torch" >"$$dir/torch" && \
	"$(PYTHON)" -m venv "$$dir/venv" && python="$$dir/venv/bin/python" && \
	pip() { "$$python" -m pip -qq --disable-pip-version-check "$$@"; } && \
	pip install "$$torch" && \
	pip install --no-build-isolation -c "$$dir/torch" -e ".[dev]" $(ARGS) && \
	echo "# Every package of the core and of the dev extra; written by \`make lock\`." >requirements.lock.new && \
	pip freeze --all --exclude pip --exclude-editable >"$$dir/pins" && \
	sed 's/+[^ ]*$$//' "$$dir/pins" >>requirements.lock.new && \
	mv requirements.lock.new requirements.lock

update-template: $(INSTALLED) ## bring later changes of the template into this project
	@exec "$(BIN)/python" -m project.template_update $(ARGS)

# begin template
template: $(INSTALLED) ## make two projects from this template, check them and train in them
	@exec "$(BIN)/python" -m template.check $(ARGS)

manifest: $(INSTALLED) ## write the list of files from which projects are made, after files were added or removed
	@exec "$(BIN)/python" -m template.manifest

# end template
clean: ## remove caches and builds; .venv and runs stay
	@rm -rf build dist *.egg-info .pytest_cache .ruff_cache .mypy_cache .import_linter_cache .hypothesis
	@find . -name __pycache__ -type d -not -path './.venv/*' -prune -exec rm -rf {} +

define check-python
{ command -v "$(PYTHON)" >/dev/null \
	|| { echo "PYTHON: '$(PYTHON)' was not found; install Python 3.11 or newer, or name one: PYTHON=python3.12" >&2; exit 1; }; \
"$(PYTHON)" -c "import sys; sys.exit(sys.version_info < (3, 11))" \
	|| { echo "PYTHON: '$(PYTHON)' is older than 3.11; name a newer one: PYTHON=python3.12" >&2; exit 1; }; \
"$(PYTHON)" -c "import ensurepip, venv" 2>/dev/null \
	|| { echo "PYTHON: '$(PYTHON)' cannot make environments; on Debian and Ubuntu: apt install python3-venv" >&2; exit 1; }; }
endef

define wait-for-others
"$(PYTHON)" -c "import fcntl; fcntl.flock(9, fcntl.LOCK_EX | fcntl.LOCK_NB)" 2>/dev/null \
	|| { echo "Waiting for another installation into .venv"; "$(PYTHON)" -c "import fcntl; fcntl.flock(9, fcntl.LOCK_EX)"; }
endef
