# Two commands do all the set-up: `make demo` and `make test`.
# They need Rust (stable) and a C compiler. The page's own tests need Node 20 or later, and are skipped without.

CARGO ?= cargo

.PHONY: demo test web verdicts quick full lint fuzz bench clean

## Sends a real file over 20 relays on this machine and checks what arrives; then a live stream to 20 viewers.
demo:
	$(CARGO) run --profile demo --locked -p anabranch -- demo --with-stream

## Everything that must hold before a change lands.
test: lint web
	$(CARGO) test --workspace --locked

## The page: its types, that what is committed was built from it, and its tests.
web:
	@if node -e 'process.exit(parseInt(process.versions.node) < 20 ? 1 : 0)' 2>/dev/null; then \
	  cd web && npm ci --no-audit --no-fund --silent && npm run --silent check && npm test --silent; \
	else echo "Node 20 or later is not here: the tests of the page in web/ are skipped"; fi

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
