//! Mounts the protocol machines on simulated nodes, runs scenarios, and turns
//! what happened into statistics, files, reports and the papers' experiments.

pub mod experiments;
pub mod flows;
pub mod output;
pub mod overlay;
pub mod parallel;
pub mod remy_table;
pub mod report;
pub mod run_files;
pub mod scenario;
pub mod scenario_file;
pub mod stats;
pub mod summary;
pub mod sweep;
pub mod validate;
