# Each target installs what it needs into .venv on first use.
#   make train         train Ape-X on CartPole-v1, evaluate the policy and draw the learning curve
#   make test          run all CI checks: lint, format, types, chapters and tests
#   make quick         check after an edit: lint, types and the tests of the buffers of one process
#   make stress        run the stress tests: random kills and interrupts, random histories, several hosts
#   make processors    run the tests that train an agent as on processors with older instructions
#   make notebooks     open the chapters in JupyterLab
#   make chapters      execute the chapters and renew the outputs in their notebooks
#   make docs          execute the chapters and build the site into site/
#   make docs-serve    serve the site at http://127.0.0.1:8000 and rebuild it after each change
#   make bench         compare the buffers with cpprb
#   make bench-peers   compare the buffers with all other libraries and draw the charts
#   make bench-tables  compare the tables with Reverb
#   make bench-cleanrl compare CleanRL's DQN with and without our buffers
#   make conformance   check properties of correct replay in our buffers and in other libraries
#   make report        re-run the benchmarks of the site and the README; ARGS=--full includes training runs
#   make ladders       measure the chapters' ladders for the site
#   make cluster-demo  train on three simulated hosts (Linux); ARGS="--kill-after 20" kills one of them
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
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check $(PIP_ARGS) -c constraints.txt

# Silences mkdocs-material's long warning about mkdocs 2; pyproject.toml keeps mkdocs below 2.
export NO_MKDOCS_2_WARNING := 1

.PHONY: train test quick stress processors chapters docs docs-serve notebooks bench cluster-demo bench-peers bench-tables bench-cleanrl conformance report ladders format clean

train: .venv/train.stamp
	$(BIN)/python -m replay_tutorial train $(ENVIRONMENT) $(ARGS)

test: .venv/test.stamp
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/pyright --pythonpath $(BIN)/python
	$(BIN)/python -m replay_tutorial warm-up
	$(BIN)/python docs/render_chapters.py
	$(BIN)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder $(ARGS)

quick: .venv/test.stamp
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/pyright --pythonpath $(BIN)/python
	$(BIN)/python -m pytest -n 3 --dist loadfile tests/test_layout.py tests/buffers $(ARGS)

stress: .venv/test.stamp
	$(BIN)/python -m pytest tests/stress $(ARGS)
	EXPLORE=5 $(BIN)/python -m pytest tests/buffers tests/tables -k "any_history or any_program" $(ARGS)

processors: .venv/test.stamp
	$(BIN)/python -m replay_tutorial warm-up
	$(BIN)/python tests/processors.py $(ARGS)

chapters: .venv/docs.stamp
	$(BIN)/jupytext --sync chapters/[0-9]*.md
	$(BIN)/python docs/render_chapters.py --notebooks $(ARGS)

docs: .venv/docs.stamp
	$(BIN)/python docs/render_chapters.py
	$(BIN)/mkdocs build --strict --site-dir site
	$(BIN)/properdocs build --strict -f mkdocs.yml --site-dir build/properdocs
	@echo "The site is in site/. To read it with its search, run: make docs-serve"

# --livereload is needed because newer releases of click treat mkdocs' default as false.
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

bench-cleanrl: .venv/train.stamp .venv/cleanrl.stamp .venv/gymnasium-0.29.stamp
	PYTHONPATH=$(CURDIR)/.venv/cleanrl:$(CURDIR)/.venv/gymnasium-0.29 $(BIN)/python -m replay_tutorial bench cleanrl \
		--output docs/measurements --markdown docs/measurements/index.md $(ARGS)

conformance: .venv/peers.stamp .venv/cleanrl.stamp .venv/d3rlpy.stamp .venv/tianshou.stamp .venv/torchrl.stamp .venv/reverb.stamp
	PYTHONPATH=$(CURDIR)/.venv/cleanrl $(BIN)/python -m replay_tutorial conformance --json docs/measurements/conformance.json \
		--markdown docs/measurements/conformance.md $(ARGS)

report: .venv/peers.stamp .venv/tianshou.stamp .venv/reverb.stamp
	$(BIN)/python -m replay_tutorial bench report $(ARGS)

ladders: .venv/bench.stamp
	$(BIN)/python chapters/records/ladders.py --json docs/measurements/ladders.json \
		--markdown docs/measurements/ladders.md docs/index.md $(ARGS)

format: .venv/dev.stamp
	$(BIN)/ruff check --fix
	$(BIN)/ruff format
	$(BIN)/python docs/recipe_code.py

clean:
	rm -rf .venv build dist site .pytest_cache .ruff_cache .hypothesis
	find replay_tutorial tests -name __pycache__ -type d -prune -exec rm -rf {} +

# A stamp is written after its step has succeeded, so an interrupted installation resumes at that step.
.venv/made.stamp:
	@$(PYTHON) -c "import sys; sys.exit(sys.version_info < (3, 11))" || { \
		echo "replay_tutorial needs Python 3.11 or newer; '$(PYTHON)' is: $$($(PYTHON) --version 2>&1)."; \
		echo "Select another interpreter: make $(MAKECMDGOALS) PYTHON=python3.12"; \
		exit 1; }
	$(PYTHON) -m venv --clear .venv
	@touch $@

# CleanRL's buffer is a module of its repository, which isn't a package on PyPI.
.venv/cleanrl.stamp: .venv/made.stamp
	rm -rf .venv/cleanrl
	git clone --quiet https://github.com/vwxyzjn/cleanrl .venv/cleanrl \
		&& git -C .venv/cleanrl checkout --quiet fe8d8a03c41a7ef5b523e2e354bd01c363e786bb \
		&& touch $@ || { rm -rf .venv/cleanrl; echo "CleanRL can't be cloned here. The check skips it."; }

# CleanRL's scripts require gymnasium 0.29, which precedes the newer one in PYTHONPATH.
.venv/gymnasium-0.29.stamp: .venv/made.stamp
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps \
		--target .venv/gymnasium-0.29 gymnasium==0.29.1
	@touch $@

# tianshou requires an old virtualenv, and thus a filelock older than the pinned one. Its buffers need neither.
.venv/tianshou.stamp: .venv/peers.stamp
	$(INSTALL) --no-deps tianshou==2.0.1 deepdiff==7.0.1 h5py==3.16.0 ordered-set==4.1.0 overrides==7.7.0 \
		pandas==2.3.3 pettingzoo==1.27.0 pytz==2026.6 sensai-utils==1.6.0 tqdm==4.70.1 python-dateutil six tzdata \
		&& $(BIN)/python -c "import tianshou.data" && touch $@ \
		|| echo "tianshou can't be installed here. The benchmark skips it."

# Reverb's TensorFlow requires NumPy below 2, and Reverb has wheels for Linux and Python 3.9 to 3.11 only.
.venv/reverb.stamp: .venv/made.stamp
	$(BIN)/python -m venv --clear .venv/reverb
	.venv/reverb/bin/python -m pip install --quiet --disable-pip-version-check "dm-reverb[tensorflow]==0.14.0" \
		&& touch $@ || { rm -rf .venv/reverb; echo "Reverb can't be installed here. The benchmark skips it."; }

# TorchRL's sum tree is compiled for certain versions of PyTorch; 0.14 requires 2.14 or newer.
.venv/torchrl.stamp: .venv/made.stamp
	$(BIN)/python -m venv --clear .venv/torchrl
	.venv/torchrl/bin/python -m pip install --quiet --disable-pip-version-check $(PIP_ARGS) \
		torchrl==0.14.1 tensordict==0.14.3 torch==2.14.1 numpy==2.4.6 \
		&& touch $@ || { rm -rf .venv/torchrl; echo "TorchRL can't be installed here; it is checked without priorities."; }

# d3rlpy requires gym and other packages that nothing else here needs.
.venv/d3rlpy.stamp: .venv/made.stamp
	$(BIN)/python -m venv --clear .venv/d3rlpy
	.venv/d3rlpy/bin/python -m pip install --quiet --disable-pip-version-check $(PIP_ARGS) \
		d3rlpy==2.8.1 torch==2.13.0 numpy==2.4.6 \
		&& touch $@ || { rm -rf .venv/d3rlpy; echo "d3rlpy can't be installed here. The check skips it."; }

.venv/%.stamp: .venv/made.stamp pyproject.toml constraints.txt
	@echo "Installing the dependencies of 'make $*' into .venv (once, takes a few minutes) ..."
	$(INSTALL) -e ".[$(EXTRAS_$*)]"
	@touch $@

EXTRAS_train := train
EXTRAS_test := train,cluster,atari,minatar,minari,box2d,peers,bench,notebooks,docs,dev
EXTRAS_docs := train,notebooks,docs
EXTRAS_notebooks := train,notebooks
EXTRAS_bench := bench
EXTRAS_cluster := cluster,train
EXTRAS_peers := train,box2d,bench,peers,contenders
EXTRAS_dev := dev
