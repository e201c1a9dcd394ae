# Two commands do all the set-up: `make demo` and `make test`.
# They need Rust (stable) and a C compiler. The page's own tests need Node 20 or later, those of the Python module
# Python 3.11 or later and a package registry; they are skipped without.

CARGO ?= cargo
PYTHON ?= python3

.PHONY: demo test computing commands waiting figures interfaces build web python verdicts long-verdicts quick full lint fuzz bench clean

## Sends a real file over 20 relays on this machine and checks what arrives; then a live stream to 20 viewers.
demo:
	$(CARGO) run --profile demo --locked -p anabranch --no-default-features -- demo --with-stream

## All tests. Those over real sockets mostly wait: they find a processor beside all others, which have the least
## priority. Before a change lands, `make lint` must hold as well.
test: build
	@$(MAKE) --no-print-directory -j5 waiting commands computing figures interfaces
# Not `--lib`: that compiles the Python module once more, for tests that it does not have.
computing: build
	nice -n 19 $(CARGO) test $(WHOLE) --no-fail-fast --tests
	nice -n 19 $(CARGO) test $(WHOLE) --doc
# Mostly waits for processes that it begins; ahead of what computes it would hold that up.
commands: build
	nice -n 19 $(CARGO) test $(WHOLE) --test commands -- --test-threads=4
waiting: build
	$(CARGO) test $(WHOLE) --no-fail-fast --test patient -- --test-threads=8
figures: build
	nice -n 19 $(CARGO) test $(WHOLE) --test quick_verdicts
interfaces:
	@nice -n 19 $(MAKE) --no-print-directory web python

# The whole workspace, the Python module in it, so that all is compiled once. The module is linked without a Python:
# the lowest version that it is for is among its features.
WHOLE := --workspace --locked --profile ci --features anabranch-py/module
export PYO3_NO_PYTHON := 1
export PYO3_BUILD_EXTENSION_MODULE := 1
# Behind it what is set already; a make that this one begins has it from here.
RUSTC_BEHIND ?= $(RUSTC_WRAPPER)
export RUSTC_BEHIND := $(RUSTC_BEHIND)
test build computing commands waiting figures python long-verdicts: export RUSTC_WRAPPER := $(CURDIR)/contrib/rustc-for-tests.sh
build:
	$(CARGO) build $(WHOLE) --lib --bins --tests
	$(CARGO) test $(WHOLE) --no-run --test patient --test commands --test quick_verdicts

## The page: its types, that what is committed was built from it, and its tests.
web:
	@if node -e 'process.exit(parseInt(process.versions.node) < 20 ? 1 : 0)' 2>/dev/null; then \
	  cd web && npm ci --no-audit --no-fund --silent && npm run --silent check && npm test --silent; \
	else echo "Node 20 or later is not here: the tests of the page in web/ are skipped"; fi

## The Python module's tests, in a virtual environment of its own, with this Gymnasium and an older one.
## What is too big for it is tried where it is installed there (`target/python/bin/pip install ray`, or torch), and said
## to be skipped elsewhere. Of Stable-Baselines3 there is what needs no torch.
VENV := $(CURDIR)/target/python
OLDER := $(CURDIR)/target/gymnasium-1.2.2
# All that is in an interface of Gymnasium's, of PettingZoo's or of Stable-Baselines3's.
WITH_OLDER := env vector flow parallel sb3 rollout
# Whether pip, asked for what every registry has, finds nobody who answers. Local folders of wheels don't count.
NO_REGISTRY = PIP_FIND_LINKS=$(VENV)/lib PIP_DEFAULT_TIMEOUT=15 LC_ALL=C $(VENV)/bin/python -m pip download --quiet \
  --no-deps --no-cache-dir --retries 1 --dest $(VENV)/registry packaging 2>&1 \
  | grep -qE 'No matching distribution found|connection broken|ConnectionPool'
python: build
	@if ! $(PYTHON) -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	  echo "Python 3.11 or later with venv is not here: the tests of the module in python/ are skipped"; \
	elif ! $(MAKE) --no-print-directory --silent $(VENV)/installed; then \
	  if [ -e $(VENV)/pyvenv.cfg ] && $(NO_REGISTRY); then \
	    echo "No package registry answers: the tests of the module in python/ are skipped"; \
	  else \
	    echo "A package registry answers, and python/tests/requirements.txt could not be installed: see above" >&2; exit 1; \
	  fi; \
	else \
	  install -m 644 $(or $(CARGO_TARGET_DIR),target)/ci/libanabranch_py.so python/anabranch/_native.abi3.so && \
	  $(VENV)/bin/pytest -n 2 && PYTHONPATH=$(OLDER) $(VENV)/bin/pytest -n 2 $(foreach name,$(WITH_OLDER),python/tests/test_$(name).py); \
	fi

# Python compiles what tests load; all that there is takes it three times as long.
PIP_QUIETLY := --quiet --disable-pip-version-check --no-compile
$(VENV)/installed: python/tests/requirements.txt
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/pip install $(PIP_QUIETLY) --requirement $<
	$(VENV)/bin/pip install $(PIP_QUIETLY) --no-deps --upgrade --target $(OLDER) gymnasium==1.2.2
	$(VENV)/bin/pip install $(PIP_QUIETLY) --no-deps stable-baselines3
	echo $(CURDIR)/python > $$($(VENV)/bin/python -c 'import site; print(site.getsitepackages()[0])')/anabranch.pth
	touch $@

## Writes down what quick runs say of the papers' figures; `make test` holds every row to it.
verdicts:
	UPDATE_VERDICTS=1 $(CARGO) test --release --locked -p anabranch-papers --test quick_verdicts

## Holds the rows of the experiments that `make test` leaves out, as continuous integration does after it, and with
## UPDATE_VERDICTS=1 writes them down.
long-verdicts:
	$(CARGO) test $(WHOLE) --test quick_verdicts -- --ignored

lint:
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked --features anabranch-py/module -- -D warnings
	$(CARGO) clippy --workspace --test patient --test commands --test quick_verdicts --locked --features anabranch-py/module -- -D warnings
	$(CARGO) clippy -p anabranch --no-default-features --locked -- -D warnings
	@if $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 9))' 2>/dev/null; then $(PYTHON) contrib/circles.py; \
	else echo "Python 3.9 or later is not here: circles of files are not looked for"; fi

## Every decoder and reader against mutated input; `make test` does a shorter run. With cargo-fuzz and
## a nightly toolchain, `cargo +nightly fuzz run TARGET` goes on from the same corpus.
fuzz:
	FUZZ_ITERATIONS=$${FUZZ_ITERATIONS:-1000000} $(CARGO) test --release --locked -p anabranch-media -p anabranch-net -p anabranch-onion -p anabranch-rendezvous -p anabranch-scenario --test fuzz_short

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
