//! Reports: one HTML file with everything in it, that opens without a network,
//! on light and dark screens, on a phone and on paper.
//!
//! ```
//! use anabranch_report::{Axis, Cell, Figure, Report, Series, Table, Verdict, XyChart};
//!
//! let chart = XyChart::new(Axis::new("time", "s"), Axis::new("throughput", "bytes/s"))
//!     .series(Series::line("Q-Learning", vec![(0.0, 0.0), (100.0, 90_400.0)]));
//! let report = Report::new("Saturated connections")
//!     .meta("seed", "1")
//!     .table(
//!         Table::new("Throughput", ["controller", "ours (bytes/s)", "verdict"])
//!             .row([Cell::text("Q-Learning"), Cell::number(90_400.0, 0), Cell::Verdict(Verdict::Agrees)]),
//!     )
//!     .figure(Figure::chart("Received data", chart));
//! assert!(report.to_html().contains("90\u{202f}400"));
//! ```
//!
//! Charts are our own SVG. The `plotters` crate was tried: it lays text out well
//! enough without fonts, but it writes colours as fixed numbers, so that a chart
//! cannot follow the reader's light or dark screen, rounds coordinates to whole
//! pixels, and has neither bars with intervals nor dashed markers. A browser
//! does the hard part, the text, once each text says at which end it is fixed.

use std::io::Write;
use std::path::Path;

use crate::output::{OutputError, Staged, stage};
use anabranch_stats::MeanEstimate;

pub use axis::Axis;
pub use bars::{BarChart, BarSeries};
pub use chart::Chart;
pub use forest::{Forest, Tree};
pub use heat::HeatMap;
pub use stem::StemChart;
pub use xy::{Reference, Series, XyChart};

pub mod output;

mod axis;
mod bars;
mod chart;
mod downsample;
mod forest;
mod frame;
mod heat;
mod html;
mod number;
mod palette;
mod stem;
mod svg;
#[cfg(test)]
mod tests;
mod xy;

/// A report in the order of reading.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    title: String,
    meta: Vec<(String, String)>,
    blocks: Vec<Block>,
}

#[derive(Debug, Clone, PartialEq)]
enum Block {
    Section(String),
    Paragraph(String),
    Listing { caption: String, text: String },
    Table(Table),
    Folded { summary: String, table: Table },
    Figures(Vec<Figure>),
}

/// A table with a caption.
#[derive(Debug, Clone, PartialEq)]
pub struct Table {
    caption: String,
    headers: Vec<String>,
    rows: Vec<Vec<Cell>>,
}

/// What a table shows in one place.
#[derive(Debug, Clone, PartialEq)]
pub enum Cell {
    /// Words.
    Text(String),
    /// A number; a dash when it is not finite.
    Number {
        /// In the unit of the column's header.
        value: f64,
        /// Digits after the point.
        digits: usize,
    },
    /// A mean with its confidence interval, as many digits as the interval allows.
    Interval {
        /// In the unit of the column's header.
        mean: f64,
        /// Half the interval's width, in the same unit.
        half_width: f64,
    },
    /// What batch means allow to say: the interval, or why there is none.
    Estimate(MeanEstimate),
    /// Whether a number is that of the paper.
    Verdict(Verdict),
}

/// Whether what we measured is what the paper says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It is.
    Agrees,
    /// It is not.
    Disagrees,
    /// What we measured is not certain enough to tell.
    Open,
    /// There is nothing to hold it against.
    NotJudged,
}

/// A chart or a quotation with a caption.
#[derive(Debug, Clone, PartialEq)]
pub struct Figure {
    caption: String,
    content: Content,
}

#[derive(Debug, Clone, PartialEq)]
enum Content {
    Chart(Box<Chart>),
    Quote {
        text: String,
        source: String,
    },
    /// A PNG, in Base64.
    Picture {
        words: String,
        png: String,
    },
}

impl Report {
    /// An empty report.
    pub fn new(title: impl Into<String>) -> Self {
        Self { title: title.into(), meta: Vec::new(), blocks: Vec::new() }
    }

    /// Adds a line to the head of the report: seed, controller, version, wall-clock.
    /// Nothing is added by itself, so that equal runs make equal reports.
    pub fn meta(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.meta.push((key.into(), value.into()));
        self
    }

    /// Starts a section.
    pub fn section(self, title: impl Into<String>) -> Self {
        self.block(Block::Section(title.into()))
    }

    /// Adds a paragraph of plain text.
    pub fn paragraph(self, text: impl Into<String>) -> Self {
        self.block(Block::Paragraph(text.into()))
    }

    /// Adds text that keeps its lines, such as a scenario.
    pub fn listing(self, caption: impl Into<String>, text: impl Into<String>) -> Self {
        self.block(Block::Listing { caption: caption.into(), text: text.into() })
    }

    /// Adds a table.
    pub fn table(self, table: Table) -> Self {
        self.block(Block::Table(table))
    }

    /// Adds a table that is folded away under `summary` until a reader asks for it.
    pub fn folded_table(self, summary: impl Into<String>, table: Table) -> Self {
        self.block(Block::Folded { summary: summary.into(), table })
    }

    /// Adds a figure.
    pub fn figure(self, figure: Figure) -> Self {
        self.figures_side_by_side(vec![figure])
    }

    /// Adds a chart; one with more series than can be told apart as several small ones with
    /// the same axes.
    pub fn small_multiples(self, caption: &str, chart: XyChart) -> Self {
        let charts = chart.small_multiples();
        let count = charts.len();
        let part = |i: usize| if count > 1 { format!("{caption} ({} of {count})", i + 1) } else { caption.to_owned() };
        self.figures_side_by_side(
            charts.into_iter().enumerate().map(|(i, chart)| Figure::chart(part(i), chart)).collect(),
        )
    }

    /// Adds figures beside each other where the screen is wide enough, such as the
    /// paper's and ours.
    pub fn figures_side_by_side(self, figures: Vec<Figure>) -> Self {
        self.block(Block::Figures(figures))
    }

    /// Adds all of `other` but its head, under a title of its own.
    pub fn append(self, title: impl Into<String>, other: Report) -> Self {
        let mut report = self.section(title);
        report.blocks.extend(other.blocks);
        report
    }

    /// The report as a page. Equal reports give equal bytes.
    pub fn to_html(&self) -> String {
        html::page(self)
    }

    /// Writes [`to_html`](Self::to_html) to `path`.
    ///
    /// # Errors
    ///
    /// As [`write_atomically`](crate::output::write_atomically).
    pub fn write(&self, path: &Path) -> Result<(), OutputError> {
        self.stage(path)?.commit()
    }

    /// [`write`](Self::write) up to the last step, as [`stage`] does.
    ///
    /// # Errors
    ///
    /// As [`stage`].
    pub fn stage(&self, path: &Path) -> Result<Staged, OutputError> {
        stage(path, |writer| writer.write_all(self.to_html().as_bytes()))
    }

    fn block(mut self, block: Block) -> Self {
        self.blocks.push(block);
        self
    }
}

impl Table {
    /// A table without rows; headers carry their units.
    pub fn new<H: Into<String>>(caption: impl Into<String>, headers: impl IntoIterator<Item = H>) -> Self {
        Self { caption: caption.into(), headers: headers.into_iter().map(Into::into).collect(), rows: Vec::new() }
    }

    /// Whether it has no rows.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Adds a row.
    ///
    /// # Panics
    ///
    /// When it has not one cell for every header.
    pub fn row(mut self, cells: impl IntoIterator<Item = Cell>) -> Self {
        let cells: Vec<Cell> = cells.into_iter().collect();
        assert_eq!(
            cells.len(),
            self.headers.len(),
            "a row of the table \"{}\" has not one cell for every header",
            self.caption
        );
        self.rows.push(cells);
        self
    }
}

impl Cell {
    /// Words.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text(text.into())
    }

    /// A number with `digits` after the point.
    pub fn number(value: f64, digits: usize) -> Self {
        Self::Number { value, digits }
    }

    /// A mean and half the width of its interval.
    pub fn interval(mean: f64, half_width: f64) -> Self {
        Self::Interval { mean, half_width }
    }
}

impl Figure {
    /// A chart.
    pub fn chart(caption: impl Into<String>, chart: impl Into<Chart>) -> Self {
        Self { caption: caption.into(), content: Content::Chart(Box::new(chart.into())) }
    }

    /// A picture of pixels, a PNG in Base64 (RFC 4648, 4), and what it shows in words.
    pub fn picture(caption: impl Into<String>, words: impl Into<String>, png: impl Into<String>) -> Self {
        Figure { caption: caption.into(), content: Content::Picture { words: words.into(), png: png.into() } }
    }

    /// What a source says where it gives no numbers to draw.
    pub fn quote(caption: impl Into<String>, text: impl Into<String>, source: impl Into<String>) -> Self {
        Self { caption: caption.into(), content: Content::Quote { text: text.into(), source: source.into() } }
    }
}
