.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
# Check, tests and docs share one machine and Spark takes all of it: never side by side, even under `make -j`.
.NOTPARALLEL:
# Images of Python set it: each of hundreds of processes would compile what it imports, and each worker of pytest all tests.
unexport PYTHONDONTWRITEBYTECODE
.PHONY: help setup servers run clicks orders board test test-unit test-crash test-long test-sparks fuzz check docs bench bench-quick bench-more format clean checked benchmark-peers site

VENV := .venv
PYTHON_RUN := $(VENV)/bin/python
READY := $(VENV)/.ready
CLASSES := $(VENV)/classes.jsa
PYTEST := $(PYTHON_RUN) -m pytest
# In several processes, each with a Spark session of its own; a file stays in one, as its fixtures are shared. The
# slowest tests are shown, and all durations are kept: scripts/minutes.py compares them with tests/minutes.md.
BESIDE = --dist loadfile --durations=15 --junit-xml=build/junit/$@.xml
IN_TWO = $(PYTEST) -n 2 $(BESIDE)
# For two cores: a quarter of these tests' time is spent waiting for brokers and members.
IN_THREE = $(PYTEST) -n 3 $(BESIDE)
# What a type checker says of the pages' examples.
TYPES := tests/api/test_types.py
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

servers: checked $(READY) $(CLASSES) ## Load and build the servers that tests start (the tests do when needed)
	@$(PYTHON_RUN) -m tests.servers

run: checked $(READY) ## The main job: a year of flights, skewed feeds, a killed driver, exactly once
	@$(PYTHON_RUN) examples/flights.py

clicks: checked $(READY) ## Kafka to sessions to PostgreSQL, both started for it (one minute; needs Maven and PostgreSQL)
	@$(PYTHON_RUN) examples/clicks.py

orders: checked $(READY) ## RabbitMQ to sessions to PostgreSQL with a kill in the middle (one minute; needs both installed)
	@$(PYTHON_RUN) examples/orders.py

board: checked $(READY) ## Two queries joined by a journal into a map that a terminal reads, while a member and a driver are killed
	@$(PYTHON_RUN) examples/board.py

test: checked $(READY) $(CLASSES) ## What a change needs (10 minutes with set-up): all that needs no server, no kills and no hours
	@# Spark generates no code for their thousands of small queries; it does in `make test-crash` and `make docs`.
	@$(IN_THREE) -m "not crash and not server and not long" --interpreted --ignore=$(TYPES)

test-crash: checked $(READY) $(CLASSES) ## Connectors on their servers; drivers, executors and servers killed at every step; random queries
	@$(IN_THREE) -m "(crash or server) and not long"

test-unit: $(READY) ## The tests that need no Java (under two minutes)
	@# No Java to be found: a test that starts a JVM without saying so (the `spark` fixture, a mark) fails here.
	@JAVA_HOME=/dev/null $(PYTEST) -m "not spark and not crash and not server and not long"

test-long: checked $(READY) $(CLASSES) ## The long ones: every crash point, many seeds (hours)
	@$(PYTEST) -m long

# Not LINES, which shells export as the height of their window.
test-sparks: checked $(READY) $(CLASSES) ## Spark 4.0 to 4.3: doors, pages, saved homes, killed drivers, on each (first time: 1.3 GB)
	@$(PYTHON_RUN) scripts/sparks.py $(SPARKS)

SECONDS := 600
fuzz: checked $(READY) $(CLASSES) ## Random queries against Spark's batch: make fuzz SECONDS=600, and SEED=… for known ones
	@$(PYTHON_RUN) -m tests.differential --seconds $(SECONDS) $(if $(SEED),--seed $(SEED))

check: $(READY) ## Lint, format, types, layers, house rules
	@$(PYTHON_RUN) -m ruff check .
	@$(PYTHON_RUN) -m ruff format --check .
	@$(PYTHON_RUN) -m mypy
	@$(VENV)/bin/lint-imports --no-logo
	@$(PYTHON_RUN) scripts/house_rules.py

docs: checked $(READY) $(CLASSES) ## Run and type-check every example in docstrings and pages; check the links between pages
	@$(IN_TWO) --doctest-modules src $(wildcard *.md) docs $(TYPES)

site: $(READY) ## The site: pages, and a reference made from the code, into build/site; warnings are errors
	@$(PYTHON_RUN) -m sphinx -b html -W -n --keep-going -q -c site -d build/doctrees docs build/site
	@echo "sparkjet: the site is build/site/index.html"

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

# Anew with the packages, as the JVM compares the archive with the jars it was made from.
$(CLASSES): $(READY) scripts/class_archive.py
	@$(PYTHON_RUN) scripts/class_archive.py $@

# Again only when what is installed would change.
$(READY): requirements.lock pyproject.toml src/sparkjet_grid/pyproject.toml scripts/setup.sh
	@scripts/setup.sh --install
	@touch $@
