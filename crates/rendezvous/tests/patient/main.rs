//! Tests over real sockets that mostly wait. `make test` runs many of them at a time; a plain
//! `cargo test` leaves them out: `cargo test --workspace --test patient`.

mod meeting;
