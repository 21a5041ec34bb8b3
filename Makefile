# Each target installs what it needs into .venv on first use.
#   make train         train Ape-X on CartPole-v1, evaluate the policy and draw the learning curve
#   make test          run all CI checks: lint, format, types, chapters and tests
#   make quick         check after an edit: lint, types and the tests of the buffers of one process
#   make long          run the tests that take long, which CI runs beside those of make test
#   make stress        run the stress tests: random kills and interrupts, random histories, several hosts
#   make processors    run the tests that train an agent as on six processors; with ARGS=--all, eighteen
#   make notebooks     open the chapters in JupyterLab
#   make docs          build the site into site/
#   make lab           measure, and compare with other libraries: see benchmarks/README.md
#   make format        fix lint errors, format the code and copy the programs of the recipes into their pages
#   make clean         remove .venv, caches and all build output
#
# Select another interpreter:  make train PYTHON=python3.12
# Pass options to the run:     make train ENVIRONMENT=Acrobot-v1 ARGS="--seed 1"
# On Linux without a GPU, install PyTorch's CPU build, which is several GB smaller:
#   make train PIP_ARGS="--extra-index-url https://download.pytorch.org/whl/cpu"

PYTHON ?= python3
ENVIRONMENT ?= CartPole-v1
ARGS ?=
PIP_ARGS ?=

BIN := .venv/bin
# Python compiles what is imported; compiling all files of all packages would take three quarters of a minute more.
INSTALL := $(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check $(PIP_ARGS) -c constraints.txt

# Silences mkdocs-material's long warning about mkdocs 2; pyproject.toml keeps mkdocs below 2.
export NO_MKDOCS_2_WARNING := 1

# The tests start hundreds of interpreters: if none may write compiled files, each compiles the package.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: train test quick long stress processors notebooks docs lab format clean

train: .venv/train.stamp
	$(BIN)/python -m replay_tutorial train $(ENVIRONMENT) $(ARGS)

test: .venv/test.stamp
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/pyright --pythonpath $(BIN)/python & \
	$(BIN)/python -m replay_tutorial warm-up && \
	$(BIN)/python docs/render_chapters.py; rendered=$$?; wait $$! && exit $$rendered
	$(BIN)/python -m pytest -n 4 --dist loadfile --no-loadscope-reorder $(ARGS)

quick: .venv/test.stamp
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/pyright --pythonpath $(BIN)/python
	$(BIN)/python -m pytest -n 3 --dist loadfile tests/test_layout.py tests/buffers $(ARGS)

stress: .venv/test.stamp
	$(BIN)/python -m pytest tests/stress $(ARGS)
	EXPLORE=5 $(BIN)/python -m pytest tests/buffers tests/tables tests/shared -k "any_history or any_program or interrupted or any_line" $(ARGS)

long: .venv/test.stamp
	$(BIN)/python -m pytest -n 4 --dist loadfile -m long $(ARGS)

processors: .venv/test.stamp
	$(BIN)/python -m replay_tutorial warm-up
	$(BIN)/python tests/processors.py $(ARGS)

docs: .venv/docs.stamp
	$(BIN)/mkdocs build --strict --site-dir site
	$(BIN)/properdocs build --strict -f mkdocs.yml --site-dir build/properdocs
	@echo "The site is in site/. To read it with its search, run: .venv/bin/mkdocs serve --livereload"

notebooks: .venv/notebooks.stamp
	cd chapters && ../$(BIN)/python -m jupyterlab $(ARGS)

lab:
	@$(MAKE) -C benchmarks $(TARGET)

format: .venv/dev.stamp
	$(BIN)/ruff check --fix
	$(BIN)/ruff format
	$(BIN)/python docs/copy_sections.py

clean:
	rm -rf .venv benchmarks/.venv build dist site .pytest_cache .ruff_cache .hypothesis
	find replay_tutorial benchmarks tests -name __pycache__ -type d -prune -exec rm -rf {} +

# A stamp is written after its step has succeeded, so an interrupted installation resumes at that step.
.venv/made.stamp:
	@$(PYTHON) -c "import sys; sys.exit(sys.version_info < (3, 11))" || { \
		echo "replay_tutorial needs Python 3.11 or newer; '$(PYTHON)' is: $$($(PYTHON) --version 2>&1)."; \
		echo "Select another interpreter: make $(MAKECMDGOALS) PYTHON=python3.12"; \
		exit 1; }
	$(PYTHON) -m venv --clear .venv
	@touch $@

.venv/%.stamp: .venv/made.stamp pyproject.toml constraints.txt
	@echo "Installing the dependencies of 'make $*' into .venv (once, takes a few minutes) ..."
	$(INSTALL) -e ".[$(EXTRAS_$*)]"
	@touch $@

EXTRAS_train := train
EXTRAS_test := train,games,cluster,sb3,minari,notebooks,docs,dev
EXTRAS_docs := docs
EXTRAS_notebooks := train,notebooks
EXTRAS_dev := dev
