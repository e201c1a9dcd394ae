//! `cargo +nightly fuzz run onion_datagram`
#![no_main]

#[path = "../onion_checks.rs"]
#[allow(dead_code)] // Each target uses one of the checks.
mod checks;

libfuzzer_sys::fuzz_target!(|input: &[u8]| checks::onion_datagram(input));
