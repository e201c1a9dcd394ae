//! Text that somebody else chose, before a terminal shows it: names of files, reasons, reports.
//!
//! A terminal obeys control characters (ECMA-48), and shows text in another order than it was
//! written where a bidirectional override asks for it (Unicode Standard Annex 9, 2): a name that
//! ends in `.exe` can look as if it ended in `.jpg`. What is shown here is what was sent: such
//! characters are escaped, and a long text is cut.

/// The most characters that are shown of a text.
pub const MAX_PRINTED: usize = 320;

/// Characters of Unicode's categories Cf, Zl and Zp that change how others are shown, or are
/// themselves not shown. Not among them: the joiners U+200C and U+200D, without which some
/// scripts can't be written, and the visible signs that Arabic and Kaithi put around numbers.
const INVISIBLE: [(char, char); 14] = [
    ('\u{ad}', '\u{ad}'),
    ('\u{61c}', '\u{61c}'),
    ('\u{180e}', '\u{180e}'),
    ('\u{200b}', '\u{200b}'),
    ('\u{200e}', '\u{200f}'),
    ('\u{2028}', '\u{202e}'),
    ('\u{2060}', '\u{2064}'),
    ('\u{2066}', '\u{206f}'),
    ('\u{feff}', '\u{feff}'),
    ('\u{fff9}', '\u{fffb}'),
    ('\u{13430}', '\u{1343f}'),
    ('\u{1bca0}', '\u{1bca3}'),
    ('\u{1d173}', '\u{1d17a}'),
    ('\u{e0001}', '\u{e007f}'),
];

/// Whether `c` is shown as a character of its own, and moves no terminal.
pub fn is_printable(c: char) -> bool {
    !c.is_control() && !INVISIBLE.iter().any(|&(first, last)| (first..=last).contains(&c))
}

/// `text` as it may be shown to people: on one line, at most [`MAX_PRINTED`] characters, the others
/// cut, and those that are not printable escaped as Rust writes them (`\u{1b}`).
pub fn printable(text: &str) -> String {
    let mut shown = String::new();
    // Characters, not bytes: a loop over the pieces, so that none is cut in the middle.
    let mut left = MAX_PRINTED;
    for c in text.chars() {
        let piece: String = if is_printable(c) { c.into() } else { c.escape_default().collect() };
        // One is kept for the sign that something was cut.
        let Some(rest) = left.checked_sub(piece.chars().count()).filter(|&rest| rest > 0) else {
            shown.push('…');
            return shown;
        };
        left = rest;
        shown += &piece;
    }
    shown
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_moves_a_terminal_or_turns_text_around_is_escaped() {
        for (text, shown) in [
            ("photo (1).jpg", "photo (1).jpg"),
            ("a\u{1b}[2J\u{7}b", "a\\u{1b}[2J\\u{7}b"),
            ("one\r\ntwo\tthree", "one\\r\\ntwo\\tthree"),
            ("\u{9b}31m", "\\u{9b}31m"),
            ("invoice\u{202e}gpj.exe", "invoice\\u{202e}gpj.exe"),
            ("a\u{2066}b\u{2069}\u{200f}c\u{feff}", "a\\u{2066}b\\u{2069}\\u{200f}c\\u{feff}"),
            ("line\u{2028}break", "line\\u{2028}break"),
            // Letters, accents on their own, joined emoji and right-to-left scripts are shown as they are.
            ("Bäume – e\u{301} 👩\u{200d}🔬 שלום", "Bäume – e\u{301} 👩\u{200d}🔬 שלום"),
        ] {
            assert_eq!(printable(text), shown);
        }
    }

    #[test]
    fn a_long_text_is_cut_and_says_so() {
        let whole = "a".repeat(MAX_PRINTED - 1);
        assert_eq!(printable(&whole), whole);
        let cut = printable(&"a".repeat(5000));
        assert_eq!((cut.chars().count(), cut.chars().last()), (MAX_PRINTED, Some('…')));
    }

    proptest! {
        #[test]
        fn nothing_that_is_shown_moves_a_terminal(text in any::<String>(), raw in prop::collection::vec(any::<char>(), 0..400)) {
            for text in [text, raw.into_iter().collect()] {
                let shown = printable(&text);
                prop_assert!(shown.chars().all(is_printable) && shown.chars().count() <= MAX_PRINTED, "{shown:?}");
            }
        }
    }
}
