//! `cargo +nightly fuzz run code`
#![no_main]

#[path = "../rendezvous_checks.rs"]
#[allow(dead_code)] // Each target uses one of the checks.
mod checks;

libfuzzer_sys::fuzz_target!(|input: &[u8]| checks::code(input));
