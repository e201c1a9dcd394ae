//! Writes SVG elements: escaped text, short coordinates, classes for colours.

use std::fmt::Write;

/// Width of a chart in SVG units. The page scales a unit from 0.8 pixels on a
/// phone, where the text is just large enough, to 1.4 on a desk.
pub(super) const WIDTH: f64 = 430.0;
/// Width of a chart that has a desk's page to itself; a phone scrolls it.
pub(super) const WIDE: f64 = 780.0;
/// Size of the chart's text, in SVG units.
pub(super) const TEXT: f64 = 13.0;
/// Size of the numbers on the axes, in SVG units.
pub(super) const TICK_TEXT: f64 = 12.0;

/// Where a text starts from.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

/// Elements of a chart in the order of painting.
#[derive(Debug)]
pub(super) struct Svg {
    body: String,
    /// Of the whole drawing.
    pub(super) width: f64,
}

impl Svg {
    /// An empty drawing of that width.
    pub(super) fn new(width: f64) -> Self {
        Self { body: String::new(), width }
    }

    pub(super) fn line(&mut self, class: &str, from: (f64, f64), to: (f64, f64)) {
        let (x1, y1, x2, y2) = (coord(from.0), coord(from.1), coord(to.0), coord(to.1));
        self.raw(&format!(r#"<line class="{class}" x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}"/>"#));
    }

    pub(super) fn rect(&mut self, class: &str, corner: (f64, f64), size: (f64, f64)) {
        self.rect_with(class, corner, size, "");
    }

    /// A rectangle with a fill of its own, as `#rrggbb`.
    pub(super) fn filled_rect(&mut self, fill: &str, corner: (f64, f64), size: (f64, f64)) {
        self.rect_with("cell", corner, size, &format!(r#" fill="{fill}""#));
    }

    fn rect_with(&mut self, class: &str, corner: (f64, f64), size: (f64, f64), more: &str) {
        let (x, y, w, h) = (coord(corner.0), coord(corner.1), coord(size.0), coord(size.1));
        self.raw(&format!(r#"<rect class="{class}" x="{x}" y="{y}" width="{w}" height="{h}"{more}/>"#));
    }

    /// A path; nothing when it has no points.
    pub(super) fn path(&mut self, class: &str, path: &Path) {
        if !path.data.is_empty() {
            self.raw(&format!(r#"<path class="{class}" d="{}"/>"#, path.data));
        }
    }

    pub(super) fn text(&mut self, class: &str, at: (f64, f64), anchor: Anchor, text: &str) {
        self.text_with(class, at, anchor, text, "");
    }

    /// Text that climbs to the right and ends at `at`.
    pub(super) fn slanted_text(&mut self, class: &str, at: (f64, f64), text: &str) {
        let turn = format!(r#" transform="rotate(-35 {} {})""#, coord(at.0), coord(at.1));
        self.text_with(class, at, Anchor::End, text, &turn);
    }

    fn text_with(&mut self, class: &str, at: (f64, f64), anchor: Anchor, text: &str, more: &str) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let (x, y, text) = (coord(at.0), coord(at.1), escape(text));
        self.raw(&format!(r#"<text class="{class}" x="{x}" y="{y}" text-anchor="{anchor}"{more}>{text}</text>"#));
    }

    /// What `fill` draws, in coordinates from `corner` on, cut off a little outside
    /// `size`: the marker of a point on the edge stays whole.
    pub(super) fn clipped(&mut self, corner: (f64, f64), size: (f64, f64), fill: impl FnOnce(&mut Svg)) {
        const ROOM: f64 = 6.0;
        let (x, y) = (coord(corner.0 - ROOM), coord(corner.1 - ROOM));
        let (w, h) = (coord(size.0 + 2.0 * ROOM), coord(size.1 + 2.0 * ROOM));
        // A nested viewport clips without an id, which two charts on a page could share.
        self.raw(&format!(r#"<svg x="{x}" y="{y}" width="{w}" height="{h}" viewBox="-6 -6 {w} {h}">"#));
        fill(self);
        self.raw("</svg>");
    }

    pub(super) fn raw(&mut self, element: &str) {
        self.body.push_str(element);
        self.body.push('\n');
    }

    /// The finished drawing, `height` units high. `title` says what it shows, for
    /// readers who do not see it; `style` is for a file of its own.
    pub(super) fn finish(self, title: &str, height: f64, style: Option<&str>) -> String {
        let style = style.map_or(String::new(), |css| {
            format!(
                "<style>{css}</style>\n<rect class=\"paper\" width=\"{}\" height=\"{}\"/>\n",
                coord(self.width),
                coord(height)
            )
        });
        format!(
            concat!(
                r#"<svg xmlns="http://www.w3.org/2000/svg" class="chart" "#,
                r#"viewBox="0 0 {w} {h}" width="{w}" height="{h}" role="img" aria-label="{title}">"#,
                "\n{style}{body}</svg>\n"
            ),
            w = coord(self.width),
            h = coord(height),
            title = escape(title),
            style = style,
            body = self.body
        )
    }
}

/// The `d` of a path.
#[derive(Debug, Default)]
pub(super) struct Path {
    data: String,
}

impl Path {
    pub(super) fn move_to(&mut self, (x, y): (f64, f64)) {
        self.push('M', x, y);
    }

    pub(super) fn line_to(&mut self, (x, y): (f64, f64)) {
        self.push('L', x, y);
    }

    pub(super) fn close(&mut self) {
        self.data.push('Z');
    }

    pub(super) fn circle(&mut self, (x, y): (f64, f64), radius: f64) {
        self.move_to((x - radius, y));
        let (r, d) = (coord(radius), coord(2.0 * radius));
        write!(self.data, "a{r} {r} 0 1 0 {d} 0a{r} {r} 0 1 0 -{d} 0Z").expect("a string takes all that is written");
    }

    fn push(&mut self, command: char, x: f64, y: f64) {
        write!(self.data, "{command}{} {}", coord(x), coord(y)).expect("a string takes all that is written");
    }
}

/// A coordinate in hundredths of a unit, without idle zeros.
fn coord(value: f64) -> String {
    let rounded = libm::round(value * 100.0) / 100.0;
    // The sum takes the sign off a negative zero.
    format!("{}", rounded + 0.0)
}

/// `text` for an element's content or a quoted attribute. Characters that XML
/// forbids even when escaped are replaced.
pub(super) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\t' | '\n' | '\r' => out.push(c),
            c if c.is_control() || c == '\u{fffe}' || c == '\u{ffff}' => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

/// About how wide `text` is in a common sans-serif font of `size`, rather too wide
/// than too narrow. There is no font here to ask: the reader's browser has it.
pub(super) fn text_width(text: &str, size: f64) -> f64 {
    let em: f64 = text
        .chars()
        .map(|c| match c {
            'i' | 'j' | 'l' | '.' | ',' | ':' | ';' | '\'' | '|' | '!' | '\u{202f}' => 0.3,
            ' ' | 'f' | 't' | 'r' | 'I' | '(' | ')' | '[' | ']' | '/' | '-' => 0.38,
            'm' | 'w' | 'M' | 'W' | '@' | '%' | '±' | '×' => 0.92,
            c if c.is_uppercase() => 0.72,
            c if c.is_ascii() => 0.6,
            '\u{2e80}'.. => 1.0,
            _ => 0.65,
        })
        .sum();
    em * size
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_cannot_leave_its_element() {
        assert_eq!(escape("a<b> & \"c\" 'd'\u{1}"), "a&lt;b&gt; &amp; &quot;c&quot; &#39;d&#39;\u{fffd}");
    }

    #[test]
    fn coordinates_are_short() {
        assert_eq!(coord(12.3456), "12.35");
        assert_eq!(coord(-0.001), "0");
        assert_eq!(coord(7.0), "7");
    }

    #[test]
    fn a_path_without_points_is_not_written() {
        let mut svg = Svg::new(WIDTH);
        svg.path("line", &Path::default());
        assert!(svg.body.is_empty());
    }
}
