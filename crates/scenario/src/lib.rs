//! Scenario files in, checked types out: what a run is, and the file that says it. What is wrong
//! in a file is said with its line, its key and what would be right.

pub mod file;
pub mod flows;
pub mod json;
pub mod onion;
pub mod onion_run;
pub mod overlay;
pub mod parameter_files;
pub mod policy;
pub mod remy_table;
pub mod stream;
