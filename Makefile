# Everything runs from $(VENV), which is made from the hashed locks; nothing but python3 (3.10 or newer) with venv is needed.

PYTHON ?= python3
VENV ?= .venv
UV ?= uv

BIN := $(VENV)/bin
PACKAGE := $(shell find tpuwatch -type f -not -name "*.pyc")
PIP := PIP_ROOT_USER_ACTION=ignore $(BIN)/python -m pip --disable-pip-version-check --quiet --quiet
COMPILE := $(UV) pip compile pyproject.toml --quiet --universal --python-version 3.10 --generate-hashes \
	--no-header --no-annotate --no-emit-index-url --no-emit-find-links
# PYTEST_ARGS, DEMO_ARGS, CHAOS_ARGS, SOAK_ARGS, BOOTED_ARGS and DEB_ARGS are for the person at the keyboard:
# make test PYTEST_ARGS="-k rotation -x"
# Else each process that a test starts, and each of those that run tests, would compile every module again.
unexport PYTHONDONTWRITEBYTECODE
PYTEST := $(BIN)/python -m pytest --numprocesses=auto --maxprocesses=5 --dist=worksteal $(PYTEST_ARGS)

# What a launch's failure passes on its way to a verdict, a metric and the next launch's environment.
MAIN_WAY := tests/e2e/test_node.py::test_a_node_that_is_ready_by_the_clouds_word_and_dead \
	tests/e2e/test_tune.py::test_a_buffer_that_was_too_small_is_larger_in_the_next_launchs_environment_file

LITERALS := tpuwatch/logs/rules/rule_literals.json

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo first-hour test unit e2e sessions proof proof-tests model preflight preflight-all largest lint format corpus bench bench-smoke bench-runs bench-tune soak chaos booted monitoring page deploy alerts dashboards panels picture pictures man guides example literals lock dist deb clean

help: ## List these targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' \
		|| { echo "tpuwatch needs Python 3.10 or newer; name one with: make PYTHON=/path/to/python3" >&2; exit 1; }
	@echo "Installing into $(VENV), once ..."
	@$(PYTHON) -m venv $(VENV)

# The stamps say what the venv holds, so that a second run installs nothing. For development tpuwatch itself is installed
# so that each change counts at once; otherwise it is what users get, and is installed again after a change.
$(VENV)/.lock-stamp: requirements.lock | $(BIN)/python
	@$(PIP) install --require-hashes -r requirements.lock
	@touch $@

$(VENV)/.run-stamp: $(PACKAGE) pyproject.toml $(VENV)/.lock-stamp
	@test -e $(VENV)/.dev-stamp || $(PIP) install --no-deps --no-build-isolation --force-reinstall .
	@touch $@

$(VENV)/.dev-stamp: requirements-dev.lock pyproject.toml $(VENV)/.lock-stamp
	@$(PIP) install --require-hashes -r requirements-dev.lock
	@$(PIP) install --no-deps --no-build-isolation --editable .
	@touch $@

demo: $(VENV)/.run-stamp ## A launch that is tuned and a node that lies, simulated, in under a minute
	@$(BIN)/tpuwatch demo $(DEMO_ARGS)

test: $(VENV)/.dev-stamp ## Unit tests but the slow ones, and the main way through the real daemon
	$(PYTEST) --hypothesis-profile=few -m "not slow" tests/unit $(MAIN_WAY)

unit: $(VENV)/.dev-stamp ## Unit tests, the slow ones too
	$(PYTEST) tests/unit

e2e: $(VENV)/.dev-stamp ## Tests that start the real daemon and commands
	$(PYTEST) tests/e2e

sessions: $(VENV)/.dev-stamp ## Write down what each command prints: tests/unit/cli/sessions
	TPUWATCH_UPDATE_GOLDEN=1 $(BIN)/python -m pytest --quiet tests/unit/cli/test_sessions.py tests/unit/cli/test_restart_output.py

# Tests that are marked long, and all else that takes longer than a change should wait for, are for `make proof` alone.
SHORT := -m "not long"
proof: SHORT :=
proof: unit proof-tests model preflight-all largest corpus bench bench-tune chaos soak booted monitoring page first-hour ## Before a release: all that .ci/run leaves out (two hours)

proof-tests: $(VENV)/.dev-stamp ## Tests of the proofs' own parts, properties, and accuracy on the corpus
	$(PYTEST) $(SHORT) tests/proof --ignore=tests/proof/preflight --ignore=tests/proof/deploy --ignore=tests/proof/page

PREFLIGHT := TPUWATCH_PREFLIGHT_PYTHON=$(abspath $(VENV)-preflight/bin/python) $(BIN)/python -m pytest

preflight: $(VENV)-preflight/.stamp $(VENV)/.dev-stamp ## Preflight, advise and probe with the real JAX, and a TensorFlow program
	$(PREFLIGHT) -m "not long" $(PYTEST_ARGS) tests/proof/preflight

preflight-all: $(VENV)-preflight/.torch-stamp $(VENV)-profile/.stamp $(VENV)/.dev-stamp ## All of it: Keras, PyTorch, large programs, and xprof
	TPUWATCH_PROFILE_PYTHON=$(abspath $(VENV)-profile/bin/python) $(PREFLIGHT) $(PYTEST_ARGS) tests/proof/preflight

largest: $(VENV)-preflight/.torch-stamp $(VENV)/.dev-stamp ## The largest batch of ten programs, and the next one that does not fit
	TPUWATCH_PREFLIGHT_PYTHON=$(abspath $(VENV)-preflight/bin/python) $(BIN)/python -m tests.proof.preflight.largest

# An environment of its own, as the user has: 2.4 GB.
$(VENV)-preflight/.stamp: requirements-preflight.lock
	$(PYTHON) -m venv $(VENV)-preflight
	$(VENV)-preflight/bin/python -m pip --disable-pip-version-check --quiet install --require-hashes -r requirements-preflight.lock
	@touch $@

# PyTorch for a CPU and torchax in it, where the package index has that for this Python: 950 MB. The usual wheel brings
# gigabytes of CUDA; without PyTorch the tests of it skip and say so.
$(VENV)-preflight/.torch-stamp: $(VENV)-preflight/.stamp requirements-torch.in
	@if $(VENV)-preflight/bin/python -m pip install --dry-run --no-deps --quiet --report - -r requirements-torch.in 2>/dev/null \
		| grep -q '"version": "[0-9.]*+cpu"'; \
	then $(VENV)-preflight/bin/python -m pip --disable-pip-version-check --quiet install -r requirements-torch.in; \
	else echo "PyTorch for a CPU is not to be had here: its tests are left out"; fi
	@touch $@

# What reads profiles, without the frameworks: 290 MB.
$(VENV)-profile/.stamp: requirements-profile.lock
	$(PYTHON) -m venv $(VENV)-profile
	$(VENV)-profile/bin/python -m pip --disable-pip-version-check --quiet install --require-hashes -r requirements-profile.lock
	@touch $@

model: $(VENV)/.dev-stamp ## Restarts in all orders: ledgers that cannot be written, clocks that jump, each with each other fault
	$(BIN)/python -m tests.proof.model.checker --pairs --of outages jumps --depth 12
	$(BIN)/python -m tests.proof.model.checker --pairs --of outages jumps --depth 11 --watched

lint: $(VENV)/.dev-stamp ## Style, format, types and the direction of imports
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/.dev-stamp ## Put the code into the one format
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

corpus: $(VENV)/.dev-stamp ## Accuracy by class on the corpus beside the repository
	$(BIN)/python -m tests.proof.corpus_table

bench: $(VENV)/.dev-stamp ## Speed and memory against mtail, on GiB of log
	$(BIN)/python -m tests.proof.bench

bench-smoke: $(VENV)/.dev-stamp ## The speed of recognition in small: fails where a ratio is worse than half of its floor
	$(BIN)/python -m tests.proof.bench --smoke catch-up flood kinds

bench-runs: $(VENV)/.dev-stamp ## The other benchmarks in small: does each run?
	$(BIN)/python -m tests.proof.bench --smoke follow follow-fast follow-output idle old-files startup memory node faults exec

bench-tune: $(VENV)/.dev-stamp ## Tuning on 1,000 simulated hosts, beside the default, doubling and an oracle
	$(BIN)/python -m tests.proof.bench.tune

soak: $(VENV)/.dev-stamp ## Ten simulated minutes of every fault of the cloud, and no false verdict
	$(BIN)/python -m tests.proof.soak $(SOAK_ARGS)

chaos: $(VENV)/.dev-stamp ## Break everything on purpose: logs, restarts, races, the API, a fleet
	$(BIN)/python -m tests.proof.chaos.everything $(CHAOS_ARGS)

booted: $(VENV)/.run-stamp ## Prove the systemd unit on a Debian that is booted in a container (as root)
	$(BIN)/python -m tests.proof.boot $(BOOTED_ARGS)

monitoring: $(VENV)/.dev-stamp ## From fault to webhook, each alert, with a real Prometheus and Alertmanager
	$(BIN)/python -m tests.proof.monitoring

# What the user installs beside the wheel, and nothing else.
$(VENV)-first-hour/.stamp: requirements.lock
	$(PYTHON) -m venv $(VENV)-first-hour
	$(VENV)-first-hour/bin/python -m pip --disable-pip-version-check --quiet install --require-hashes -r requirements.lock
	@touch $@

first-hour: $(VENV)-first-hour/.stamp $(VENV)/.dev-stamp ## A user's first hour, from the wheel: all views at each stage must agree
	$(BIN)/python -m tests.proof.first_hour $(VENV)-first-hour

page: $(VENV)/.dev-stamp ## The status page in Chromium: of a node, and of five thousand
	$(BIN)/python -m pytest tests/proof/page $(PYTEST_ARGS)

pictures: $(VENV)/.dev-stamp ## Draw docs/page from the page of the daemon in the simulator
	$(BIN)/python -m tests.proof.page.pictures

panels: $(VENV)/.dev-stamp ## Draw docs/dashboards from a Prometheus over some minutes of the simulator's faults
	$(BIN)/python -m tests.proof.dashboards

picture: $(VENV)/.run-stamp ## Draw docs/demo.svg from a real run of the demo
	$(BIN)/python docs/make_picture.py

alerts: $(VENV)/.dev-stamp ## Write the alerts for findings and docs/causes.md from tpuwatch/model/causes.py
	@$(BIN)/python -m deploy.prometheus

dashboards: $(VENV)/.dev-stamp ## Write deploy/grafana/dashboards from their code (Python 3.11 or newer)
	$(BIN)/python -m deploy.grafana.build

$(VENV)-deploy/.stamp: requirements-deploy.lock
	$(PYTHON) -m venv $(VENV)-deploy
	$(VENV)-deploy/bin/python -m pip --disable-pip-version-check --quiet install --require-hashes -r requirements-deploy.lock
	@touch $@

deploy: $(VENV)/.dev-stamp $(VENV)-deploy/.stamp ## Check what is in deploy/, each by its own tool
	PATH="$(abspath $(VENV)-deploy/bin):$$PATH" $(BIN)/python -m pytest tests/proof/deploy $(PYTEST_ARGS)

man: $(VENV)/.run-stamp ## Write the man page from the parsers
	$(BIN)/python -m deploy.man > deploy/man/tpuwatch.1

guides: $(VENV)/.dev-stamp ## Write docs/guides.md from the items of Google's guides
	@$(BIN)/python -m deploy.guides > docs/guides.md

example: $(VENV)/.run-stamp ## Write config.example.toml from the schema
	$(BIN)/python -m tpuwatch.config > config.example.toml

literals: $(VENV)/.run-stamp ## Write the table of literals from the rules, after a change to one of their patterns
	$(BIN)/python -m tpuwatch.logs.rules > $(LITERALS).new && mv $(LITERALS).new $(LITERALS) || { rm -f $(LITERALS).new; exit 1; }

lock: ## Bring the locks up to date (needs uv)
	$(COMPILE) --upgrade --group build --output-file requirements.lock
	$(COMPILE) --upgrade --group build --group dev --constraint requirements.lock --output-file requirements-dev.lock
	$(COMPILE:pyproject.toml=) --upgrade --group deploy --output-file requirements-deploy.lock
	$(COMPILE) --upgrade --extra gcs --constraint requirements-dev.lock --output-file requirements-gcs.lock
	$(COMPILE) --upgrade --extra plot --constraint requirements-dev.lock --output-file requirements-plot.lock
	$(UV) pip compile requirements-preflight.in --quiet --upgrade --universal --python-version 3.11 --generate-hashes \
		--no-header --no-annotate --no-emit-index-url --no-emit-find-links --output-file requirements-preflight.lock
	$(COMPILE:pyproject.toml=requirements-profile.in) --upgrade --output-file requirements-profile.lock

dist: $(VENV)/.run-stamp ## Build the wheel into dist/
	$(BIN)/python -m hatchling build --target wheel

deb: $(VENV)/.run-stamp ## Build the Debian package into dist/ (takes dpkg-deb)
	$(BIN)/python -m deploy.deb $(DEB_ARGS)

clean: ## Remove what the other targets made
	rm -rf $(VENV) $(VENV)-deploy $(VENV)-preflight $(VENV)-profile dist build tests/proof/bench/out .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
