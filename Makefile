# Orbit's commands. `make` alone explains them.
SHELL := /bin/bash
BIN   := bin
MODULES := api migrations pkg services/management services/gateway sdk/go sdk/go/examples sdk/orbitctl deploy deploy/bench

.DEFAULT_GOAL := help
.PHONY: help deps build demo up down test lint bench soak fuzz images clean

help: ## this list
	@awk -F':.*## ' '/^[a-z]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo
	@echo "  ORBIT_HOME, ORBIT_MANAGEMENT_ADDR, ORBIT_GATEWAY_ADDR, ORBIT_MYSQL_ADDR   place and ports of a stack"
	@echo "  ORBIT_DSN   use an existing database    DEMO_DIR, DEMO_RATE   what the demo works on, and how fast"

deps: ## install what a fresh Debian or macOS lacks: a database server
	@sh deploy/local/install.sh

build: ## build the services, orbitctl and the local stack into bin/
	@mkdir -p $(BIN)
	@CGO_ENABLED=0 go build -trimpath -o $(BIN)/ ./services/management ./services/gateway ./deploy/local ./sdk/orbitctl
	@cd $(BIN) && mv -f management orbit-management && mv -f gateway orbit-gateway && mv -f local orbit-local

demo: deps build ## run a real job end to end on a private database, check every result, print a summary
	@$(BIN)/orbit-local demo

up: deps build ## start a stack in the background; $$ORBIT_HOME/env (.orbit/env) says how to reach it
	@$(BIN)/orbit-local up

down: ## stop that stack
	@if [ -x $(BIN)/orbit-local ]; then $(BIN)/orbit-local down; else echo "not running"; fi

test: deps build ## all tests, against a real database, with the race detector
	@sh deploy/local/compiler.sh
	@sh deploy/local/postgres.sh
	@$(BIN)/orbit-local test sh deploy/local/test.sh

bench: deps build ## measure a whole stack on this machine (SCENARIO=one,two… RUNS=3)
	@cd deploy/bench && go run . -bin $(CURDIR)/$(BIN) -scenario "$(SCENARIO)" -runs $(or $(RUNS),3)

soak: deps build ## the demo's job for SOAK_MINUTES (10) while both services are killed with -9 in turn
	@$(BIN)/orbit-local soak

fuzz: deps build ## damaged frames against a gateway for FUZZ_MINUTES (10): it lives, leaks nothing, answers by the schema
	@cd services/gateway && ORBIT_FUZZ_MINUTES=$(or $(FUZZ_MINUTES),10) ../../$(BIN)/orbit-local test go test -run '^TestFuzzFrames$$' -v -count=1 -timeout 0 .

images: ## build the two container images, orbit-management and orbit-gateway (needs a Docker engine; TAG=dev)
	@mkdir -p $(BIN)/images
	@CGO_ENABLED=0 GOOS=linux go build -trimpath -ldflags=-s -o $(BIN)/images/orbit-management ./services/management
	@CGO_ENABLED=0 GOOS=linux go build -trimpath -ldflags=-s -o $(BIN)/images/orbit-gateway ./services/gateway
	@for s in management gateway; do DOCKER_BUILDKIT=0 docker build -q -t orbit-$$s:$(or $(TAG),dev) -f deploy/docker/$$s.Dockerfile $(BIN)/images; done

lint: ## import rules, gofmt, vet, golangci-lint
	@go run ./deploy/importcheck
	@out=$$(gofmt -l $(MODULES)); if [ -n "$$out" ]; then echo "gofmt these files:"; echo "$$out"; exit 1; fi
	@sh deploy/local/tools.sh
	@set -e; for m in $(MODULES); do echo "lint $$m"; (cd $$m && $(CURDIR)/.tools/bin/golangci-lint run ./...); done

clean: ## remove what was built
	@rm -rf $(BIN)
