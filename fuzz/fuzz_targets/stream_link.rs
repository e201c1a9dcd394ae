//! `cargo +nightly fuzz run stream_link`
#![no_main]

#[path = "../checks.rs"]
#[allow(dead_code)] // Each target uses one of the checks.
mod checks;

libfuzzer_sys::fuzz_target!(|input: &[u8]| checks::stream_link(input));
