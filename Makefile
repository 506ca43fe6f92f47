# Two commands need nothing before them but Python 3.11+, pip and make: `make demo`, `make test`.
#   PYTHON=python3.12       which interpreter makes the virtual environment
#   VENV=.venv              where it goes
#   PIP_FLAGS="..."         extra flags for every pip install (an index with CPU builds of torch)
#   PYTEST_FLAGS="..."      extra flags for pytest (-k, -x, a path; -n0 for one process)
PYTHON ?= python3
VENV ?= .venv
PIP_FLAGS ?=
PYTEST_FLAGS ?=

BIN := $(VENV)/bin
PACKAGES := axisrl-core $(sort $(wildcard plugins/axisrl-plugin-*))
PROJECTS := $(addsuffix /pyproject.toml,$(PACKAGES))
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check $(PIP_FLAGS)
LOCKED := $(INSTALL) -c constraints/cpu.txt torch
EDITABLE := $(addprefix -e ./,$(PACKAGES))
EXTRAS := -e './axisrl-core[chat,ray,wandb,tensorboard,judge,testing]' \
	-e './plugins/axisrl-plugin-gsm8k[boxed,datasets]' \
	-e './plugins/axisrl-plugin-local[lora]' \
	-e './plugins/axisrl-plugin-megatron[megatron]'

.PHONY: help demo test kill-points smoke bench lint format types wheels docs clean
.DELETE_ON_ERROR:

help:
	@echo "make demo    train SmolLM2-135M on arithmetic, on this CPU, and show what it learnt"
	@echo "make test    the whole CPU test suite"
	@echo "make kill-points   kill a run at every point inside a step, inline and on Ray: an hour"
	@echo "make smoke   the same recipe on a tiny model, in seconds"
	@echo "make bench   an update beside TRL's, the machine's limit, what a loss costs (benchmarks/)"
	@echo "make lint | format | types | wheels | docs | clean"

demo: $(VENV)/.demo
	$(BIN)/axisrl models fetch smollm2-135m
	$(BIN)/axisrl run gsm8k/grpo-cpu
	@$(BIN)/axisrl runs show
	@echo "see them:  $(BIN)/axisrl view"

# Two processes of one thread: each may start Ray clusters and models of its own.
test: $(VENV)/.test
	OMP_NUM_THREADS=$${OMP_NUM_THREADS:-1} $(BIN)/python -m pytest -n 2 --dist loadfile $(PYTEST_FLAGS)

kill-points: $(VENV)/.test
	AXISRL_KILL_POINTS=all $(BIN)/python -m pytest tests/e2e/test_kill_points.py $(PYTEST_FLAGS)

smoke: $(VENV)/.demo
	$(BIN)/axisrl run gsm8k/grpo-cpu --smoke

bench: $(VENV)/.test
	$(LOCKED) -r benchmarks/requirements.txt
	$(BIN)/axisrl models fetch smollm2-135m
	$(BIN)/python benchmarks/update_vs_trl.py
	$(BIN)/python benchmarks/roofline.py
	$(BIN)/python benchmarks/loss_cost.py

lint: $(VENV)/.test
	$(BIN)/ruff check
	$(BIN)/ruff format --check

format: $(VENV)/.test
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

types: $(VENV)/.test
	$(BIN)/mypy $(addsuffix /src,$(PACKAGES))

wheels: $(VENV)/.test
	rm -rf dist
	for package in $(PACKAGES); do \
		$(BIN)/python -m build --wheel --no-isolation --outdir dist $$package || exit 1; \
	done

docs: $(VENV)/.test
	$(BIN)/python docs/generate.py

clean:
	rm -rf dist build .pytest_cache .mypy_cache .ruff_cache .hypothesis

# One stamp for each level of installation: a second `make` installs nothing.
$(VENV)/.python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "axisrl needs Python 3.11 or newer; choose one: make PYTHON=python3.12 ..." >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) --upgrade "pip>=25.1"
	@touch $@

$(VENV)/.demo: $(VENV)/.python constraints/cpu.txt $(PROJECTS)
	@echo "installing axisrl and torch into $(VENV): once, some minutes"
	$(LOCKED) $(EDITABLE)
	@touch $@

$(VENV)/.test: $(VENV)/.demo pyproject.toml
	@echo "installing the test tools into $(VENV)"
	$(LOCKED) --group dev $(EXTRAS) $(EDITABLE)
	@touch $@
