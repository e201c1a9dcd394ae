//! The worlds from outside, a module for each kind of run. One program: what they instantiate alike is compiled once.

mod access;
mod block_window;
mod coordinated_policy;
mod cubic_dumbbell;
mod flow_ends;
mod flow_policy;
mod flow_world;
mod link_counts;
mod overlay;
mod queues;
mod record;
mod sessions;
mod soak;
mod tcp_dumbbell;
mod transfer;
