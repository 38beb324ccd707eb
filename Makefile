# `make setup` makes the environments; every other target is one line that calls the `playbook` command line,
# which does the same without make: .venv/bin/playbook --help
PLAYBOOK := .venv/bin/playbook
OPTIONS = $(if $(PROFILE),--profile $(PROFILE)) $(if $(RELEASE),--release $(RELEASE)) $(if $(WORKSPACE),--workspace $(WORKSPACE))

.PHONY: help setup course test check docs book slides lab clean
.DEFAULT_GOAL := help

help:    ## Show this help
	@sed -n 's/^\([a-z]*\): .*## /  make \1\t/p' $(MAKEFILE_LIST) | expand -t 16

setup:   ## Make .venv, .envs/triton and .envs/aiperf; every target below does it when something is missing
	@python3 playbook/bootstrap.py

course: setup  ## Run the course: [PROFILE=p5] [RELEASE=0.12.0] [WORKSPACE=dir] [ARGS="05 --keep-going"]
	@$(PLAYBOOK) run $(OPTIONS) $(ARGS)

test: setup    ## Run everything that CI checks: [ARGS="-k triton"] goes to pytest; [PROCESSOR=avx2] as on an older one
	@$(if $(PROCESSOR),env $$(python3 tests/processor_settings.py $(PROCESSOR))) $(PLAYBOOK) test $(ARGS)

check: setup   ## The fast part of that, for a pull request: lint, types, tests/unit; [ARGS] as for test; [COVERAGE=1]
	@$(if $(COVERAGE),env COVERAGE_PROCESS_START=$(CURDIR)/pyproject.toml COVERAGE_FILE=$(CURDIR)/.coverage) $(PLAYBOOK) test tests/unit $(ARGS)

docs: setup    ## Write the generated pages of docs/ again
	@$(PLAYBOOK) docs

book: setup    ## Write the course as static pages into build/book
	@$(PLAYBOOK) book $(ARGS)

slides: setup  ## Write the chapters as slides with speaker notes into build/slides: [ARGS="02 05 --lang zh"]
	@$(PLAYBOOK) slides $(ARGS)

lab: setup     ## Open JupyterLab on the course
	@$(PLAYBOOK) lab $(ARGS)

clean:   ## Remove workspace/, runs/ and caches; [ARGS=--all] the environments as well
	@if [ -x $(PLAYBOOK) ]; then $(PLAYBOOK) clean $(ARGS); fi
