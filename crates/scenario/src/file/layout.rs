//! Scenarios as text: what is written on one line, with a heading for each table that is a section.

use std::fmt::Write;

use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

use super::shape::{Keys, Shape, Table};

/// The tables whose tables have headings of their own.
const WITH_SECTIONS: [&str; 2] = ["", "overlay"];

/// `file` as TOML.
pub fn to_toml(file: &impl Keys) -> String {
    let mut inline = String::new();
    Table::write(file, &mut inline);
    let value = DeValue::parse(&inline).expect("what is written is TOML");
    let mut out = String::new();
    if let DeValue::Table(table) = value.get_ref() {
        lay_out(table, &inline, "", &mut out).expect("a string takes whatever is written to it");
    }
    out
}

/// Writes the keys of `table`, called `name`, in the order in which they stand in `inline`:
/// first those that stay on a line, then the sections.
fn lay_out(table: &DeTable<'_>, inline: &str, name: &str, out: &mut String) -> std::fmt::Result {
    let mut entries: Vec<(&Spanned<DeString<'_>>, &Spanned<DeValue<'_>>)> = table.iter().collect();
    entries.sort_by_key(|(key, _)| key.span().start);
    let has_heading = |value: &DeValue<'_>| match value {
        DeValue::Table(_) => true,
        DeValue::Array(list) => list.iter().next().is_some_and(|item| item.get_ref().is_table()),
        _ => false,
    };
    let (sections, lines): (Vec<_>, Vec<_>) =
        entries.into_iter().partition(|(_, value)| WITH_SECTIONS.contains(&name) && has_heading(value.get_ref()));
    for (key, value) in lines {
        writeln!(out, "{} = {}", &inline[key.span()], &inline[value.span()])?;
    }
    for (key, value) in sections {
        let whole = if name.is_empty() { key.get_ref().to_string() } else { format!("{name}.{}", key.get_ref()) };
        let mut section = |value: &DeValue<'_>, open: &str, close: &str| match value {
            DeValue::Table(table) => {
                let gap = if out.is_empty() { "" } else { "\n" };
                writeln!(out, "{gap}{open}{whole}{close}")?;
                lay_out(table, inline, &whole, out)
            }
            _ => Ok(()),
        };
        match value.get_ref() {
            DeValue::Array(list) => list.iter().try_for_each(|item| section(item.get_ref(), "[[", "]]"))?,
            value => section(value, "[", "]")?,
        }
    }
    Ok(())
}
