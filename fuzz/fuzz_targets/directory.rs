//! `cargo +nightly fuzz run directory`
#![no_main]

#[path = "../directory_checks.rs"]
mod checks;

libfuzzer_sys::fuzz_target!(|input: &[u8]| checks::directory(input));
