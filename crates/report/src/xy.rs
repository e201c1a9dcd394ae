//! Lines and points over two numbers: time series, means with intervals over a
//! parameter, scatter.

use std::collections::BTreeSet;

use super::axis::{Axis, Ends, Scale};
use super::downsample::downsample;
use super::frame::{
    Horizontal, Key, Plot, VERTICAL_TICKS, frame, horizontal_ticks, line_class, no_data, reference_class,
};
use super::palette::{COLORS, marker, series_class};
use super::svg::{Path, Svg};
use anabranch_stats::{Ellipse, percentile};

/// More points than this in a series are drawn with a thin, undashed line: dashes
/// and thick strokes of a curve that goes up and down in every pixel only blur it.
const DENSE: usize = 400;

/// Corners of the polygon that is drawn for an ellipse.
const ELLIPSE_CORNERS: usize = 72;

/// A chart of `y` over `x`.
#[derive(Debug, Clone, PartialEq)]
pub struct XyChart {
    x: Axis,
    y: Axis,
    series: Vec<Series>,
    references: Vec<Reference>,
    /// What its axes span beside its own series, so that several charts have one scale.
    beside: Vec<(f64, f64, f64)>,
}

/// One named line or cloud of points.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    name: String,
    points: Vec<(f64, f64)>,
    half_widths: Vec<f64>,
    line: bool,
    markers: bool,
    slot: Option<usize>,
}

/// A line to compare with, in the legend by its name.
#[derive(Debug, Clone, PartialEq)]
pub struct Reference {
    pub(super) name: String,
    pub(super) line: ReferenceLine,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum ReferenceLine {
    Horizontal(f64),
    Vertical(f64),
    Sloped { intercept: f64, slope: f64 },
}

impl XyChart {
    /// A chart without series.
    pub fn new(x: Axis, y: Axis) -> Self {
        Self { x, y, series: Vec::new(), references: Vec::new(), beside: Vec::new() }
    }

    /// Adds a series on top of those before it.
    pub fn series(mut self, series: Series) -> Self {
        self.series.push(series);
        self
    }

    /// Adds a line to compare with.
    pub fn reference(mut self, reference: Reference) -> Self {
        self.references.push(reference);
        self
    }

    /// More series than these cannot be told apart: each colour comes twice.
    pub const MOST_SERIES: usize = 2 * COLORS;

    /// It, or where it has more series than [`Self::MOST_SERIES`], several charts with the same
    /// axes, about as many series in each and each in a colour of its own.
    pub fn small_multiples(mut self) -> Vec<XyChart> {
        if self.series.len() <= Self::MOST_SERIES {
            return vec![self];
        }
        let (low, high) = (f64::NEG_INFINITY, f64::INFINITY);
        let ends = self.visible().fold([high, low, high, low], |[left, right, bottom, top], (x, low, high)| {
            [left.min(x), right.max(x), bottom.min(low), top.max(high)]
        });
        let [left, right, bottom, top] = ends;
        let beside = if left <= right { vec![(left, bottom, top), (right, bottom, top)] } else { Vec::new() };
        let series = std::mem::take(&mut self.series);
        series
            .chunks(series.len().div_ceil(series.len().div_ceil(COLORS)))
            .map(|some| XyChart { series: some.to_vec(), beside: beside.clone(), ..self.clone() })
            .collect()
    }

    pub(super) fn draw(&self, svg: &mut Svg) -> f64 {
        let xs = || self.visible().map(|(x, ..)| x).chain(self.reference_xs());
        let ends = if self.series.iter().any(|series| series.markers) { Ends::Apart } else { Ends::Tight };
        let rough = self.x.fit(xs(), 6, ends);
        let x = self.x.fit(xs(), horizontal_ticks(&rough, svg.width), ends);
        let ys = self.visible().flat_map(|(_, low, high)| [low, high]);
        let y = self.y.fit(ys.chain(self.reference_ys()), VERTICAL_TICKS, Ends::OnTick);

        let plot = frame(svg, &Horizontal::Numbers(&x), &y, &self.legend(), 0.0);
        if self.visible().next().is_none() {
            no_data(svg, &plot);
        }
        svg.clipped(plot.corner(), plot.size(), |svg| {
            let place = |(a, b): (f64, f64)| (x.place(a) * plot.width, (1.0 - y.place(b)) * plot.height);
            for (index, series) in self.series.iter().enumerate() {
                self.draw_series(svg, series, series.slot.unwrap_or(index), &place);
            }
            // Last, since a dense series would hide them.
            draw_references(svg, &self.references, &plot, &x, &y);
        });
        plot.total_height
    }

    fn draw_series(&self, svg: &mut Svg, series: &Series, slot: usize, place: &dyn Fn((f64, f64)) -> (f64, f64)) {
        let class = series_class(slot);
        // A value without a place, such as a NaN, leaves a gap in the line.
        let shown = |point: &(f64, f64)| self.x.shows(point.0) && self.y.shows(point.1);
        if series.line {
            let mut path = Path::default();
            for stretch in series.points.split(|point| !shown(point)) {
                let places: Vec<(f64, f64)> = stretch.iter().map(|p| place(*p)).collect();
                let kept = downsample(&places);
                for (i, point) in kept.iter().enumerate() {
                    if i == 0 {
                        path.move_to(*point);
                    }
                    // Also for the first: a stretch of one point is then a dot.
                    if i > 0 || kept.len() == 1 {
                        path.line_to(*point);
                    }
                }
            }
            svg.path(&line_class(slot, series.is_dense()), &path);
        }
        let mut errors = Path::default();
        for (point, half_width) in series.points.iter().zip(&series.half_widths) {
            if shown(point) && half_width.is_finite() {
                let high = place((point.0, point.1 + half_width));
                // On a logarithmic axis the low end may have no place.
                let low = point.1 - half_width;
                let low = place((point.0, if self.y.shows(low) { low } else { point.1 }));
                error_bar(&mut errors, low, high);
            }
        }
        svg.path(&format!("error {class}"), &errors);
        if series.markers {
            let mut marks = Path::default();
            let mut taken = BTreeSet::new();
            for point in series.points.iter().filter(|point| shown(point)) {
                let (x, y) = place(*point);
                // Markers on the same half unit hide each other.
                if taken.insert((libm::round(x * 2.0) as i64, libm::round(y * 2.0) as i64)) {
                    marker(&mut marks, slot, (x, y));
                }
            }
            svg.path(&format!("mark {class}"), &marks);
        }
    }

    fn legend(&self) -> Vec<(Key, String)> {
        let series = self.series.iter().enumerate().map(|(index, series)| {
            let slot = series.slot.unwrap_or(index);
            let key = if series.line {
                Key::Line { slot, marker: series.markers, dense: series.is_dense() }
            } else {
                Key::Points { slot }
            };
            (key, series.name.clone())
        });
        series.chain(reference_legend(&self.references)).collect()
    }

    /// Every point that has a place: `x`, and the ends of its error bar.
    fn visible(&self) -> impl Iterator<Item = (f64, f64, f64)> + '_ {
        let own = self.series.iter().flat_map(move |series| {
            let half_widths = series.half_widths.iter().copied().chain(std::iter::repeat(0.0));
            let points = series.points.iter().zip(half_widths);
            points.filter(|((x, y), _)| self.x.shows(*x) && self.y.shows(*y)).map(|((x, y), half)| {
                let half = if half.is_finite() { half } else { 0.0 };
                (*x, y - half, y + half)
            })
        });
        own.chain(self.beside.iter().copied())
    }

    fn reference_xs(&self) -> impl Iterator<Item = f64> + '_ {
        self.references.iter().filter_map(|r| match r.line {
            ReferenceLine::Vertical(x) => Some(x),
            _ => None,
        })
    }

    fn reference_ys(&self) -> impl Iterator<Item = f64> + '_ {
        self.references.iter().filter_map(|r| match r.line {
            ReferenceLine::Horizontal(y) => Some(y),
            _ => None,
        })
    }
}

impl Series {
    /// A line through `points`, pairs of `x` and `y`. A value that is not finite
    /// leaves a gap. However many points there are, only those that can be told
    /// apart are written; lowest and highest always are.
    pub fn line(name: impl Into<String>, points: Vec<(f64, f64)>) -> Self {
        Self { name: name.into(), points, half_widths: Vec::new(), line: true, markers: false, slot: None }
    }

    /// Points without a line.
    pub fn points(name: impl Into<String>, points: Vec<(f64, f64)>) -> Self {
        Self { line: false, markers: true, ..Self::line(name, points) }
    }

    /// Two numbers of many runs: the contour at one standard deviation of the Gaussian that
    /// fits `points`, and a dot at their medians. Nothing where a point is not finite.
    pub fn ellipse(name: impl Into<String>, points: &[(f64, f64)]) -> Self {
        let median = |values: Vec<f64>| percentile(&values, 0.5).unwrap_or(f64::NAN);
        let center = (median(points.iter().map(|p| p.0).collect()), median(points.iter().map(|p| p.1).collect()));
        let mut drawn = Ellipse::of(points).map_or(Vec::new(), |ellipse| ellipse.contour(ELLIPSE_CORNERS));
        // A gap, so that the dot is a stretch of its own.
        drawn.extend([(f64::NAN, f64::NAN), center]);
        Self::line(name, drawn)
    }

    /// A line with a marker at every point and its interval: triples of `x`, `y` and
    /// the half width of the interval in the unit of `y`, NaN for none.
    pub fn intervals(name: impl Into<String>, points: Vec<(f64, f64, f64)>) -> Self {
        Self {
            half_widths: points.iter().map(|(_, _, half)| *half).collect(),
            markers: true,
            ..Self::line(name, points.iter().map(|(x, y, _)| (*x, *y)).collect())
        }
    }

    /// Adds a marker at every point.
    pub fn markers(mut self) -> Self {
        self.markers = true;
        self
    }

    /// Takes colour, dash and marker number `slot` instead of the series' own place,
    /// so that a controller looks the same in every chart.
    pub fn slot(mut self, slot: usize) -> Self {
        self.slot = Some(slot);
        self
    }

    fn is_dense(&self) -> bool {
        self.points.len() > DENSE
    }
}

impl Reference {
    /// A line at one `y`, for example what the paper measured.
    pub fn horizontal(name: impl Into<String>, y: f64) -> Self {
        Self { name: name.into(), line: ReferenceLine::Horizontal(y) }
    }

    /// A line at one `x`, for example when the scenario changes.
    pub fn vertical(name: impl Into<String>, x: f64) -> Self {
        Self { name: name.into(), line: ReferenceLine::Vertical(x) }
    }

    /// The line `y = intercept + slope x`; straight only between linear axes.
    pub fn sloped(name: impl Into<String>, intercept: f64, slope: f64) -> Self {
        Self { name: name.into(), line: ReferenceLine::Sloped { intercept, slope } }
    }
}

pub(super) fn reference_legend(references: &[Reference]) -> impl Iterator<Item = (Key, String)> + '_ {
    let entries = references.iter().enumerate();
    entries.map(|(index, reference)| (Key::Reference { index }, reference.name.clone()))
}

fn draw_references(svg: &mut Svg, references: &[Reference], plot: &Plot, x: &Scale, y: &Scale) {
    for (index, reference) in references.iter().enumerate() {
        let across = |value: f64| x.place(value) * plot.width;
        let down = |value: f64| (1.0 - y.place(value)) * plot.height;
        let (from, to) = match reference.line {
            ReferenceLine::Horizontal(value) => ((0.0, down(value)), (plot.width, down(value))),
            ReferenceLine::Vertical(value) => ((across(value), 0.0), (across(value), plot.height)),
            ReferenceLine::Sloped { intercept, slope } => {
                let at = |value: f64| (across(value), down(intercept + slope * value));
                (at(x.low), at(x.high))
            }
        };
        let finite = [from.0, from.1, to.0, to.1].iter().all(|c| c.is_finite());
        if finite {
            svg.line(&reference_class(index), from, to);
        }
    }
}

/// A bar from `low` to `high` with a cap on each end.
pub(super) fn error_bar(path: &mut Path, low: (f64, f64), high: (f64, f64)) {
    const CAP: f64 = 3.5;
    path.move_to(low);
    path.line_to(high);
    for end in [low, high] {
        path.move_to((end.0 - CAP, end.1));
        path.line_to((end.0 + CAP, end.1));
    }
}
