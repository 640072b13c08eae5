# Every target is one line of `make help`. Variables, with their defaults:
#
#   ENGINE=embedded  what keeps the mutexes, for run: make run ENGINE=redis ARGS="--redis-url redis://127.0.0.1:6379";
#                    or the only engine of chaos (cluster = three members), which otherwise has all of them
#   ARGS=            flags of the server, for run:   make run ARGS="--addr 127.0.0.1:7390"
#   VERSION=         version that build shows, without the v (a development version if empty)
#   PKG=./...        packages, for test and gobench: make test PKG=./engine
#   RUN=             only tests that match:          make test RUN=Handoff
#   FUZZTIME=30s     time of each fuzz target
#   BENCH=.          only Go benchmarks that match
#   COUNT=1          how often each of them runs, for benchstat
#   SEEDS=1000       how many seeds simulate runs
#   SEED=            the one seed that simulate runs, with the log of its events; or that of the order of chaos
#   RACE=            simulate with the race detector: make simulate RACE=1
#   PROGRAMS=50000   how many random programs of Lua programs compares, the first from SEED
#   DURATION=10m     how long chaos inflicts faults on each engine, all of them at a time

ENGINE   ?=
ARGS     ?=
VERSION  =
PKG      ?= ./...
RUN      ?=
FUZZTIME ?= 30s
BENCH    ?= .
COUNT    ?= 1
SEEDS    ?= 1000
SEED     ?=
RACE     ?=
PROGRAMS ?= 50000
DURATION ?= 10m

# The modules: the server, and each folder with a go.mod of its own, but tools, which has no package. `go` takes only
# packages of the module that it runs in, so a recipe runs once for each module. In-module is the part of PKG that a
# module has, as seen from its folder: of PKG="./engine ./client/contend" it is ./engine for the server and ./contend for
# client. Inner are the modules below a module, which are no part of it.
OTHERS    := $(filter-out tools,$(patsubst %/go.mod,%,$(wildcard */go.mod */*/go.mod */*/*/go.mod)))
MODULES   := . $(OTHERS)
inner      = $(if $(filter .,$1),$(OTHERS),$(filter $1/%,$(OTHERS)))
in-module  = $(if $(filter ./...,$(PKG)),./...,$(patsubst $(if $(filter .,$1),,./$1)%,$(if $(filter .,$1),,.)%,$(filter-out $(foreach i,$(inner),./$i ./$i/%),$(if $(filter .,$1),$(PKG),$(filter ./$1 ./$1/%,$(PKG))))))

# Ends a command in a $(foreach) of a recipe.
define newline


endef

.DEFAULT_GOAL := help
.SECONDEXPANSION:
.PHONY: help run build test test-long extras prompt lint fuzz bench monitoring gobench simulate bugs chaos attacks variants timed jvm clients campaigns programs docs release-check release-snapshot package packages

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' $(MAKEFILE_LIST) | expand -t 23
	@sed -n 's/^#   /  /p' $(MAKEFILE_LIST)

run: build ## serve 127.0.0.1:7379, data in ./simba-data or in the store of ENGINE
	@exec bin/simba-resp serve $(if $(ENGINE),--engine $(ENGINE)) $(ARGS)

SERVER = bin/simba-resp

build: ## bin/simba-resp: static, stripped
	CGO_ENABLED=0 go build -trimpath -ldflags='-s -w -X main.release=$(VERSION)' -o $(SERVER) ./cmd/simba-resp

# Tests of the engines mostly wait for their stores, so more packages at a time than cores, and
# the longest first.
FIRST := ./clients/cases ./tests/outages ./backends/zookeeper ./tests/contenders ./tests/handoffs ./backends/mysql ./backends/postgres ./backends/redis

# What make test leaves to make test-long: attacks with thousands of connections, chaos, what has to happen within
# milliseconds, Simba itself, and the conformance suite on stores of other forms. It needs the machine for itself.
ATTACKS  := ./tests/abuse
CHAOS    := LinearizableUnderFaults
TIMED    := LeaseOfAKilledOwnerEnds
SIMBA    := SimbaItself|LeaderLatchOfCurator
VARIANTS := OfAnEnsemble|KillingTheLeader|ClusterKeepsTheRules|AtTheContentionTiming|OnTheSeedsTable|ThroughPgBouncer

# The simulation runs without the race detector: that finds the same races in the tests of the parts.
SIMULATION := ./tests/simulation

# With the race detector, these search for crashes less. So they run without it, too.
SEARCHES := ./persist
REST = $(filter-out $(patsubst ./%,github.com/simba-resp/simba-resp/%,$(FIRST) $(ATTACKS) $(SIMULATION)),$(shell go list ./...))

# The other modules with code that users import.
RACED := client client/simbatest

# The tests of tools/release run in make release-check, those of bench in make extras: with them a first run would
# have to compile half as many packages again.
UNRACED := $(filter-out bench tools/% $(RACED),$(OTHERS))

# Tests that run a server of their own build it themselves, which go test does not see: it would take a result of
# another server for theirs. So none is taken from its cache. A test that waits in vain for 10 minutes fails; the
# timeout is for the other hangs. A busy machine must not reach it.
TEST := go test -count 1 -timeout 60m

# Without the race detector, go test compiles as make build does, and reuses what that has compiled.
PLAIN := CGO_ENABLED=0 $(TEST) -trimpath

# Notes in bin/failed what fails, and make goes on.
TRY := $(CURDIR)/tools/try

test: ## what must pass on any machine; as root on Debian it first installs gcc, the stores and redis-tools if they are missing
	@tools/install
	@rm -f bin/failed
ifeq ($(PKG),./...)
	$(TRY) $(TEST) -race -p 4 -run '$(RUN)' $(if $(RUN),,-skip '$(CHAOS)|$(TIMED)|$(SIMBA)|$(VARIANTS)') $(FIRST) $(REST)
	$(TRY) env $(PLAIN) -run '$(RUN)' $(SIMULATION) $(SEARCHES)
	$(foreach m,$(RACED),cd $m && $(TRY) $(TEST) -race -run '$(RUN)' ./...$(newline))
	$(foreach m,$(UNRACED),cd $m && $(TRY) env $(PLAIN) -run '$(RUN)' ./...$(newline))
else
	$(foreach m,$(MODULES),$(if $(call in-module,$m),cd $m && $(TRY) $(TEST) $(if $(filter $(PKG),$(ATTACKS) $(SIMULATION)),,-race) -p 3 -run '$(RUN)' $(call in-module,$m)$(newline)))
endif
	@$(TRY)

# With QUIET=true, tests also demand that what users wait for comes in time (tests/need).
prompt campaigns: export QUIET = true

test-long: extras clients attacks variants timed prompt jvm package packages bugs campaigns programs simulate chaos ## what make test leaves out: it wants a quiet machine, and some 90 minutes

attacks: ## hostile and careless clients by the thousand
	@tools/install
	$(TEST) $(ATTACKS)

variants: ## the conformance suite on an ensemble of ZooKeeper, a cluster of Redis, PgBouncer, and MySQL as the seed has it
	@tools/install
	$(TEST) -p 3 -run '$(VARIANTS)' ./backends/zookeeper ./backends/mysql ./backends/postgres ./backends/redis

timed: ## what has to happen within milliseconds, a few times
	@tools/install
	$(TEST) -run '$(TIMED)' ./tests/contenders

prompt: ## that stores and libraries for locks are served in time, on a quiet machine
	@tools/install
	$(TEST) -p 1 -skip '$(SIMBA)|$(VARIANTS)' ./backends/mysql ./backends/postgres ./backends/redis ./tests/dropin ./tests/outages

EXTRAS := ./backends/zookeeper ./examples ./tests/clients ./tests/dropin ./tests/lifecycle ./tests/metrics ./tests/protocol
extras: ## the tests for which more must be installed: Node.js, Python, PHP, Ruby, Curator, Prometheus, Tcl, systemd; tests of bench
	@tools/install all
	$(TEST) -skip '$(SIMBA)|$(VARIANTS)' $(EXTRAS)
	cd bench && $(PLAIN) ./...

clients: ## the clients for Go, Python, Node and the JVM on every version of their Redis clients, tenures that pass between them, and the code of their guide: Rust and .NET where they are installed
	@tools/install all
	$(TEST) ./clients/cases -long
	$(TEST) -run Guides ./tests/clients -all

# Ivy brings Simba's Redis backend and Curator from its default repository: minutes the first time, seconds later.
jvm: ## Simba 2.9.5 and 2.5.0 themselves, and Curator 5.9, beside this server: hundreds of changes of leader, and kills
	@tools/install all
	$(TEST) -v -run '$(SIMBA)' ./tests/dropin ./backends/zookeeper

# The same tests as in make test, told to do it more often by -long. Without the race detector: what is counted is
# what users run. The table's path is absolute, since each package's tests run in its folder.
define CAMPAIGNS_PAGE
# Campaigns

<!-- make campaigns writes this page. Do not edit it. -->

Crashes, kills, handoffs and outages of the last `make campaigns`. [Testing](testing.md) says what
they attack. Figures of a loaded machine, or of another one, differ. A kill is repeated if the
machine stood still meanwhile.

| campaign | engine | count | violations | figures |
| --- | --- | --- | --- | --- |
endef
export CAMPAIGNS_PAGE

CAMPAIGNS := 'LosesNothing|$(TIMED)|NoHandoffIsLost|RecoversFromEachOfManyPartitions'
campaigns: ## crashes, kills, handoffs and outages by the thousand, some 15 minutes: docs/development/campaigns.md
	@tools/install
	@rm -f bin/campaigns; mkdir -p bin
	@go test -p 2 -timeout 60m -count 1 -run $(CAMPAIGNS) ./tests/crash ./tests/outages ./tests/contenders ./tests/handoffs -long -table $(CURDIR)/bin/campaigns; \
	code=$$?; { echo "$$CAMPAIGNS_PAGE"; sort bin/campaigns; } >bin/campaigns.md; cat bin/campaigns.md; \
	[ $$code = 0 ] && cp bin/campaigns.md docs/development/campaigns.md; exit $$code

programs: ## PROGRAMS random scripts, here and on a real Redis, from a new seed unless SEED=… says one, some 5 minutes
	@tools/install
	$(TEST) -v -run RandomPrograms ./script -programs $(PROGRAMS) -seed $(or $(SEED),0)

# go builds the linter once, and then takes it from its cache.
lint: ## look for bugs and dead code, and hold the rules of who may import whom
	$(foreach m,$(MODULES),cd $m && go tool -modfile=$(CURDIR)/tools/go.mod golangci-lint run$(newline))

fuzz: ## each fuzz target for FUZZTIME
	@grep -rEo --include='*_test.go' '^func Fuzz[A-Za-z0-9_]+' . | sort | while IFS=: read -r file func; do \
		echo "go test -fuzz $${func#func } $$(dirname $$file)"; \
		(cd $$(dirname $$file) && go test -run '^$$' -fuzz "^$${func#func }$$" -fuzztime $(FUZZTIME) .) || exit 1; \
	done

bugs: ## test the tests: build servers with the bugs of tests/bugs, each of which a test must catch
	go test -count 1 -v -p 1 -timeout 60m -run 'SeededBugs$(if $(RUN),.*/$(RUN))' ./tests/bugs ./backends/proxy ./backends/redis ./backends/zookeeper ./tests/simulation ./tests/client ./tests/chaos -bugs

# A module of its own: the server's need not know the clients of its peers.
bench: ## this server beside what one would take instead, some 20 minutes: docs/development/benchmarks.md
	cd bench && go run . -kills 50

monitoring: ## the processor time of a server with metrics and without, in ten pairs, a minute
	cd bench && go run . -monitoring 10
# The release tool is built apart from every module, since it brings hundreds of others along.
RELEASER = bin/goreleaser-$(shell go -C tools/release list -m -f '{{.Version}}' github.com/goreleaser/goreleaser/v2)

bin/goreleaser-v%:
	GOBIN=$(CURDIR)/bin CGO_ENABLED=0 go install github.com/goreleaser/goreleaser/v2@v$*
	mv bin/goreleaser $@

release-check: ## the configuration of releases, and the manifests of deploy/kubernetes, in seconds
	@go -C tools/release test .

# The version is the newest of CHANGELOG.md, as a pre-release.
NEXT = $(shell sed -n 's/^## \[\([0-9.]*\)\].*/\1/p' CHANGELOG.md | head -1)

release-snapshot: $$(RELEASER) ## dist/: archives, deb and rpm for all systems as a release has them, and checksums, some 5 minutes
	SNAPSHOT=$(NEXT)-snapshot.$$(git rev-list --count HEAD) $(RELEASER) release --snapshot --clean --parallelism 2

package: release-snapshot ## install, run, upgrade and remove the packages of dist/ in a private copy of this machine, as root
	@tools/install all
	$(TEST) -v ./tests/packages -dist $(CURDIR)/dist

# Pip, npm and Maven take what they need for that from their usual places.
PACKAGES := $(CURDIR)/dist/clients
packages: ## dist/clients: the wheel, the npm tarball and the jars of the clients, with their API docs
	@tools/install
	rm -rf $(PACKAGES) bin/packages clients/python/build clients/node/dist clients/jvm/*/target && mkdir -p $(PACKAGES)
	python3 -m venv bin/packages && bin/packages/bin/pip install --quiet --disable-pip-version-check pdoc ./clients/python
	bin/packages/bin/pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir $(PACKAGES) ./clients/python
	bin/packages/bin/pdoc --output-directory $(PACKAGES)/api-python simba_resp simba_resp.asyncio
	cd clients/node && npm ci --silent && npm pack --silent --pack-destination $(PACKAGES) && npm run --silent docs -- --out $(PACKAGES)/api-node
	cd clients/jvm && mvn --quiet --batch-mode -DskipTests package && cp */target/simba-resp-*.jar $(PACKAGES) && rm $(PACKAGES)/*-tests.jar
	for jar in $(PACKAGES)/*.jar; do jar --update --file $$jar LICENSE; done
	ls $(PACKAGES)

docs: ## write the generated pages and tables of docs/ anew; make bench writes docs/development/benchmarks.md
	go test -count 1 -run 'PageOfCommand|PageOfSettings|PageOfMetrics|TableOfPromises' ./commands ./cmd/simba-resp ./monitor ./tests/conformance -update

gobench: ## Go benchmarks of the hot paths, with allocations
	$(foreach m,$(MODULES),$(if $(call in-module,$m),cd $m && go test -run '^$$' -bench '$(BENCH)' -benchmem -count $(COUNT) $(call in-module,$m)$(newline)))

simulate: ## whole servers, clusters, the core of store engines, and clients that wait (a fifth), in fake time, from SEEDS seeds; SEED=… runs one again and shows its events
	go test $(if $(RACE),-race) -count 1 -timeout 24h -run 'TestSimulation$$' $(if $(SEED),-v) ./tests/simulation $(if $(SEED),-seed $(SEED),-seeds $(SEEDS))
	go test $(if $(RACE),-race) -count 1 -timeout 24h -run 'TestClusterSimulation$$' $(if $(SEED),-v) ./tests/simulation $(if $(SEED),-seed $(SEED),-seeds $(SEEDS))
	go test $(if $(RACE),-race) -count 1 -timeout 24h -run 'TestEngineSimulation$$' $(if $(SEED),-v) ./backends/proxy $(if $(SEED),-from $(SEED) -seeds 1,-seeds $(SEEDS))
	go test $(if $(RACE),-race) -count 1 -timeout 24h -run 'TestWaitsUnderFaults$$' $(if $(SEED),-v) ./tests/client $(if $(SEED),-from $(SEED) -seeds 1,-seeds $$(( $(SEEDS) / 5 )))

# Each wait of it is bounded, so go test need not end it.
chaos: ## faults on every engine, or on ENGINE, for DURATION (0 = a few of them, once), each history checked by porcupine, and a table of them
	@tools/install
	go test -timeout 0 -count 1 -v -run $(CHAOS) ./tests/chaos -duration $(DURATION) $(if $(ENGINE),-engine '$(ENGINE)') -seed $(or $(SEED),0)
