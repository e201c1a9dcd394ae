//! The number of threads, as an option.

use std::num::NonZeroUsize;

/// The most threads that are begun: more only wait for one another, and 100 000 of them keep a whole machine waiting.
const MOST_THREADS: usize = 1024;

/// A number of threads.
pub fn parse(text: &str) -> Result<NonZeroUsize, String> {
    let number = text.parse().ok().filter(|number: &NonZeroUsize| number.get() <= MOST_THREADS);
    number.ok_or_else(|| format!("expected a whole number from 1 to {MOST_THREADS}"))
}
