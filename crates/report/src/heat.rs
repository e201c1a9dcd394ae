//! A grid of two parameters, coloured by a value.

use super::axis::{Axis, Ends};
use super::frame::PLOT_HEIGHT;
use super::number;
use super::palette::heat;
use super::svg::{Anchor, Svg, TICK_TEXT, text_width};

const TOP: f64 = 14.0;
/// Width of the colour scale with its numbers.
const SCALE: f64 = 80.0;

/// A value for every pair of two parameters.
#[derive(Debug, Clone, PartialEq)]
pub struct HeatMap {
    x: Axis,
    y: Axis,
    value: Axis,
    columns: Vec<f64>,
    rows: Vec<f64>,
    cells: Vec<Vec<Option<f64>>>,
}

impl HeatMap {
    /// `columns` are the values of parameter `x` from left to right, `rows` those of
    /// `y` from the bottom up, and `cells[row][column]` the measured `value`, `None`
    /// where there is none. Cells are of equal size whatever the parameters' distances.
    ///
    /// # Panics
    ///
    /// When `cells` has another shape than `rows` by `columns`.
    pub fn new(x: (Axis, Vec<f64>), y: (Axis, Vec<f64>), value: Axis, cells: Vec<Vec<Option<f64>>>) -> Self {
        let ((x, columns), (y, rows)) = (x, y);
        assert!(
            cells.len() == rows.len() && cells.iter().all(|row| row.len() == columns.len()),
            "the cells are not {} rows of {} columns",
            rows.len(),
            columns.len()
        );
        Self { x, y, value, columns, rows, cells }
    }

    pub(super) fn draw(&self, svg: &mut Svg) -> f64 {
        let row_names: Vec<String> = self.rows.iter().map(|v| number::compact(*v, 4)).collect();
        let column_names: Vec<String> = self.columns.iter().map(|v| number::compact(*v, 4)).collect();
        let widest = |names: &[String]| {
            let widths = names.iter().map(|name| text_width(name, TICK_TEXT));
            widths.fold(0.0, f64::max)
        };
        let left = 12.0 + widest(&row_names);
        let width = svg.width - left - SCALE;
        let cell_width = width / self.columns.len().max(1) as f64;
        let cell_height = (PLOT_HEIGHT / self.rows.len().max(1) as f64).min(40.0);
        let height = cell_height * self.rows.len() as f64;
        svg.text("title", (4.0, TOP), Anchor::Start, &self.y.title());
        let top = TOP + 10.0;
        let bottom = top + height;

        let values = self.cells.iter().flatten().flatten().copied();
        let scale = self.value.clone().short(5).fit(values.clone(), 4, Ends::Tight);
        // Numbers in some cells and not in others would look like a meaning.
        let numbered = cell_height >= 14.0
            && values
                .into_iter()
                .all(|value| text_width(&number::compact(value / scale.factor, 3), 11.0) < cell_width - 2.0);
        for (row, cells) in self.cells.iter().enumerate() {
            for (column, value) in cells.iter().enumerate() {
                let corner = (left + cell_width * column as f64, bottom - cell_height * (row + 1) as f64);
                // A hair of overlap keeps the background from shining through the seams.
                let size = (cell_width + 0.3, cell_height + 0.3);
                let middle = (corner.0 + cell_width / 2.0, corner.1 + cell_height / 2.0 + 4.0);
                let Some(value) = value.filter(|value| self.value.shows(*value)) else {
                    svg.rect("blank", corner, size);
                    svg.text("tick", middle, Anchor::Middle, number::NO_NUMBER);
                    continue;
                };
                let (color, dark_text) = heat(scale.place(value));
                svg.filled_rect(&color, corner, size);
                if numbered {
                    let text = number::compact(value / scale.factor, 3);
                    let class = if dark_text { "on-light" } else { "on-dark" };
                    svg.text(class, middle, Anchor::Middle, &text);
                }
            }
        }

        // Where names do not fit beside each other, only every second, third, ... is shown.
        let every = |size: f64, need: f64| libm::ceil(need / size).max(1.0) as usize;
        let step = every(cell_width, widest(&column_names) + 6.0);
        for (column, name) in column_names.iter().enumerate().step_by(step) {
            let x = left + cell_width * (column as f64 + 0.5);
            svg.text("tick", (x, bottom + 17.0), Anchor::Middle, name);
        }
        for (row, name) in row_names.iter().enumerate().step_by(every(cell_height, 15.0)) {
            let y = bottom - cell_height * (row as f64 + 0.5) + 4.0;
            svg.text("tick", (left - 6.0, y), Anchor::End, name);
        }
        let title = (left + width / 2.0, bottom + 35.0);
        svg.text("title", title, Anchor::Middle, &self.x.title());

        // The colour scale: as many strips as the eye can take for a gradient.
        let strips = 60;
        let (bar, strip) = (left + width + 14.0, height / f64::from(strips));
        for i in 0..strips {
            let share = (f64::from(i) + 0.5) / f64::from(strips);
            let corner = (bar, bottom - strip * f64::from(i + 1));
            svg.filled_rect(&heat(share).0, corner, (14.0, strip + 0.3));
        }
        for (value, label) in &scale.ticks {
            let y = bottom - scale.place(*value) * height;
            svg.line("axis", (bar + 14.0, y), (bar + 18.0, y));
            svg.text("tick", (bar + 21.0, y + 4.0), Anchor::Start, label);
        }
        svg.text("title", (svg.width - 4.0, TOP), Anchor::End, &scale.title);
        bottom + 42.0
    }
}
