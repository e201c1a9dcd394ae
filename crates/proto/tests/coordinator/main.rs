//! A coordinator of hosts, report by report.

mod driven;
mod expecting;
mod learned;
mod others_rights;
#[path = "../common/standing.rs"]
mod standing;
