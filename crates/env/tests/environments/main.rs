//! Environments from outside. One program: what they instantiate alike is compiled once.

mod deployed;
mod rollouts;
mod senders;
mod sessions;
mod subdomains;
mod vectors;
