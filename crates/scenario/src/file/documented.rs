//! Every key that is read is documented, and every key that is documented is read.

use std::collections::BTreeSet;

use super::shape::Keys;

/// The keys of a table.
pub(super) fn keys<T: Keys>() -> BTreeSet<String> {
    T::KEYS.iter().map(|key| (*key).to_owned()).collect()
}

/// The keys in the first column of each table of keys under the headings of `page` that
/// begin with `heading`.
pub(super) fn documented(page: &str, heading: &str) -> BTreeSet<String> {
    let mut here = false;
    let mut keys = BTreeSet::new();
    for line in page.lines() {
        if line.starts_with("## ") {
            here = line.strip_prefix("## ").is_some_and(|title| title.trim_matches('`') == heading);
        }
        let first = line.strip_prefix("| `").and_then(|rest| rest.split(" |").next());
        if let (true, Some(cell)) = (here, first) {
            keys.extend(format!("`{cell}").split('`').skip(1).step_by(2).map(str::to_owned));
        }
    }
    assert!(!keys.is_empty(), "no table of keys under {heading}");
    keys
}

/// The part of `page` under the heading of the first level that is `title`.
pub(super) fn part<'p>(page: &'p str, title: &str) -> &'p str {
    let (_, rest) = page.split_once(&format!("\n# {title}\n")).expect("the page has this part");
    rest.split_once("\n# ").map_or(rest, |(part, _)| part)
}

#[test]
fn a_key_that_is_read_and_one_that_is_documented_are_found() {
    let page = "## `[a]`\n\n| key | meaning |\n|---|---|\n| `x`, `y` | `z` |\n\n## Other\n| `w` | |\n";
    assert_eq!(documented(page, "[a]"), BTreeSet::from(["x".to_owned(), "y".to_owned()]));
}
