//! Numbers as people read them: grouped digits, no digits that say nothing.

/// U+202F: the digits of one number stay on one line.
const GROUP_SPACE: char = '\u{202f}';
const MINUS: char = '\u{2212}';
/// What stands where there is no number.
pub(super) const NO_NUMBER: &str = "\u{2013}";

/// `value` with exactly `digits` after the point: `90 416.43`. Digits are grouped
/// from five before the point on, since four read well as they are.
pub(super) fn fixed(value: f64, digits: usize) -> String {
    if !value.is_finite() {
        return NO_NUMBER.to_owned();
    }
    let plain = format!("{:.digits$}", value.abs());
    let (whole, rest) = plain.split_at(plain.find('.').unwrap_or(plain.len()));
    let mut out = String::new();
    // A value that rounds to zero has no sign.
    if value < 0.0 && plain.bytes().any(|b| (b'1'..=b'9').contains(&b)) {
        out.push(MINUS);
    }
    for (i, digit) in whole.chars().enumerate() {
        let left = whole.len() - i;
        if whole.len() > 4 && i > 0 && left % 3 == 0 {
            out.push(GROUP_SPACE);
        }
        out.push(digit);
    }
    out.push_str(rest);
    out
}

/// `value` with up to `significant` digits and no trailing zeros: `0.15`, `90 400`,
/// `2×10⁻⁷`.
pub(super) fn compact(value: f64, significant: i32) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    if !value.is_finite() {
        return NO_NUMBER.to_owned();
    }
    let exponent = exponent(value);
    if !(-4..8).contains(&exponent) {
        let mantissa = trimmed(value / libm::exp10(f64::from(exponent)), significant - 1);
        return format!("{mantissa}×{}", power_of_ten(exponent));
    }
    trimmed(value, significant - 1 - exponent)
}

/// `mean ± half_width` with the two leading digits of the half width, which are
/// all that it knows: `90 416 ± 24`.
pub(super) fn interval(mean: f64, half_width: f64) -> String {
    if !mean.is_finite() || !half_width.is_finite() {
        return NO_NUMBER.to_owned();
    }
    if half_width == 0.0 {
        return format!("{} ± 0", compact(mean, 6));
    }
    let digits = (1 - exponent(half_width)).max(0) as usize;
    format!("{} ± {}", fixed(mean, digits), fixed(half_width, digits))
}

/// `10⁶`, with the exponent raised.
pub(super) fn power_of_ten(exponent: i32) -> String {
    let plain = exponent.to_string();
    let raised = plain.chars().map(|c| match c {
        '-' => '⁻',
        '1' => '¹',
        '2' => '²',
        '3' => '³',
        digit => char::from_u32(0x2070 + digit as u32 - '0' as u32).expect("a raised digit"),
    });
    format!("10{}", raised.collect::<String>())
}

/// The power of ten of the first digit: 4 for 90 416, -1 for 0.15.
pub(super) fn exponent(value: f64) -> i32 {
    // The logarithm of a power of ten may come out a rounding too low; scientific
    // notation is exact.
    let text = format!("{:e}", value.abs());
    text.split_once('e').and_then(|(_, exponent)| exponent.parse().ok()).unwrap_or(0)
}

fn trimmed(value: f64, digits: i32) -> String {
    let text = fixed(value, digits.clamp(0, 12) as usize);
    if !text.contains('.') {
        return text;
    }
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_grouped_from_five_on() {
        assert_eq!(fixed(90_400.0, 0), "90\u{202f}400");
        assert_eq!(fixed(1368.5, 1), "1368.5");
        assert_eq!(fixed(-1_234_567.891, 2), "−1\u{202f}234\u{202f}567.89");
        assert_eq!(fixed(123_456.0, 0), "123\u{202f}456");
        assert_eq!(fixed(-0.04, 1), "0.0");
        assert_eq!(fixed(f64::NAN, 2), "–");
    }

    #[test]
    fn compact_numbers_have_no_idle_zeros() {
        assert_eq!(compact(0.15, 4), "0.15");
        assert_eq!(compact(90_400.0, 4), "90\u{202f}400");
        assert_eq!(compact(4.0, 4), "4");
        assert_eq!(compact(2e-7, 4), "2×10⁻⁷");
        assert_eq!(compact(2.5e10, 4), "2.5×10¹⁰");
        assert_eq!(compact(0.0, 4), "0");
        assert_eq!(compact(1000.0, 2), "1000");
    }

    #[test]
    fn an_interval_shows_two_digits_of_its_width() {
        assert_eq!(interval(90_416.43, 24.465_69), "90\u{202f}416 ± 24");
        assert_eq!(interval(0.060_195, 0.000_635), "0.06019 ± 0.00064");
        assert_eq!(interval(4099.495, 4.823_612), "4099.5 ± 4.8");
        assert_eq!(interval(5.0, 0.0), "5 ± 0");
        assert_eq!(interval(5.0, f64::NAN), "–");
    }

    #[test]
    fn powers_are_raised() {
        assert_eq!(power_of_ten(-12), "10⁻¹²");
        assert_eq!(power_of_ten(6), "10⁶");
        assert_eq!((exponent(1000.0), exponent(0.001)), (3, -3));
    }
}
