//! How far the bytes of a transfer are, on a terminal only.

use indicatif::{ProgressBar, ProgressStyle};

/// How far bytes are, how fast they come, and how long it will take: a template's part.
pub const BYTES: &str = "{bar:30} {bytes}/{total_bytes} {bytes_per_sec} eta {eta}";

/// What is being done before anything leaves.
pub const HASHING: &str = "hashing";

/// A bar for `length` bytes that are read once for their hash, before anything leaves.
pub fn hashing(length: u64) -> ProgressBar {
    let style = ProgressStyle::with_template(&format!("{HASHING} {BYTES}")).expect("the template is valid");
    ProgressBar::new(length).with_style(style)
}
