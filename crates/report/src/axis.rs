//! Axes: from a range of values to places on the chart, and to numbers beside it.

use super::number;

/// What an axis shows.
#[derive(Debug, Clone, PartialEq)]
pub struct Axis {
    label: String,
    unit: String,
    logarithmic: bool,
    from_zero: bool,
    range: Option<(f64, f64)>,
    /// Numbers from this power of ten on move their thousands into the title.
    plain_powers: i32,
    whole: bool,
    reversed: bool,
}

impl Axis {
    /// A linear axis that fits its data. `unit` may be empty for a pure number.
    pub fn new(label: impl Into<String>, unit: impl Into<String>) -> Self {
        Self {
            label: label.into(),
            unit: unit.into(),
            logarithmic: false,
            from_zero: false,
            range: None,
            plain_powers: 7,
            whole: false,
            reversed: false,
        }
    }

    /// Logarithmic: values that are zero or less have no place on it and are left out.
    pub fn log(mut self) -> Self {
        self.logarithmic = true;
        self
    }

    /// Includes zero, so that heights compare as amounts do. Without effect on a
    /// logarithmic axis.
    pub fn from_zero(mut self) -> Self {
        self.from_zero = true;
        self
    }

    /// The largest value first: for what should be small, so that better is where one looks
    /// for it.
    pub fn reversed(mut self) -> Self {
        self.reversed = true;
        self
    }

    /// Numbers whole values only, for what is counted: peers, hops, lags.
    pub fn whole_numbers(mut self) -> Self {
        self.whole = true;
        self
    }

    /// Shows exactly the values from `low` to `high`, for example to give two charts
    /// the same scale.
    ///
    /// # Panics
    ///
    /// When the range is empty or not finite.
    pub fn range(mut self, low: f64, high: f64) -> Self {
        assert!(low < high && low.is_finite() && high.is_finite(), "an axis from {low} to {high} shows nothing");
        self.range = Some((low, high));
        self
    }

    /// Moves thousands into the title from the power of ten `from` on, where room is
    /// scarce.
    pub(super) fn short(mut self, from: i32) -> Self {
        self.plain_powers = from;
        self
    }

    /// The label with its unit: `delay (ms)`.
    pub(super) fn title(&self) -> String {
        self.scaled_title(0)
    }

    fn scaled_title(&self, exponent: i32) -> String {
        let unit = match (exponent, self.unit.is_empty()) {
            (0, true) => return self.label.clone(),
            (0, false) => self.unit.clone(),
            (_, true) => number::power_of_ten(exponent),
            (_, false) => format!("{} {}", number::power_of_ten(exponent), self.unit),
        };
        format!("{} ({unit})", self.label)
    }

    /// Whether a value has a place on this axis.
    pub(super) fn shows(&self, value: f64) -> bool {
        value.is_finite() && (!self.logarithmic || value > 0.0)
    }

    /// Lays the axis out for `values`, with about `ticks` numbers.
    pub(super) fn fit(&self, values: impl Iterator<Item = f64>, ticks: usize, ends: Ends) -> Scale {
        let (low, high) = self.range.unwrap_or_else(|| self.extent(values, ends));
        // A range set by hand may reach to zero, where no logarithm does.
        let logarithmic = self.logarithmic && low > 0.0;
        if logarithmic {
            return self.fit_log(low, high, ticks, ends);
        }
        let step = nice_step((high - low) / ticks.max(1) as f64);
        let step = if self.whole { step.max(1.0) } else { step };
        let (low, high) = if self.range.is_some() {
            (low, high)
        } else {
            let below = libm::floor(low / step + 1e-9) * step;
            let above = libm::ceil(high / step - 1e-9) * step;
            // A tick that is far beyond the data would leave the chart half empty.
            let (near, room) = match ends {
                Ends::OnTick => (0.6 * step, 0.03 * (high - low)),
                Ends::Tight => (0.02 * (high - low), 0.0),
                Ends::Apart => (0.0, 0.0),
            };
            (
                if low - below <= near { below } else { low - room },
                if above - high <= near { above } else { high + room },
            )
        };
        let largest = low.abs().max(high.abs());
        let exponent = match number::exponent(largest) {
            large if large >= self.plain_powers => large / 3 * 3,
            small if small < -3 => (small - 2) / 3 * 3,
            _ => 0,
        };
        let factor = libm::exp10(f64::from(exponent));
        let digits = (-number::exponent(step / factor * (1.0 + 1e-9))).max(0) as usize;
        let (first, last) = (libm::ceil(low / step - 1e-9) as i64, libm::floor(high / step + 1e-9) as i64);
        let ticks = (first..=last).map(|i| {
            let value = i as f64 * step;
            (value, number::fixed(value / factor, digits))
        });
        Scale {
            low,
            high,
            logarithmic: false,
            reversed: self.reversed,
            factor,
            ticks: ticks.collect(),
            minor: Vec::new(),
            title: self.scaled_title(exponent),
        }
    }

    fn fit_log(&self, low: f64, high: f64, ticks: usize, ends: Ends) -> Scale {
        let decades = libm::log10(high / low);
        let multiples: &[f64] = if decades > 2.5 { &[1.0] } else { &[1.0, 2.0, 5.0] };
        // One power of ten further on both sides, for the ends to move to.
        let powers = number::exponent(low) - 1..=number::exponent(high) + 1;
        let candidates: Vec<f64> =
            powers.clone().flat_map(|power| multiples.iter().map(move |m| scientific(*m, power))).collect();
        let (low, high) = if ends == Ends::OnTick && self.range.is_none() {
            let below = |x: &f64| *x <= low * (1.0 + 1e-9);
            let above = |x: &f64| *x >= high * (1.0 - 1e-9);
            (
                candidates.iter().copied().rfind(below).unwrap_or(low),
                candidates.iter().copied().find(above).unwrap_or(high),
            )
        } else {
            (low, high)
        };
        let inside = |x: &f64| *x >= low * (1.0 - 1e-9) && *x <= high * (1.0 + 1e-9);
        let shown: Vec<f64> = candidates.into_iter().filter(inside).collect();
        let every = shown.len().div_ceil(ticks.max(2) + 2).max(1);
        let plain = low >= 1e-4 && high < 1e7;
        let label = |value: f64| {
            if plain {
                number::compact(value, 3)
            } else {
                let power = number::exponent(value);
                match libm::round(value / libm::exp10(f64::from(power))) as i64 {
                    1 => number::power_of_ten(power),
                    mantissa => format!("{mantissa}×{}", number::power_of_ten(power)),
                }
            }
        };
        let minor = powers.flat_map(|power| (2..10).map(move |m| scientific(f64::from(m), power)));
        Scale {
            low,
            high,
            logarithmic: true,
            reversed: self.reversed,
            factor: 1.0,
            ticks: shown.into_iter().step_by(every).map(|value| (value, label(value))).collect(),
            minor: minor.filter(inside).collect(),
            title: self.title(),
        }
    }

    /// Least and greatest value, with room around them as `ends` asks for.
    fn extent(&self, values: impl Iterator<Item = f64>, ends: Ends) -> (f64, f64) {
        let shown = values.filter(|value| self.shows(*value));
        let (mut low, mut high) =
            shown.fold((f64::INFINITY, f64::NEG_INFINITY), |range, x| (range.0.min(x), range.1.max(x)));
        if low > high {
            return if self.logarithmic { (1.0, 10.0) } else { (0.0, 1.0) };
        }
        if self.logarithmic {
            if low == high {
                return (low / 2.0, high * 2.0);
            }
            let room = match ends {
                Ends::Apart => libm::pow(high / low, 0.05),
                Ends::OnTick | Ends::Tight => 1.0,
            };
            return (low / room, high * room);
        }
        if self.from_zero {
            (low, high) = (low.min(0.0), high.max(0.0));
        }
        if low == high {
            // Most of what is drawn is never less than zero: a constant zero lies on the axis.
            if low == 0.0 {
                return (0.0, 1.0);
            }
            let room = low.abs() * 0.1;
            return (low - room, high + room);
        }
        let room = match ends {
            Ends::Apart => (high - low) * 0.05,
            Ends::OnTick | Ends::Tight => 0.0,
        };
        (low - room, high + room)
    }
}

/// How an axis ends.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Ends {
    /// On the next tick beyond the data, if one is near.
    OnTick,
    /// Right at the data, or on a tick that is as good as there.
    Tight,
    /// A little beyond the data.
    Apart,
}

/// An axis laid out.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Scale {
    pub(super) low: f64,
    pub(super) high: f64,
    logarithmic: bool,
    reversed: bool,
    /// What values are divided by before they are written, as the title says.
    pub(super) factor: f64,
    /// Values with their numbers.
    pub(super) ticks: Vec<(f64, String)>,
    /// Values of grid lines without numbers.
    pub(super) minor: Vec<f64>,
    pub(super) title: String,
}

impl Scale {
    /// Place of `value` between the low end (0) and the high one (1), or beyond.
    pub(super) fn place(&self, value: f64) -> f64 {
        let place = if self.logarithmic {
            libm::log(value / self.low) / libm::log(self.high / self.low)
        } else {
            (value - self.low) / (self.high - self.low)
        };
        if self.reversed { 1.0 - place } else { place }
    }

    /// Where bars stand: zero, or the end nearest to it.
    pub(super) fn base(&self) -> f64 {
        if self.logarithmic { self.low } else { 0.0f64.clamp(self.low, self.high) }
    }
}

/// The 1, 2 or 5 times a power of ten that is nearest to `rough` by its ratio.
fn nice_step(rough: f64) -> f64 {
    let power = number::exponent(rough);
    let mantissa = rough / scientific(1.0, power);
    // Between two steps their geometric mean: the roots of 2, 10 and 50.
    match mantissa {
        m if m < 1.414 => scientific(1.0, power),
        m if m < 3.162 => scientific(2.0, power),
        m if m < 7.071 => scientific(5.0, power),
        _ => scientific(1.0, power + 1),
    }
}

/// `mantissa × 10^power`, the same bits as the literal has.
fn scientific(mantissa: f64, power: i32) -> f64 {
    if power < 0 { mantissa / libm::exp10(f64::from(-power)) } else { mantissa * libm::exp10(f64::from(power)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn labels(scale: &Scale) -> Vec<&str> {
        scale.ticks.iter().map(|(_, label)| label.as_str()).collect()
    }

    #[test]
    fn ticks_are_round_and_grouped() {
        let scale =
            Axis::new("throughput", "bytes/s").from_zero().fit([90_400.0, 46_000.0].into_iter(), 5, Ends::OnTick);
        let expected = ["0", "20\u{202f}000", "40\u{202f}000", "60\u{202f}000", "80\u{202f}000", "100\u{202f}000"];
        assert_eq!(labels(&scale), expected);
        assert_eq!(scale.title, "throughput (bytes/s)");
        assert_eq!((scale.place(0.0), scale.place(100_000.0)), (0.0, 1.0));
    }

    #[test]
    fn a_reversed_axis_begins_with_the_largest() {
        let scale = Axis::new("delay", "ms").reversed().fit([0.0, 40.0].into_iter(), 4, Ends::OnTick);
        assert_eq!((scale.place(40.0), scale.place(10.0), scale.place(0.0)), (0.0, 0.75, 1.0));
        assert_eq!(labels(&scale), ["0", "10", "20", "30", "40"]);
        let scale = Axis::new("delay", "ms").log().reversed().fit([1.0, 100.0].into_iter(), 4, Ends::OnTick);
        assert!((scale.place(10.0) - 0.5).abs() < 1e-12 && scale.place(100.0) == 0.0);
    }

    #[test]
    fn decimals_follow_the_step() {
        let scale = Axis::new("share", "").fit([0.0, 1.0].into_iter(), 5, Ends::OnTick);
        assert_eq!(labels(&scale), ["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"]);
    }

    #[test]
    fn what_is_counted_has_whole_numbers() {
        let axis = Axis::new("hops", "").whole_numbers();
        let scale = axis.fit([1.0, 3.0].into_iter(), 6, Ends::Tight);
        assert_eq!(labels(&scale), ["1", "2", "3"]);
    }

    #[test]
    fn large_and_small_numbers_move_into_the_title() {
        let rate = Axis::new("rate", "bit/s");
        let scale = rate.fit([0.0, 4e7].into_iter(), 4, Ends::OnTick);
        assert_eq!(scale.title, "rate (10⁶ bit/s)");
        assert_eq!(labels(&scale), ["0", "10", "20", "30", "40"]);
        let scale = Axis::new("loss", "").fit([0.0, 2e-4].into_iter(), 4, Ends::OnTick);
        assert_eq!(scale.title, "loss (10⁻⁶)");
        assert_eq!(labels(&scale), ["0", "50", "100", "150", "200"]);
    }

    #[test]
    fn decades_are_numbered_on_a_logarithmic_axis() {
        let axis = Axis::new("delay", "ms").log();
        let scale = axis.fit([1.0, 1000.0, 0.0, -5.0].into_iter(), 5, Ends::OnTick);
        assert_eq!(labels(&scale), ["1", "10", "100", "1000"]);
        assert!((scale.place(10.0) - 1.0 / 3.0).abs() < 1e-12);
        assert!(scale.minor.contains(&20.0) && !axis.shows(0.0));
        let wide = axis.fit([1e-9, 1.0].into_iter(), 5, Ends::OnTick);
        assert_eq!(labels(&wide), ["10⁻⁹", "10⁻⁷", "10⁻⁵", "10⁻³", "10⁻¹"]);
        let narrow = axis.fit([3.0, 40.0].into_iter(), 5, Ends::OnTick);
        assert_eq!(labels(&narrow), ["2", "5", "10", "20", "50"]);
    }

    #[test]
    fn equal_values_and_none_have_an_axis() {
        let axis = Axis::new("x", "");
        let one = axis.fit([5.0, 5.0].into_iter(), 5, Ends::OnTick);
        assert!(one.low < 5.0 && one.high > 5.0 && one.ticks.len() > 1);
        let zero = axis.fit([0.0, 0.0].into_iter(), 5, Ends::OnTick);
        assert_eq!((zero.low, zero.high), (0.0, 1.0));
        let none = axis.fit([f64::NAN].into_iter(), 5, Ends::OnTick);
        assert_eq!((none.low, none.high), (0.0, 1.0));
    }

    proptest! {
        #[test]
        fn every_axis_holds_its_data_and_a_few_ticks(
            values in prop::collection::vec(-1e12f64..1e12, 1..20),
            shrink in 0i32..20,
            logarithmic in any::<bool>(),
        ) {
            let factor = libm::exp10(f64::from(-shrink));
            let values: Vec<f64> = values
                .iter()
                .map(|x| if logarithmic { (x.abs() + 1e-3) * factor } else { x * factor })
                .collect();
            let axis = Axis::new("x", "s");
            let axis = if logarithmic { axis.log() } else { axis };
            let scale = axis.fit(values.iter().copied(), 5, Ends::OnTick);
            for x in &values {
                let place = scale.place(*x);
                prop_assert!((-1e-6..=1.0 + 1e-6).contains(&place), "{} at {}", x, place);
            }
            prop_assert!((2..=10).contains(&scale.ticks.len()), "{:?}", scale.ticks);
            let mut texts = labels(&scale);
            texts.dedup();
            prop_assert_eq!(texts.len(), scale.ticks.len(), "{:?}", scale.ticks);
        }
    }
}
