//! Tests over real sockets that mostly wait, for packets to come and for silence to be noticed. They are one
//! program, so that `make test` runs many of them at a time; a plain `cargo test` leaves
//! them out: `cargo test --workspace --test patient`.

mod end_to_end;
mod flows;
mod onion;
mod quic_files;
mod stream;
mod stream_floods;
mod wildcard;
