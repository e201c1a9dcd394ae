//! Tests of the real binary that mostly wait, for silence to be noticed and for slow links. They are one
//! program, so that `make test` runs many of them at a time; a plain `cargo test` leaves
//! them out: `cargo test --workspace --test patient`.

#[path = "../common/mod.rs"]
mod common;

mod codes;
#[cfg(target_os = "linux")]
mod coordination;
mod coordination_kernel_tcp;
mod emulate;
mod emulate_stream;
#[cfg(unix)]
mod hashing;
mod journal;
#[cfg(target_os = "linux")]
mod machines;
mod network;
mod onion;
mod packet_size;
mod quic;
mod relay;
mod reproduce;
mod resume;
mod resume_by_code;
mod resume_quic;
mod stream;
#[cfg(unix)]
mod stream_trouble;
