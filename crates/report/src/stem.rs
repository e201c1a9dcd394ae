//! Stems from zero, with a band: autocorrelation.

use super::axis::{Axis, Ends};
use super::frame::{Horizontal, VERTICAL_TICKS, frame, horizontal_ticks, no_data};
use super::palette::{marker, series_class};
use super::svg::{Path, Svg};

/// A stem from zero for every value, and a band around zero.
#[derive(Debug, Clone, PartialEq)]
pub struct StemChart {
    x: Axis,
    y: Axis,
    points: Vec<(f64, f64)>,
    band: Option<f64>,
}

impl StemChart {
    /// Stems at pairs of `x` and `y`; the vertical axis includes zero.
    pub fn new(x: Axis, y: Axis, points: Vec<(f64, f64)>) -> Self {
        Self { x, y: y.from_zero(), points, band: None }
    }

    /// Draws lines at plus and minus `half_width`, in the unit of `y`.
    pub fn band(mut self, half_width: f64) -> Self {
        self.band = Some(half_width);
        self
    }

    pub(super) fn draw(&self, svg: &mut Svg) -> f64 {
        let shown = |point: &&(f64, f64)| self.x.shows(point.0) && self.y.shows(point.1);
        let points: Vec<(f64, f64)> = self.points.iter().filter(shown).copied().collect();
        let xs = || points.iter().map(|point| point.0);
        let rough = self.x.fit(xs(), 6, Ends::Apart);
        let x = self.x.fit(xs(), horizontal_ticks(&rough, svg.width), Ends::Apart);
        let band = self.band.into_iter().flat_map(|half| [-half, half]);
        let ys = points.iter().map(|point| point.1).chain(band.clone());
        let y = self.y.fit(ys, VERTICAL_TICKS, Ends::OnTick);
        let plot = frame(svg, &Horizontal::Numbers(&x), &y, &[], 0.0);
        if points.is_empty() {
            no_data(svg, &plot);
        }
        let class = series_class(0);
        let level = |value: f64| (1.0 - y.place(value)) * plot.height;
        svg.clipped(plot.corner(), plot.size(), |svg| {
            for edge in band {
                svg.line("ref band", (0.0, level(edge)), (plot.width, level(edge)));
            }
            let zero = level(y.base());
            svg.line("axis", (0.0, zero), (plot.width, zero));
            let (mut stems, mut heads) = (Path::default(), Path::default());
            for point in &points {
                let at = (x.place(point.0) * plot.width, level(point.1));
                stems.move_to((at.0, zero));
                stems.line_to(at);
                marker(&mut heads, 0, at);
            }
            svg.path(&format!("line {class}"), &stems);
            svg.path(&format!("mark {class}"), &heads);
        });
        plot.total_height
    }
}
