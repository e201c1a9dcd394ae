//! Bars in groups, with intervals.

use super::axis::{Axis, Ends};
use super::frame::{Horizontal, Key, VERTICAL_TICKS, bar_class, frame, no_data, reference_class};
use super::number;
use super::palette::COLORS;
use super::svg::{Anchor, Path, Svg, text_width};
use super::xy::{Reference, ReferenceLine, error_bar, reference_legend};

/// Share of a group's width that its bars take.
const FILLED: f64 = 0.78;

/// What a number above a bar takes of the plot.
const HEAD_ROOM: f64 = 8.0;

/// Bars for every pair of a group and a series.
#[derive(Debug, Clone, PartialEq)]
pub struct BarChart {
    title: String,
    y: Axis,
    groups: Vec<String>,
    series: Vec<BarSeries>,
    references: Vec<Reference>,
}

/// One bar for every group.
#[derive(Debug, Clone, PartialEq)]
pub struct BarSeries {
    name: String,
    values: Vec<Option<f64>>,
    half_widths: Vec<f64>,
    hollow: bool,
    slot: Option<usize>,
}

impl BarChart {
    /// A chart without bars. `title` says what `groups` are; it may be empty. The
    /// axis always includes zero, unless it is logarithmic.
    pub fn new(title: impl Into<String>, y: Axis, groups: Vec<String>) -> Self {
        Self { title: title.into(), y: y.from_zero(), groups, series: Vec::new(), references: Vec::new() }
    }

    /// Adds a bar to every group.
    ///
    /// # Panics
    ///
    /// When `series` has not one value for every group.
    pub fn series(mut self, series: BarSeries) -> Self {
        assert_eq!(series.values.len(), self.groups.len(), "{} has not one value for every group", series.name);
        self.series.push(series);
        self
    }

    /// Adds a line to compare with; only horizontal ones have a place here.
    pub fn reference(mut self, name: impl Into<String>, y: f64) -> Self {
        self.references.push(Reference::horizontal(name, y));
        self
    }

    /// More bars of a group than these cannot be told apart: each has a colour of its own, and neither dashes nor markers.
    pub const MOST_SERIES: usize = COLORS;

    pub(super) fn draw(&self, svg: &mut Svg) -> f64 {
        let bars = self.series.iter().flat_map(BarSeries::ends);
        let lines = self.references.iter().filter_map(|r| match r.line {
            ReferenceLine::Horizontal(y) => Some(y),
            _ => None,
        });
        let ends: Vec<f64> = bars.chain(lines).collect();
        let ends = || ends.iter().copied();
        let mut y = self.y.fit(ends(), VERTICAL_TICKS, Ends::OnTick);
        if !self.numbers_fit(y.factor, svg.width) {
            let short = self.y.clone().short(4);
            y = short.fit(ends(), VERTICAL_TICKS, Ends::OnTick);
        }
        // Numbers on some bars and not on others would look like a meaning.
        let numbered = self.numbers_fit(y.factor, svg.width);
        let names = Horizontal::Names { title: self.title.clone(), names: self.groups.clone() };
        let plot = frame(svg, &names, &y, &self.legend(), 0.0);
        if self.series.is_empty() || self.groups.is_empty() {
            no_data(svg, &plot);
            return plot.total_height;
        }
        let group_width = plot.width / self.groups.len() as f64;
        let bar_width = group_width * FILLED / self.series.len() as f64;
        let level = |value: f64| (1.0 - y.place(value)) * plot.height;
        svg.clipped(plot.corner(), plot.size(), |svg| {
            let mut errors = Path::default();
            let mut texts = Vec::new();
            for (index, series) in self.series.iter().enumerate() {
                let slot = series.slot.unwrap_or(index);
                let class = bar_class(slot, series.hollow);
                for (group, value) in series.values.iter().enumerate() {
                    let left = group_width * (group as f64 + (1.0 - FILLED) / 2.0) + bar_width * index as f64;
                    let middle = left + bar_width / 2.0;
                    let Some(value) = value.filter(|value| self.y.shows(*value)) else {
                        let base = level(y.base());
                        texts.push((middle, base - 5.0, number::NO_NUMBER.to_owned()));
                        continue;
                    };
                    let (base, top) = (level(y.base()), level(value));
                    let gap = (bar_width * 0.06).min(2.0);
                    svg.rect(&class, (left + gap, base.min(top)), (bar_width - 2.0 * gap, (base - top).abs()));
                    let mut above = base.min(top);
                    if let Some(half) = series.half_width(group) {
                        let low = value - half;
                        let low = level(if self.y.shows(low) { low } else { value });
                        let high = level(value + half);
                        error_bar(&mut errors, (middle, low), (middle, high));
                        above = above.min(high);
                    }
                    if numbered {
                        let text = bar_number(value / y.factor);
                        // Above the plot a number would be cut off: there it stands in its bar.
                        let at = if above < HEAD_ROOM { above + 12.0 } else { above - 4.0 };
                        texts.push((middle, at, text));
                    }
                }
            }
            svg.path("ref bar-error", &errors);
            for (index, reference) in self.references.iter().enumerate() {
                if let ReferenceLine::Horizontal(value) = reference.line
                    && self.y.shows(value)
                {
                    let at = level(value);
                    svg.line(&reference_class(index), (0.0, at), (plot.width, at));
                }
            }
            for (x, y, text) in texts {
                svg.text("value", (x, y), Anchor::Middle, &text);
            }
        });
        plot.total_height
    }

    /// Whether the numbers of all bars, divided by `factor`, fit above them in a drawing of
    /// `width`.
    fn numbers_fit(&self, factor: f64, width: f64) -> bool {
        let bars = (self.groups.len() * self.series.len()).max(1) as f64;
        // The vertical axis takes up to 80 units with its numbers.
        let room = (width - 80.0) * FILLED / bars;
        let values = self.series.iter().flat_map(|series| series.values.iter().flatten());
        let mut widths = values.map(|value| text_width(&bar_number(value / factor), 11.0));
        widths.all(|width| width < room)
    }

    fn legend(&self) -> Vec<(Key, String)> {
        let series = self.series.iter().enumerate().map(|(index, series)| {
            let key = Key::Bar { slot: series.slot.unwrap_or(index), hollow: series.hollow };
            (key, series.name.clone())
        });
        series.chain(reference_legend(&self.references)).collect()
    }
}

fn bar_number(value: f64) -> String {
    number::compact(value, 4)
}

impl BarSeries {
    /// One value for every group, `None` where there is no number.
    pub fn new(name: impl Into<String>, values: Vec<Option<f64>>) -> Self {
        Self { name: name.into(), values, half_widths: Vec::new(), hollow: false, slot: None }
    }

    /// Half widths of the bars' intervals, in the unit of the axis and the order of
    /// the groups; NaN for none.
    pub fn intervals(mut self, half_widths: Vec<f64>) -> Self {
        self.half_widths = half_widths;
        self
    }

    /// Outlines instead of full bars: what others measured, beside what we did.
    pub fn hollow(mut self) -> Self {
        self.hollow = true;
        self
    }

    /// Takes the colour number `slot` instead of the series' own place.
    pub fn slot(mut self, slot: usize) -> Self {
        self.slot = Some(slot);
        self
    }

    fn half_width(&self, group: usize) -> Option<f64> {
        self.half_widths.get(group).copied().filter(|half| half.is_finite())
    }

    /// The values, and the ends of their intervals.
    fn ends(&self) -> impl Iterator<Item = f64> + '_ {
        self.values.iter().enumerate().flat_map(|(group, value)| {
            let value = value.unwrap_or(f64::NAN);
            let half = self.half_width(group).unwrap_or(0.0);
            [value, value - half, value + half]
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_a_bar_that_ends_at_the_top_stands_in_it() {
        let chart = BarChart::new("", Axis::new("rate", ""), ["a", "b"].map(String::from).to_vec())
            .series(BarSeries::new("x", vec![Some(100.0), Some(50.0)]));
        let mut svg = Svg::new(640.0);
        chart.draw(&mut svg);
        let text = svg.finish("x", 300.0, None);
        let levels = text.lines().filter(|line| line.contains(r#"class="value""#)).map(|line| {
            let y = line.split_once(r#" y=""#).unwrap().1;
            y.split_once('"').unwrap().0.parse::<f64>().unwrap()
        });
        let levels: Vec<f64> = levels.collect();
        assert!(levels.len() == 2 && levels[0] == 12.0 && levels[1] > 20.0, "{levels:?}");
    }
}
