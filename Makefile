# `make run` builds and serves; `make test` runs the tests that every change must pass, `make test-all` all of them. They install what they
# miss.
.PHONY: run cluster test test-all setup fuzz bench reference references sim schedules breakage mutants soak cluster-soak dist

run:
	@scripts/run

# One etcd and three workers that are one cache, on this machine.
cluster:
	@scripts/cluster

test:
	@scripts/test

# An hour or more.
test-all:
	@scripts/test --everything

setup:
	@scripts/setup

# Builds what a release consists of, into dist/: CONTRIBUTING.md, "Release". Half an hour.
dist:
	@scripts/dist

# Measures a release build beside other S3 servers and what the machine can do, and writes docs/performance.md: an hour or two, on a
# machine that does nothing else. BENCH="small-puts --print" measures one part and leaves the document alone.
bench:
	@scripts/setup compiler python server etcd peers $(if $(BENCH),$(filter trino tenants,$(BENCH)),trino tenants)
	@cargo build --release --locked -p forebay -p forebay-bench
	@.tools/venv/bin/python benchmarks/run.py $(BENCH)

# Runs the client tests against the real S3 server instead of Forebay: shows that they ask for what S3 does.
reference: setup
	@.tools/venv/bin/python -m pytest -q tests/s3 --against=s3-server

# Rewrites the generated parts of the documents.
references:
	@scripts/check-references --write

# Ten minutes of random input for each parser: FUZZ_SECONDS=60 make fuzz.
fuzz:
	@scripts/fuzz $(or $(FUZZ_SECONDS),600)

# Simulates whole workers from fresh seeds, for an hour: SIM_MINUTES=600 make sim. Tests do half a minute of it.
sim:
	@cargo build --release --locked -p forebay-sim
	@$(or $(CARGO_TARGET_DIR),target)/release/forebay-sim --minutes $(or $(SIM_MINUTES),60) --jobs $(shell nproc)

# Looks for races between threads in a hundred times as many schedules as `make test-all` does: SCHEDULES=1000 make schedules for longer.
schedules:
	@FOREBAY_SCHEDULES=$(or $(SCHEDULES),100) cargo test --locked --workspace \
		--features forebay-sim/schedules --test schedules

# Runs load for an hour, with kills, stops and outages, and checks that nothing grows: SOAK_MINUTES=600 make soak.
soak: setup
	@cargo build --release --locked -p forebay
	@FOREBAY_BIN=$(abspath $(or $(CARGO_TARGET_DIR),target)/release/forebay) .tools/venv/bin/python tests/soak/soak.py $(or $(SOAK_MINUTES),60)

# Three workers and three members of etcd under load for an hour, while they fail, stall, are cut off, leave and join.
cluster-soak: setup
	@cargo build --release --locked -p forebay
	@FOREBAY_BIN=$(abspath $(or $(CARGO_TARGET_DIR),target)/release/forebay) .tools/venv/bin/python tests/soak/cluster.py $(or $(SOAK_MINUTES),60)

# Breaks one promise after the other, and checks that the simulation or a test notices it: an hour or more.
breakage:
	@scripts/check-breakage

# Makes small changes to the sources, and checks that a test fails for each: two hours. MUTANTS=catalog, or "store --file '**/apply.rs'", is a part.
mutants:
	@scripts/mutants $(MUTANTS)
