//! Numbers in tables on a terminal.

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
