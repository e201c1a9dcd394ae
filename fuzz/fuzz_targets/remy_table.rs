//! `cargo +nightly fuzz run remy_table`
#![no_main]

#[path = "../scenario_checks.rs"]
#[allow(dead_code)] // Each target uses one of the checks.
mod checks;

libfuzzer_sys::fuzz_target!(|input: &[u8]| checks::remy_table(input));
