# `make help` lists the targets. Everything uses and makes .venv; caches live in ~/.cache/pelops.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
PYTHON ?= python3
BIN := .venv/bin
BENCHMARKS := recovery redrive sweep pod_death operator_scale hostile_tenant observing scaling wake worker spark_source audit
VENV := .venv/.installed
TOOLS := .venv-tools/.installed
TEST_PROCESSES ?= 4
FAST_TESTS := tests/unit tests/properties tests/contract
PYTEST = $(BIN)/python -m pytest -n $(TEST_PROCESSES) --dist loadfile

# Hundreds of processes of a test run import the same modules: each is compiled once.
unexport PYTHONDONTWRITEBYTECODE
# API servers of a test run have memory to spare, and collect garbage less often.
test test-full: export GOGC = 400

.DEFAULT_GOAL := help

.PHONY: help
help: ## List the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  %-14s %s\n", $$1, $$2}'

$(VENV): requirements/dev.txt requirements/build.txt pyproject.toml $(wildcard packages/*/pyproject.toml) tools/make_venv.sh
	@PYTHON=$(PYTHON) tools/make_venv.sh

$(TOOLS): requirements/tools.txt | $(VENV)
	@$(PYTHON) -m venv .venv-tools
	@.venv-tools/bin/python -m pip install --quiet --disable-pip-version-check --only-binary :all: --require-hashes -r $<
	@touch $@

.PHONY: demo
demo: $(VENV) ## Run the main job from nothing and check its result (KEEP=1 leaves it up)
	@$(BIN)/python -m demo

.PHONY: test-fast
test-fast: $(VENV) ## Run unit, property and contract tests, which need Redis at most (2 minutes)
	@$(BIN)/python -m local_cluster build --redis-only
	@$(PYTEST) -m "not full" $(or $(PYTEST_ARGS),$(FAST_TESTS))

.PHONY: test-servers
test-servers: $(VENV)
	@$(BIN)/python -m local_cluster build
	@$(BIN)/python -m local_cluster.helm >/dev/null || echo "tests of the chart are skipped" >&2
	@$(BIN)/python -m local_cluster.java >/dev/null || echo "tests of Spark are skipped" >&2
	@$(BIN)/python -m local_cluster.spark_jars >/dev/null || echo "tests of Delta Lake and S3 are skipped" >&2
	@$(BIN)/python -m tests.pipeline.s3_parts >/dev/null || echo "tests of S3 are skipped" >&2

.PHONY: test
test: test-servers ## Run all that guards a change, on real servers (TEST_PROCESSES=0: one by one)
	@$(PYTEST) -m "not full" $(PYTEST_ARGS)

.PHONY: test-full
test-full: test-servers ## Run the rest: other versions of Redis and PySpark, long forms, other languages
	@$(BIN)/python -m tests.spark.versions >/dev/null || echo "tests of other versions of PySpark are skipped" >&2
	@$(PYTEST) -m full $(PYTEST_ARGS)
	@$(if $(PYTEST_ARGS),,$(PYTEST) -m "not full" tests/properties --hypothesis-profile=long)
	@$(if $(PYTEST_ARGS),,$(BIN)/python -m tests.mutation)

.PHONY: check
check: $(VENV) ## Lint; check types, layers, prose and generated files
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy -p pelops -p pyspark_redis_streams -p local_cluster -p demo -p tests -p benchmarks -p tools
	$(BIN)/lint-imports --no-logo
	$(BIN)/python -m tools.check_prose
	$(BIN)/python -m pelops.api.crd --check
	$(BIN)/python -m pelops.pipeline.report.model --check
	$(BIN)/python -m tools.reference --check
	$(BIN)/python -m tools.spark_options --check
	$(BIN)/python -m tools.messages --check
	$(BIN)/python -m tools.pasted_outputs
	$(BIN)/python -m tools.chart --check
	$(BIN)/python -m tools.dashboards --check

.PHONY: bench
bench: $(VENV) ## Run the benchmarks
	@for name in $(BENCHMARKS); do $(BIN)/python -m benchmarks.$$name; done

.PHONY: cluster-up
cluster-up: $(VENV) ## Start a control plane, a node and Redis to play with
	@$(BIN)/python -m local_cluster up

.PHONY: cluster-down
cluster-down: $(VENV) ## End what cluster-up or KEEP=1 left
	@$(BIN)/python -m local_cluster down

.PHONY: image
image: ## Build both container images (Docker, Buildx or Podman; IMAGE_REGISTRY, IMAGE_TAG, PLATFORMS, PUSH=1)
	@tools/build_images.sh

.PHONY: dist
dist: $(VENV) ## Build what is released, reproducibly: wheel, sdist, SBOM, third-party notices
	@$(BIN)/python -m tools.supply_chain.dist dist

.PHONY: chart
chart: $(VENV) ## Copy the manifests into the Helm chart and package it into dist/
	@$(BIN)/python -m tools.chart --write
	@$$($(BIN)/python -m local_cluster.helm) package chart/pelops-operator --destination dist

.PHONY: locks
locks: $(VENV) $(TOOLS) ## Pin the packages of pyproject.toml and the jars, with hashes (UPGRADE=1: newest)
	@$(BIN)/python -m tools.supply_chain.lock packages --uv .venv-tools/bin/uv $(if $(UPGRADE),--upgrade)
	@$(BIN)/python -m tools.supply_chain.lock jars

.PHONY: debian-lock
debian-lock: ## Pin the JRE of the pipeline image, in the base image (needs Docker)
	docker run --rm --volume "$(CURDIR):/src" --workdir /src \
		"$$(sed -n 's/^ARG PYTHON_IMAGE=//p' Dockerfile)" python -m tools.supply_chain.lock debian

.PHONY: advisories
advisories: $(VENV) ## Look for known vulnerabilities of the pinned packages, where a source answers
	@$(MAKE) --no-print-directory $(TOOLS) || echo "advisories: skipped: pip-audit cannot be installed" >&2
	@if [ -e $(TOOLS) ]; then $(BIN)/python -m tools.supply_chain.advisories .venv-tools/bin/pip-audit $(ADVISORIES); \
	else test -z "$(ADVISORIES)"; fi

.PHONY: crds
crds: $(VENV) ## Write crds/, the page of messages, the schema of audit.json, the tables of Spark options
	@$(BIN)/python -m pelops.api.crd --write
	@$(BIN)/python -m pelops.pipeline.report.model --write
	@$(BIN)/python -m tools.spark_options --write
	@$(BIN)/python -m tools.messages --write

.PHONY: reference
reference: $(VENV) ## Write the generated parts of docs/reference: fields, metrics, commands, scripts, ACL
	@$(BIN)/python -m tools.reference --write

.PHONY: dashboards
dashboards: $(VENV) ## Write the dashboards of Grafana, and previews from a recorded run
	@$(BIN)/python -m tools.dashboards
	@$(BIN)/python -m tests.monitoring.dashboards

.PHONY: docs
docs: $(VENV) $(TOOLS) ## Build the documentation site, build/site, and check every link (SERVE=1 shows it)
	@$(BIN)/python -m tools.docs_site build --zensical .venv-tools/bin/zensical
	@if [ -n "$(SERVE)" ]; then $(BIN)/python -m http.server --bind 127.0.0.1 --directory build/site 8000; fi

.PHONY: clean
clean: ## Remove what was made inside this directory
	rm -rf .venv .venv-tools build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} + ; rm -rf operator/*.egg-info packages/*/build packages/*/src
