//! A coordinator of hosts, report by report.

mod driven;
mod expecting;
mod learned;
#[path = "../common/standing.rs"]
mod standing;
