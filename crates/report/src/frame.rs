//! What every chart has around its data: grid, numbers, titles, legend.

use super::axis::Scale;
use super::palette::{marker, series_class};
use super::svg::{Anchor, Path, Svg, TEXT, TICK_TEXT, text_width};

/// Height of the part with the data, in SVG units.
pub(super) const PLOT_HEIGHT: f64 = 215.0;
const LEGEND_ROW: f64 = 19.0;
const LINE_HEIGHT: f64 = 15.0;
/// Length of the sample of a line in the legend.
const SAMPLE: f64 = 26.0;
const RIGHT: f64 = 14.0;

/// How a legend shows an entry.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Key {
    /// A line of the series in the slot, with its marker or without, dashed as it is
    /// or solid as dense lines are.
    Line { slot: usize, marker: bool, dense: bool },
    /// The marker of the series in the slot.
    Points { slot: usize },
    /// A bar of the series in the slot, filled or as an outline.
    Bar { slot: usize, hollow: bool },
    /// A reference line by its number.
    Reference { index: usize },
}

/// The horizontal axis: numbers, or names at even distances.
pub(super) enum Horizontal<'a> {
    Numbers(&'a Scale),
    Names { title: String, names: Vec<String> },
}

/// The part of the drawing that holds the data.
#[derive(Debug, Clone, Copy)]
pub(super) struct Plot {
    pub(super) left: f64,
    pub(super) top: f64,
    pub(super) width: f64,
    pub(super) height: f64,
    /// Height of the whole drawing.
    pub(super) total_height: f64,
}

impl Plot {
    /// The corner and size, as `Svg::clipped` takes them.
    pub(super) fn corner(&self) -> (f64, f64) {
        (self.left, self.top)
    }

    pub(super) fn size(&self) -> (f64, f64) {
        (self.width, self.height)
    }
}

/// How many numbers a vertical axis has room for.
pub(super) const VERTICAL_TICKS: usize = 5;

/// How many numbers as wide as those of `scale` the horizontal axis of a drawing of `width`
/// has room for.
pub(super) fn horizontal_ticks(scale: &Scale, width: f64) -> usize {
    let widest = widest(scale.ticks.iter().map(|(_, label)| label.as_str()));
    ((width - 80.0) / (widest + 26.0)).clamp(2.0, 8.0) as usize
}

/// Draws everything but the data, and says where the data go. `right` is room kept
/// free beside the plot.
pub(super) fn frame(svg: &mut Svg, x: &Horizontal<'_>, y: &Scale, legend: &[(Key, String)], right: f64) -> Plot {
    let mut left = 12.0 + widest(y.ticks.iter().map(|(_, label)| label.as_str()));
    if let Horizontal::Names { names, .. } = x {
        left = left.max(room_for_slanted(names, svg.width - left - right - RIGHT));
    }
    // The rightmost number of a horizontal axis sits half beyond its end.
    let overhang = match x {
        Horizontal::Numbers(scale) => scale
            .ticks
            .iter()
            .map(|(value, label)| text_width(label, TICK_TEXT) / 2.0 - (1.0 - scale.place(*value)) * 300.0)
            .fold(0.0, f64::max),
        Horizontal::Names { .. } => 0.0,
    };
    let width = svg.width - left - right - RIGHT.max(overhang + 2.0);
    let legend_height = draw_legend(svg, legend);
    let top = legend_height + 24.0;
    svg.text("title", (4.0, legend_height + 13.0), Anchor::Start, &y.title);

    let bottom = top + PLOT_HEIGHT;
    let level = |value: f64| bottom - y.place(value) * PLOT_HEIGHT;
    for value in &y.minor {
        svg.line("grid minor", (left, level(*value)), (left + width, level(*value)));
    }
    for (value, label) in &y.ticks {
        let at = level(*value);
        svg.line("grid", (left, at), (left + width, at));
        svg.text("tick", (left - 6.0, at + 4.0), Anchor::End, label);
    }
    let below = match x {
        Horizontal::Numbers(scale) => {
            let column = |value: f64| left + scale.place(value) * width;
            for value in &scale.minor {
                svg.line("grid minor", (column(*value), top), (column(*value), bottom));
            }
            for (value, label) in &scale.ticks {
                let at = column(*value);
                svg.line("grid", (at, top), (at, bottom));
                svg.line("axis", (at, bottom), (at, bottom + 4.0));
                svg.text("tick", (at, bottom + 17.0), Anchor::Middle, label);
            }
            20.0
        }
        Horizontal::Names { names, .. } => draw_names(svg, names, left, bottom, width),
    };
    svg.line("axis", (left, bottom), (left + width, bottom));
    let title = match x {
        Horizontal::Numbers(scale) => &scale.title,
        Horizontal::Names { title, .. } => title,
    };
    let mut total_height = bottom + below;
    if !title.is_empty() {
        total_height += 17.0;
        svg.text("title", (left + width / 2.0, total_height - 2.0), Anchor::Middle, title);
    }
    Plot { left, top, width, height: PLOT_HEIGHT, total_height: total_height + 6.0 }
}

/// Says in the middle of an empty plot that it is empty on purpose.
pub(super) fn no_data(svg: &mut Svg, plot: &Plot) {
    let middle = (plot.left + plot.width / 2.0, plot.top + plot.height / 2.0);
    svg.text("tick", middle, Anchor::Middle, "no data");
}

/// Draws the entries in rows from the top, and returns how high they are.
fn draw_legend(svg: &mut Svg, entries: &[(Key, String)]) -> f64 {
    let (mut x, mut y) = (4.0, 0.0);
    for (key, name) in entries {
        let entry = SAMPLE + 6.0 + text_width(name, TEXT) + 18.0;
        if x > 4.0 && x + entry - 18.0 > svg.width - 4.0 {
            (x, y) = (4.0, y + LEGEND_ROW);
        }
        let middle = y + LEGEND_ROW / 2.0;
        let (from, to) = ((x, middle), (x + SAMPLE, middle));
        let center = (x + SAMPLE / 2.0, middle);
        match *key {
            Key::Line { slot, marker: marked, dense } => {
                svg.line(&line_class(slot, dense), from, to);
                if marked {
                    draw_marker(svg, slot, center);
                }
            }
            Key::Points { slot } => draw_marker(svg, slot, center),
            Key::Bar { slot, hollow } => {
                svg.rect(&bar_class(slot, hollow), (x + 6.0, middle - 6.0), (SAMPLE - 12.0, 12.0))
            }
            Key::Reference { index } => svg.line(&reference_class(index), from, to),
        }
        svg.text("title", (x + SAMPLE + 6.0, middle + 4.5), Anchor::Start, name);
        x += entry;
    }
    if entries.is_empty() { 0.0 } else { y + LEGEND_ROW + 2.0 }
}

fn draw_marker(svg: &mut Svg, slot: usize, at: (f64, f64)) {
    let mut path = Path::default();
    marker(&mut path, slot, at);
    svg.path(&format!("mark {}", series_class(slot)), &path);
}

pub(super) fn line_class(slot: usize, dense: bool) -> String {
    let dense = if dense { " dense" } else { "" };
    format!("line {}{dense}", series_class(slot))
}

pub(super) fn bar_class(slot: usize, hollow: bool) -> String {
    let kind = if hollow { "hollow" } else { "bar" };
    format!("{kind} {}", series_class(slot))
}

pub(super) fn reference_class(index: usize) -> String {
    format!("ref r{}", index % 3)
}

/// Draws names below even slots, on several lines or slanted where they are long,
/// and returns how high they are.
fn draw_names(svg: &mut Svg, names: &[String], left: f64, bottom: f64, width: f64) -> f64 {
    let slot = width / names.len().max(1) as f64;
    let middle = |i: usize| left + (i as f64 + 0.5) * slot;
    if are_slanted(names, slot) {
        for (i, name) in names.iter().enumerate() {
            svg.slanted_text("tick", (middle(i) + 4.0, bottom + 14.0), name);
        }
        // The sine of 35 degrees.
        return 16.0 + 0.574 * widest(names.iter().map(String::as_str));
    }
    let mut rows = 1;
    for (i, name) in names.iter().enumerate() {
        let lines = wrap(name, slot - 4.0);
        rows = rows.max(lines.len());
        for (row, line) in lines.iter().enumerate() {
            let y = bottom + 17.0 + row as f64 * LINE_HEIGHT;
            svg.text("tick", (middle(i), y), Anchor::Middle, line);
        }
    }
    20.0 + (rows - 1) as f64 * LINE_HEIGHT
}

/// Whether a word of the names is wider than its slot, so that breaking lines is no help.
fn are_slanted(names: &[String], slot: f64) -> bool {
    widest(names.iter().flat_map(|name| name.split_whitespace())) > slot - 4.0
}

/// How far the first slanted names reach to the left of a plot `width` wide.
fn room_for_slanted(names: &[String], width: f64) -> f64 {
    let slot = width / names.len().max(1) as f64;
    if !are_slanted(names, slot) {
        return 0.0;
    }
    // The cosine of 35 degrees is 0.82; the rest is for wide fonts and high letters.
    let reach = |(i, name): (usize, &String)| {
        let middle = (i as f64 + 0.5) * slot;
        0.9 * text_width(name, TICK_TEXT) + 8.0 - middle
    };
    names.iter().enumerate().map(reach).fold(0.0, f64::max)
}

/// Breaks `text` between words into lines of at most `width`, if words allow.
fn wrap(text: &str, width: f64) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if text_width(&format!("{line} {word}"), TICK_TEXT) <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

fn widest<'a>(texts: impl Iterator<Item = &'a str>) -> f64 {
    texts.map(|text| text_width(text, TICK_TEXT)).fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_break_between_words() {
        assert_eq!(wrap("slow start only", 40.0), ["slow", "start", "only"]);
        assert_eq!(wrap("slow start only", 400.0), ["slow start only"]);
    }

    #[test]
    fn a_legend_that_is_too_wide_takes_another_row() {
        let entry = |name: &str| (Key::Points { slot: 0 }, name.to_owned());
        let mut svg = Svg::new(crate::svg::WIDTH);
        let one = draw_legend(&mut svg, &[entry("AIMD"), entry("Q-Learning")]);
        let long = "a controller with a rather long and winding name";
        let two = draw_legend(&mut svg, &[entry(long), entry(long)]);
        assert_eq!(two - one, LEGEND_ROW);
        assert_eq!(draw_legend(&mut svg, &[]), 0.0);
    }
}
