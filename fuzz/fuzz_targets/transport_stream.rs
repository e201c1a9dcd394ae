//! `cargo +nightly fuzz run transport_stream`
#![no_main]

#[path = "../media_checks.rs"]
mod checks;

libfuzzer_sys::fuzz_target!(|input: &[u8]| checks::transport_stream(input));
