#!/bin/sh
# What Cargo runs in place of rustc for the workspace's own crates in `make test`: rustc, but for tests that are compiled
# in a fraction of the time unoptimised and run little longer, for what they spend their time in is optimised crates.
# Processor time in seconds, to compile and to run: sim's own tests 21 and 1 optimised, 4 and 7 unoptimised; `worlds` 28
# and 43, 5 and 57; `environments` 10 and 3, 2 and 4; proto's own 84 to compile, 19 and 58. Those of control, lab and
# onion, and `trees`, would run for longer than that saves. A profile says how a crate is optimised, not how its tests are.
case " $* " in
*" --crate-name anabranch_proto "*" --test "* | *" --crate-name anabranch_sim "*" --test "*) exec "$@" -C opt-level=0 ;;
*" --crate-name worlds "*" --test "* | *" --crate-name environments "*" --test "*) exec "$@" -C opt-level=0 ;;
*) exec "$@" ;;
esac
