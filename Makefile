# Each target sets up what it needs in .venv the first time and starts at once the next time.
#   make train    train Ape-X on CartPole-v1, evaluate it, draw its learning curve
#   make test     lint, format, types, documentation, tests: what CI runs
#   make stress   kill and interrupt at random moments, try new histories, and what takes hosts or minutes
#   make notebooks  open the chapters in JupyterLab
#   make docs     execute the chapters, and build the site into site/
#   make docs-serve  show it while you write: http://127.0.0.1:8000, built again at each change
#   make bench    measure the buffers beside cpprb
#   make cluster-demo  train on three hosts, made of this machine; ARGS="--kill-after 20" kills one (Linux)
#   make bench-peers  measure them beside every library there is, and draw the charts
#   make bench-tables  measure the tables beside Reverb
#   make report   re-run all benchmarks of the site and the README; ARGS=--full for what trains, too
#   make ladders  measure the ladders of the chapters for the site
#   make format   put the code into the one format
#   make clean    remove .venv and everything that was built
#
# Another Python:                    make train PYTHON=python3.12
# Other options of the run:          make train ENVIRONMENT=Acrobot-v1 ARGS="--seed 1"
# Linux without a GPU (torch from PyPI brings several GB of GPU libraries, this index has the CPU build):
#   make train PIP_ARGS="--extra-index-url https://download.pytorch.org/whl/cpu"

PYTHON ?= python3
ENVIRONMENT ?= CartPole-v1
ARGS ?=
PIP_ARGS ?=

BIN := .venv/bin
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check $(PIP_ARGS) -c constraints.txt

# mkdocs-material prints a page about mkdocs 2 without it; mkdocs is kept below 2 here, see pyproject.toml
export NO_MKDOCS_2_WARNING := 1

.PHONY: train test stress docs docs-serve notebooks bench cluster-demo bench-peers bench-tables report ladders format clean

train: .venv/train.stamp
	$(BIN)/python -m replay_tutorial train $(ENVIRONMENT) $(ARGS)

test: .venv/test.stamp
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/pyright --pythonpath $(BIN)/python
	$(BIN)/python -m replay_tutorial warm-up
	$(BIN)/python docs/render_chapters.py
	$(BIN)/python -m pytest -n 3 --dist loadfile $(ARGS)

stress: .venv/test.stamp
	$(BIN)/python -m pytest tests/stress $(ARGS)
	EXPLORE=5 $(BIN)/python -m pytest tests/buffers tests/tables -k "any_history or any_program" $(ARGS)

docs: .venv/docs.stamp
	$(BIN)/python docs/render_chapters.py
	$(BIN)/mkdocs build --strict --site-dir site
	$(BIN)/properdocs build --strict -f mkdocs.yml --site-dir build/properdocs
	@echo "The site is in site/: open site/index.html, or run make docs-serve"

# --livereload is said because newer releases of click take mkdocs' default for "no"
docs-serve: .venv/docs.stamp
	$(BIN)/mkdocs serve --livereload $(ARGS)

notebooks: .venv/notebooks.stamp
	cd chapters && ../$(BIN)/python -m jupyterlab $(ARGS)

bench: .venv/bench.stamp
	$(BIN)/python -m replay_tutorial bench $(ARGS)

cluster-demo: .venv/cluster.stamp
	$(BIN)/python tests/stress/cluster_demo.py $(ARGS)

bench-peers: .venv/peers.stamp .venv/tianshou.stamp .venv/reverb.stamp
	$(BIN)/python -m replay_tutorial bench article --output docs/measurements \
		--markdown docs/measurements/buffers.md $(ARGS)

bench-tables: .venv/bench.stamp .venv/reverb.stamp
	$(BIN)/python -m replay_tutorial bench tables --json docs/measurements/tables.json \
		--markdown docs/measurements/beside_reverb.md $(ARGS)

report: .venv/peers.stamp .venv/tianshou.stamp .venv/reverb.stamp
	$(BIN)/python -m replay_tutorial bench report $(ARGS)

ladders: .venv/bench.stamp
	$(BIN)/python chapters/records/ladders.py --json docs/measurements/ladders.json \
		--markdown docs/measurements/ladders.md docs/index.md $(ARGS)

format: .venv/dev.stamp
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

clean:
	rm -rf .venv build dist site .pytest_cache .ruff_cache .hypothesis
	find replay_tutorial tests -name __pycache__ -type d -prune -exec rm -rf {} +

# A stamp is written when its step has succeeded: an interrupted set-up starts again where it stopped.
.venv/made.stamp:
	@$(PYTHON) -c "import sys; sys.exit(sys.version_info < (3, 11))" || { \
		echo "replay_tutorial needs Python 3.11 or newer; '$(PYTHON)' is: $$($(PYTHON) --version 2>&1)."; \
		echo "Name another one: make $(MAKECMDGOALS) PYTHON=python3.12"; \
		exit 1; }
	$(PYTHON) -m venv --clear .venv
	@touch $@

# tianshou asks for an old virtualenv, and so for a filelock below the pinned one; neither is needed to replay.
.venv/tianshou.stamp: .venv/peers.stamp
	$(INSTALL) --no-deps tianshou==2.0.1 deepdiff==7.0.1 h5py==3.16.0 ordered-set==4.1.0 overrides==7.7.0 \
		pandas==2.3.3 pettingzoo==1.27.0 pytz==2026.6 sensai-utils==1.6.0 tqdm==4.70.1 python-dateutil six tzdata \
		&& $(BIN)/python -c "import tianshou.data" && touch $@ \
		|| echo "tianshou can't be installed here; it is left out."

# Reverb's TensorFlow wants a NumPy below 2. It has wheels for Linux and Python 3.9 to 3.11 only.
.venv/reverb.stamp: .venv/made.stamp
	$(BIN)/python -m venv --clear .venv/reverb
	.venv/reverb/bin/python -m pip install --quiet --disable-pip-version-check "dm-reverb[tensorflow]==0.14.0" \
		&& touch $@ || { rm -rf .venv/reverb; echo "Reverb can't be installed here; it is left out."; }

.venv/%.stamp: .venv/made.stamp pyproject.toml constraints.txt
	@echo "Installing what 'make $*' needs into .venv (once; a few minutes the first time) ..."
	$(INSTALL) -e ".[$(EXTRAS_$*)]"
	@touch $@

EXTRAS_train := train
EXTRAS_test := train,cluster,atari,box2d,peers,bench,notebooks,docs,dev
EXTRAS_docs := train,notebooks,docs
EXTRAS_notebooks := train,notebooks
EXTRAS_bench := bench
EXTRAS_cluster := cluster,train
EXTRAS_peers := train,box2d,bench,peers,contenders
EXTRAS_dev := dev
