//! Standard error, which nobody may read, or on a full disk.

use std::io::{self, Write};

/// Says a line on standard error, for `eprint_line!`. What cannot be written there keeps nobody from working.
pub fn on_stderr(line: std::fmt::Arguments<'_>) {
    let _ = writeln!(io::stderr(), "{line}");
}

/// `eprintln!` that does not panic where nobody reads standard error, or its disk is full.
macro_rules! eprint_line {
    ($($text:tt)*) => { $crate::stderr::on_stderr(format_args!($($text)*)) };
}
pub(crate) use eprint_line;
