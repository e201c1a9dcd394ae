//! Numbers in options, and in tables on a terminal.

use std::num::NonZeroUsize;

/// The most threads that are begun: more only wait for one another, and 100 000 of them keep a whole machine waiting.
const MOST_THREADS: usize = 1024;

/// A number of threads.
pub fn threads(text: &str) -> Result<NonZeroUsize, String> {
    let number = text.parse().ok().filter(|number: &NonZeroUsize| number.get() <= MOST_THREADS);
    number.ok_or_else(|| format!("expected a whole number from 1 to {MOST_THREADS}"))
}

/// Enough digits to compare, no more.
pub fn short(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        size if size >= 1000.0 => format!("{value:.0}"),
        size if size >= 1.0 => format!("{value:.2}"),
        size if size >= 1e-3 => format!("{value:.4}"),
        _ => format!("{value:.2e}"),
    }
}
