//! `cargo +nightly fuzz run sender`
#![no_main]

#[path = "../session_checks.rs"]
#[allow(dead_code)] // Each target uses one of the checks.
mod checks;

libfuzzer_sys::fuzz_target!(|input: &[u8]| checks::sender(input));
