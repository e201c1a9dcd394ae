//! The binary's commands that compute, as a user gives them.

#[path = "../common/mod.rs"]
mod common;

mod bench_overlay;
mod licences;
mod onion_attack;
mod onion_options;
mod onion_processes;
mod pages;
mod policies;
mod reproduce;
mod run;
mod run_flows;
mod run_onion;
mod run_streams;
mod sweep;
mod unread;
mod wrong_input;
