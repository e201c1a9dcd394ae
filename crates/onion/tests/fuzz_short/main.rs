//! What onion relays, users and authorities are sent, under a short fuzz run that any compiler can do, as that of the
//! network's decoders.
//!
//! `UPDATE_CORPUS=1 cargo test -p anabranch-onion --test fuzz_short` writes the corpus anew;
//! `FUZZ_ITERATIONS=1000000` makes the run longer, `FUZZ_SEED=2` another one, `FUZZ_TARGET=onion_cell` has it be of that
//! target alone.

mod directory;
mod mailboxes;
mod packets;
mod sessions;
#[path = "../../../../fuzz/short_run.rs"]
mod short_run;

use short_run::Target;

/// Inputs by their number.
fn numbered(inputs: Vec<Vec<u8>>) -> Vec<(String, Vec<u8>)> {
    inputs.into_iter().enumerate().map(|(number, bytes)| (number.to_string(), bytes)).collect()
}

fn check_corpus(targets: impl IntoIterator<Item = Target>) {
    targets.into_iter().for_each(|target| target.check_corpus());
}

fn run(targets: impl IntoIterator<Item = Target>) {
    targets.into_iter().for_each(|target| target.run());
}

#[test]
fn the_corpus_is_what_the_formats_say() {
    check_corpus(packets::targets());
    check_corpus(directory::targets());
    check_corpus(mailboxes::targets());
    check_corpus(sessions::targets());
}

#[test]
fn mutated_packets_break_no_rule() {
    run(packets::targets());
}

#[test]
fn mutated_directories_break_no_rule() {
    run(directory::targets());
}

#[test]
fn mutated_mailboxes_break_no_rule() {
    run(mailboxes::targets());
}

#[test]
fn mutated_sessions_break_no_rule() {
    run(sessions::targets());
}
