//! `cargo +nightly fuzz run onion_mailbox`
#![no_main]

#[path = "../onion_mailbox_checks.rs"]
#[allow(dead_code)] // Each target uses one of the checks.
mod checks;

libfuzzer_sys::fuzz_target!(|input: &[u8]| checks::onion_mailbox(input));
