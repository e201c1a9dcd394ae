//! Tests over real sockets and emulated links that mostly wait. They are one program, so that `make test` runs many
//! of them at a time; a plain `cargo test` leaves them out: `cargo test --workspace --test
//! patient`.

mod emulator;
mod kernel;
mod policy;
mod quic;
#[cfg(target_os = "linux")]
mod service;
