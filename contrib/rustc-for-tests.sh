#!/bin/sh
# What Cargo runs in place of rustc for the workspace's own crates in `make test`: rustc, but for unit tests that are
# compiled in a quarter of the time unoptimised (19 s of processor time in place of 84) and then run for half a minute.
# A profile says how a crate is optimised, not how its tests are, and simulations need the crate itself optimised.
case " $* " in
*" --crate-name anabranch_proto "*" --test "*) exec "$@" -C opt-level=0 ;;
*) exec "$@" ;;
esac
