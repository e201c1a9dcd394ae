//! A chart of any kind, on its own or within a report.

use std::io::Write;
use std::path::Path;

use super::axis::Axis;
use super::bars::BarChart;
use super::forest::Forest;
use super::heat::HeatMap;
use super::palette::chart_css;
use super::stem::StemChart;
use super::svg::{Svg, WIDTH};
use super::xy::{Reference, Series, XyChart};
use crate::output::{OutputError, write_atomically};
use anabranch_stats::{Autocorrelation, Normality};

/// A chart of any kind.
#[derive(Debug, Clone, PartialEq)]
pub enum Chart {
    /// Lines and points over two numbers.
    Xy(XyChart),
    /// Bars in groups.
    Bars(BarChart),
    /// Stems from zero, with a band.
    Stem(StemChart),
    /// A grid of two parameters, coloured by a value.
    Heat(HeatMap),
    /// Trees over the same nodes.
    Forest(Forest),
}

impl Chart {
    /// The quantile-quantile plot of a check for normality. `label` and `unit` are
    /// those of the sample.
    pub fn quantile_quantile(check: &Normality, label: &str, unit: &str) -> Self {
        let points = check.points.iter().map(|p| (p.normal, p.sample)).collect();
        XyChart::new(Axis::new("quantile of the normal distribution", "standard deviations"), Axis::new(label, unit))
            .series(Series::points("sample", points))
            .reference(Reference::sloped("through both quartiles", check.line_intercept, check.line_slope))
            .into()
    }

    /// The plot of an autocorrelation function with its 95 % band. `lag_unit` says
    /// what one step is, such as `batches`.
    pub fn autocorrelation(acf: &Autocorrelation, lag_unit: &str) -> Self {
        let points = acf.coefficients.iter().enumerate();
        StemChart::new(
            Axis::new("lag", lag_unit).whole_numbers(),
            Axis::new("autocorrelation, 95 % band dashed", ""),
            points.map(|(lag, r)| (lag as f64, *r)).collect(),
        )
        .band(acf.band)
        .into()
    }

    /// The chart as an SVG file of its own, for light and dark. `title` is read out
    /// by screen readers and not shown. Equal charts give equal bytes.
    pub fn to_svg(&self, title: &str) -> String {
        self.render(title, WIDTH, Some(&chart_css()))
    }

    /// Writes [`to_svg`](Self::to_svg) to `path`.
    ///
    /// # Errors
    ///
    /// As [`write_atomically`].
    pub fn write_svg(&self, title: &str, path: &Path) -> Result<(), OutputError> {
        write_atomically(path, |writer| writer.write_all(self.to_svg(title).as_bytes()))
    }

    /// The chart without a style sheet, for a page that has it; `width` is [`WIDTH`] or
    /// [`WIDE`](super::svg::WIDE).
    pub(super) fn inline(&self, title: &str, width: f64) -> String {
        self.render(title, width, None)
    }

    fn render(&self, title: &str, width: f64, style: Option<&str>) -> String {
        let mut svg = Svg::new(width);
        let height = match self {
            Self::Xy(chart) => chart.draw(&mut svg),
            Self::Bars(chart) => chart.draw(&mut svg),
            Self::Stem(chart) => chart.draw(&mut svg),
            Self::Heat(chart) => chart.draw(&mut svg),
            Self::Forest(chart) => chart.draw(&mut svg),
        };
        svg.finish(title, height, style)
    }
}

impl From<XyChart> for Chart {
    fn from(chart: XyChart) -> Self {
        Self::Xy(chart)
    }
}

impl From<BarChart> for Chart {
    fn from(chart: BarChart) -> Self {
        Self::Bars(chart)
    }
}

impl From<StemChart> for Chart {
    fn from(chart: StemChart) -> Self {
        Self::Stem(chart)
    }
}

impl From<HeatMap> for Chart {
    fn from(chart: HeatMap) -> Self {
        Self::Heat(chart)
    }
}

impl From<Forest> for Chart {
    fn from(chart: Forest) -> Self {
        Self::Forest(chart)
    }
}
