//! Tables on a terminal.

use std::io::{self, Write};
use std::ops::RangeBounds;

/// Prints rows of equal length in columns, of which `numbers` end at their right end and the
/// others begin at their left end.
pub fn print(rows: &[Vec<String>], numbers: impl RangeBounds<usize>, stdout: &mut impl Write) -> io::Result<()> {
    let columns = rows.first().map_or(0, Vec::len);
    let width = |column: usize| rows.iter().map(|cells| cells[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    for cells in rows {
        let padded =
            cells.iter().zip(&widths).enumerate().map(|(column, (cell, &width))| match numbers.contains(&column) {
                true => format!("{cell:>width$}"),
                false => format!("{cell:width$}"),
            });
        writeln!(stdout, "{}", padded.collect::<Vec<_>>().join("  ").trim_end())?;
    }
    Ok(())
}
