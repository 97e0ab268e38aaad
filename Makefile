# Versions of the tools that check the code; a newer one may find more.
GOLANGCI_LINT = v2.15.0
GOFUMPT = v0.12.0
GOVULNCHECK = v1.8.0
GOTESTSUM = v1.13.0

# Siding's own module, and those that keep other libraries out of its go.mod. Others import the first ones.
RELEASED = . lock/etcdlock queue/queueotel
MODULES = $(RELEASED) e2e/interop e2e/deploy bench

# Runs a command in each of them, up to the first that fails.
each = for module in $(MODULES); do (cd $$module && $(1)) || exit; done

# What race tests, and how often.
PKG = ./...
COUNT = 1

# The package whose mistakes mutants makes.
MUTANTS = lock

# How many inputs fuzz tries, for each test. With a time instead, go test now and then fails at its end
# ("context deadline exceeded") without having found anything: https://go.dev/issue/75804.
INPUTS = 100000

# What chaos and simulate do. Without a seed each run takes a new one.
SEED = $(SIDING_SEED)
SEEDS = 20000
MINUTES = 5
TTL =
SCENARIO = standalone sentinel cluster

# Where chaos keeps its journals and logs; empty for nowhere.
ARTIFACTS =

# Where go install puts tools, which need not be in PATH.
BIN = $(or $(shell go env GOBIN),$(shell go env GOPATH)/bin)

# The race detector needs a C compiler, without which Go turns cgo off.
RACE = $(shell test "$$(go env CGO_ENABLED)" = 1 && echo -race)
GOTEST = go test $(RACE) -shuffle=on -count=1 -timeout=30m

.PHONY: help
help: ## Show this help
	@sed -n 's/^\([a-z]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | while IFS="$$(printf '\t')" read -r name text; do \
		printf '  %-8s %s\n' "$$name" "$$text"; done

.PHONY: setup
setup: ## Install the servers that the tests run, or say how to
	@.ci/setup

.PHONY: test
test: setup ## Run what every change must pass, in less than eight minutes
	@GOTESTSUM=$(GOTESTSUM) .ci/test $(RACE) -- $(MODULES)

.PHONY: verify
verify: setup ## Run all the rest: backends, mutants, the model, chaos, fuzzing (an hour)
	@.ci/verify

.PHONY: race
race: ## Run the tests of PKG (./...) COUNT (1) times, without set-up
	go test -race -shuffle=on -timeout=15m -count=$(COUNT) $(PKG)

.PHONY: mutants
mutants: ## Make mistakes in a package (MUTANTS) and want its tests to find them
	cd $(MUTANTS) && SIDING_VERIFY=1 $(GOTEST) -v -run='^TestMutants$$' .

.PHONY: model
model: ## Explore the whole model of the protocol
	SIDING_VERIFY=1 go test -count=1 -timeout=0 -v ./internal/verify/model # without the race detector, ten times faster

.PHONY: simulate
simulate: ## Run SEEDS (20000) fleets in fake time, from SEED (a new one)
	SIDING_VERIFY=1 SIDING_SEED=$(SEED) SIM_SEEDS=$(SEEDS) go test -count=1 -timeout=0 -v -run='^TestSimulation' ./internal/engine # likewise

.PHONY: chaos
chaos: ## Inject faults for MINUTES (5) in each SCENARIO, from SEED (a new one), with locks of TTL (2s)
	for scenario in $(SCENARIO); do \
		SIDING_SEED=$(SEED) CHAOS_MINUTES=$(MINUTES) CHAOS_SCENARIO=$$scenario CHAOS_TTL=$(TTL) \
			go test -run='^TestChaos$$' -count=1 -timeout=0 -v $(ARTIFACTS:%=-artifacts -outputdir=%) ./e2e/chaos || exit; done

.PHONY: cover
cover: ## Run all tests and show how much of the code they reach
	SIDING_VERIFY=1 $(GOTEST) -coverpkg=./... -coverprofile=coverage.out ./...
	go tool cover -func=coverage.out | tail -n 1

.PHONY: fuzz
fuzz: ## Look for inputs that break a decoder, among INPUTS (100000) for each test
	@grep -ro --include='*_test.go' '^func Fuzz[A-Za-z]*' . | sed 's|/[^/]*:func | |' | sort | { \
	failed=; while read -r dir name; do \
		echo "$$dir $$name"; (cd "$$dir" && go test -run='^$$' -fuzz="^$$name\$$" -fuzztime=$(INPUTS)x) || failed="$$failed $$name"; \
	done; test -z "$$failed" || { echo "failed:$$failed" >&2; exit 1; }; }

.PHONY: tools
tools: ## Install the linter and the formatter
	go install mvdan.cc/gofumpt@$(GOFUMPT)
	go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_LINT)

.PHONY: tidy
tidy: ## Bring all go.mod files up to date
	$(call each,go mod tidy)

.PHONY: vet
vet: ## Check that the go.mod files are tidy, and run go vet, also for other systems
	$(call each,go mod tidy -diff && go vet ./... && GOOS=windows CGO_ENABLED=0 go vet ./... && GOOS=darwin CGO_ENABLED=0 go vet ./...)

.PHONY: lint
lint: ## Check format and style (after: make tools)
	@unformatted=$$($(BIN)/gofumpt -l .) || exit; test -z "$$unformatted" || { \
		echo "not as gofumpt would have it (run make fmt):"; echo "$$unformatted"; exit 1; } >&2
	$(BIN)/golangci-lint config verify
	$(call each,$(BIN)/golangci-lint run ./...)

.PHONY: reference
reference: ## Write config.yaml and the generated pages of docs/reference from the code
	go test -count=1 -run='^Test(ShippedFile|Reference)$$' ./internal/config ./internal/verify/docs -update

.PHONY: vuln
vuln: ## Look up known vulnerabilities of what is used (asks vuln.go.dev; not in CI)
	$(call each,go run golang.org/x/vuln/cmd/govulncheck@$(GOVULNCHECK) ./...)

.PHONY: fmt
fmt: ## Format the code (after: make tools)
	$(BIN)/golangci-lint fmt ./...

.PHONY: prepare
prepare: ## Write VERSION (v1.2.3) into CHANGELOG.md and the go.mod files
	@.ci/release prepare "$(VERSION)" $(RELEASED)

.PHONY: release
release: ## Give each module the tag of VERSION (v1.2.3), and push nothing
	@.ci/release tag "$(VERSION)" $(RELEASED)

.PHONY: demo
demo: ## Watch a fleet at work, with nothing but Go
	go run -v ./cmd/worker --demo # with the names of packages, as the first time takes minutes
