.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
# Check, tests and docs share one machine and Spark takes all of it: never side by side, even under `make -j`.
.NOTPARALLEL:
.PHONY: help setup run clicks orders test test-unit test-crash test-long check docs bench bench-quick bench-more format clean checked benchmark-peers

VENV := .venv
PYTHON_RUN := $(VENV)/bin/python
PYTEST := $(PYTHON_RUN) -m pytest
READY := $(VENV)/.ready
ALONE := tests/cluster tests/crash tests/faults tests/soak
BYTEWAX := benchmarks/.venv-bytewax
HAZELCAST := benchmarks/.venv-hazelcast

help: ## This text
	@echo "sparkjet: the stream semantics of Hazelcast Jet for PySpark Structured Streaming."
	@echo
	@echo "New here? Type:  make run     (needs Python 3.10+ and Java 17+; does all set-up itself)"
	@echo
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1|\2/p' Makefile | while IFS='|' read -r name text; \
		do printf '%-18s %s\n' "$$name" "$$text"; done

setup: checked $(READY) ## Check Python and Java, install the locked packages into .venv (the others do it when needed)
	@echo "sparkjet: ready. Next: make run"

run: checked $(READY) ## The main job: a year of flights, skewed feeds, a killed driver, exactly once
	@$(PYTHON_RUN) examples/flights.py

clicks: checked $(READY) ## Kafka to sessions to PostgreSQL, both started for it (one minute; needs Maven and PostgreSQL)
	@$(PYTHON_RUN) examples/clicks.py

orders: checked $(READY) ## RabbitMQ to sessions to PostgreSQL with a kill in the middle (one minute; needs both installed)
	@$(PYTHON_RUN) examples/orders.py

test: checked $(READY) ## What a change needs (12 minutes with set-up): everything but crash matrices and long tests
	@# In two processes, each with a Spark session of its own; a file stays in one, as its fixtures are shared.
	@# The slowest are shown: where to save when the whole comes near its 12 minutes. Spark generates no code for their
	@# thousands of small queries; it does in `make test-crash` and `make docs`.
	@$(PYTEST) -m "not crash and not long" --interpreted -n 2 --dist loadfile --durations=15

test-crash: checked $(READY) ## Drivers, executors and servers killed at every step of the protocols (45 minutes)
	@# What ends processes or fills disks has the machine for itself; the rest runs in two processes, as in `make test`.
	@$(PYTEST) -m "crash and not long" $(addprefix --ignore=,$(ALONE)) -n 2 --dist loadfile --durations=15
	@$(PYTEST) -m "crash and not long" $(ALONE) --durations=15

test-unit: $(READY) ## The tests that need no Java (under two minutes)
	@# No Java to be found: a test that starts a JVM without saying so (the `spark` fixture, a mark) fails here.
	@JAVA_HOME=/dev/null $(PYTEST) -m "not spark and not crash and not long"

test-long: checked $(READY) ## The long ones: every crash point, many seeds (hours)
	@$(PYTEST) -m long

check: $(READY) ## Lint, format, types, layers, house rules
	@$(PYTHON_RUN) -m ruff check .
	@$(PYTHON_RUN) -m ruff format --check .
	@$(PYTHON_RUN) -m mypy
	@$(VENV)/bin/lint-imports --no-logo
	@$(PYTHON_RUN) scripts/house_rules.py

docs: checked $(READY) ## Run every example in docstrings, README and docs; check the links between pages
	@$(PYTEST) --doctest-modules src $(wildcard *.md) docs

bench: checked $(READY) benchmark-peers ## Speed next to Spark, Hazelcast Jet and Flink (up to 90 minutes; needs Maven and PostgreSQL)
	@$(PYTHON_RUN) -m benchmarks --plot

bench-quick: checked $(READY) benchmark-peers ## One work next to Spark and Hazelcast Jet (5 minutes; needs Maven)
	@$(PYTHON_RUN) -m benchmarks --quick

bench-more: checked $(READY) benchmark-peers ## The works and studies that bench leaves out (two hours)
	@$(PYTHON_RUN) -m benchmarks --more --plot

format: $(READY) ## Format, and fix what ruff can fix safely
	@$(PYTHON_RUN) -m ruff check --fix-only --quiet .
	@$(PYTHON_RUN) -m ruff format .

clean: ## Remove the environment, the caches and what Spark leaves behind
	rm -rf $(VENV) $(BYTEWAX) $(HAZELCAST) benchmarks/java/target build dist spark-warehouse metastore_db derby.log artifacts
	rm -rf .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find src tests scripts examples benchmarks docs -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

# Maven and pip know themselves what is up to date.
benchmark-peers:
	@mvn -q -B -f benchmarks/java/pom.xml package
	@test -x $(BYTEWAX)/bin/python || python3 -m venv $(BYTEWAX)
	@$(BYTEWAX)/bin/python -m pip install -q --disable-pip-version-check -r benchmarks/peers/bytewax.txt
	@test -x $(HAZELCAST)/bin/python || python3 -m venv $(HAZELCAST)
	@$(HAZELCAST)/bin/python -m pip install -q --disable-pip-version-check -r benchmarks/peers/hazelcast.txt

# Every time, because Java can go away after set-up; it takes a fraction of a second.
checked:
	@scripts/setup.sh --check

# Again only when what is installed would change.
$(READY): requirements.lock pyproject.toml scripts/setup.sh
	@scripts/setup.sh --install
	@touch $@
