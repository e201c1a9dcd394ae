# Two commands do all the set-up: `make demo` and `make test`.
# They need Rust (stable), a C compiler and nothing else.

CARGO ?= cargo

.PHONY: demo test verdicts quick full lint fuzz bench clean

## Sends a real file over 20 relays on this machine and checks what arrives.
demo:
	$(CARGO) run --profile demo --locked -p anabranch -- demo

## Everything that must hold before a change lands.
test: lint
	$(CARGO) test --workspace --locked

## Writes down what quick runs say of the papers' figures; `make test` holds every row to it.
verdicts:
	UPDATE_VERDICTS=1 $(CARGO) test --release --locked -p anabranch-papers --test quick_verdicts

lint:
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings

## Every decoder and reader against mutated input; `make test` does a shorter run. With cargo-fuzz and
## a nightly toolchain, `cargo +nightly fuzz run TARGET` goes on from the same corpus.
fuzz:
	FUZZ_ITERATIONS=$${FUZZ_ITERATIONS:-1000000} $(CARGO) test --release --locked -p anabranch-net -p anabranch-rendezvous -p anabranch-scenario --test fuzz_short

## Every experiment of the papers, short or at the paper's length.
quick:
	$(CARGO) run --release --locked -p anabranch -- reproduce --all --quick --out out/quick
full:
	$(CARGO) run --release --locked -p anabranch -- reproduce --all --out out/full

bench:
	$(CARGO) run --release --locked -p anabranch -- bench overlay --out out/bench

clean:
	$(CARGO) clean
	rm -rf out
