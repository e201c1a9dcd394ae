#!/bin/sh
# What Cargo runs in place of rustc in `make test`: rustc, but for what takes the compiler longer than it saves. All figures
# are seconds of processor time, to compile and to run. Behind it runs what RUSTC_WRAPPER named before, if anything.
#
# Tests that are compiled in a fraction of the time unoptimised and run little longer, for what they spend their time in is
# optimised crates: sim's own tests 21 and 1 optimised, 4 and 7 unoptimised; `worlds` 28 and 43, 5 and 57; `environments`
# 10 and 3, 2 and 4; proto's own 84 to compile, 19 and 58. Those of control, lab and onion, and `trees`, would run for
# longer than that saves. A profile says how a crate is optimised, not how its tests are.
#
# What is optimised has smaller functions put into their callers than LLVM would, whose threshold is 225: lab's own tests
# 103 and 92 with that, 82 and 90 with 75, 85 and 100 with 25.
case " $* " in
*" --crate-name anabranch_proto "*" --test "* | *" --crate-name anabranch_sim "*" --test "*) set -- "$@" -C opt-level=0 ;;
*" --crate-name worlds "*" --test "* | *" --crate-name environments "*" --test "*) set -- "$@" -C opt-level=0 ;;
*" opt-level=2 "*) set -- "$@" -C llvm-args=-inline-threshold=75 ;;
esac
exec $RUSTC_BEHIND "$@"
