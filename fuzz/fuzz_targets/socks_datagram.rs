//! `cargo +nightly fuzz run socks_datagram`
#![no_main]

#[path = "../checks.rs"]
#[allow(dead_code)] // Each target uses one of the checks.
mod checks;

libfuzzer_sys::fuzz_target!(|input: &[u8]| checks::socks_datagram(input));
