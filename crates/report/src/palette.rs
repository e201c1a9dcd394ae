//! Colours, dashes and markers: series are told apart by all three, on paper, on
//! light and dark screens, and by readers who do not see every colour.

use std::fmt::Write;

use super::svg::Path;

/// How many series can be told apart by colour. More start over with other dashes.
pub(super) const COLORS: usize = 8;

/// Colours of one of the two appearances.
struct Theme {
    background: &'static str,
    text: &'static str,
    muted: &'static str,
    grid: &'static str,
    series: [&'static str; COLORS],
}

/// Eight colours that stand out from white and, simulated for every kind of colour vision
/// (Machado, Oliveira, Fernandes, "A Physiologically-based Model for Simulation of Color Vision
/// Deficiency", 2009), from one another: found by a search, and held by a test.
const LIGHT: Theme = Theme {
    background: "#ffffff",
    text: "#1b1f24",
    muted: "#57606a",
    grid: "#e3e6ea",
    series: ["#3501fe", "#b10000", "#b38a68", "#175a52", "#8d7eb7", "#6f049f", "#460000", "#0f0035"],
};

/// The same for the dark, with related hues in the same order where it has them.
const DARK: Theme = Theme {
    background: "#14171c",
    text: "#e6e8eb",
    muted: "#a0a8b2",
    grid: "#2d333b",
    series: ["#6ca9ff", "#ff4310", "#eaff00", "#00ff82", "#f8b0c0", "#7e3dff", "#bf0099", "#447754"],
};

/// Style sheet of a chart, for light and dark. Without CSS variables, which viewers
/// other than browsers do not know.
pub(super) fn chart_css() -> String {
    let mut css = LIGHT.rules();
    // Print is always light.
    write!(css, "@media screen and (prefers-color-scheme:dark){{{}}}", DARK.rules())
        .expect("a string takes all that is written");
    css.push_str(include_str!("chart.css"));
    css
}

impl Theme {
    fn rules(&self) -> String {
        let Self { background, text, muted, grid, series } = self;
        let mut css = format!(
            concat!(
                ".chart .paper{{fill:{background}}}",
                ".chart text{{fill:{text}}}",
                ".chart .tick{{fill:{muted}}}",
                ".chart .grid{{stroke:{grid}}}",
                ".chart .axis{{stroke:{muted}}}",
                ".chart .ref{{stroke:{text}}}",
                ".chart .mark{{stroke:{background}}}",
                ".chart .blank{{fill:{grid}}}",
                ".chart .value{{stroke:{background}}}",
            ),
            background = background,
            text = text,
            muted = muted,
            grid = grid
        );
        for (slot, color) in series.iter().enumerate() {
            write!(
                css,
                ".chart .s{slot}{{color:{color}}}.chart .line.s{slot},.chart .error.s{slot},\
                 .chart .hollow.s{slot}{{stroke:{color}}}\
                 .chart .mark.s{slot},.chart .bar.s{slot}{{fill:{color}}}"
            )
            .expect("a string takes all that is written");
        }
        css
    }
}

/// Class of the series in `slot`.
pub(super) fn series_class(slot: usize) -> String {
    // A colour that comes again has the next dashes.
    format!("s{} d{}", slot % COLORS, (slot + slot / COLORS) % DASHES)
}

/// How many markers there are: more than colours, so that a colour that comes again has another.
const MARKERS: usize = 10;

/// How many patterns of lines there are.
const DASHES: usize = 4;

/// Adds the marker of the series in `slot` to `path`.
pub(super) fn marker(path: &mut Path, slot: usize, (x, y): (f64, f64)) {
    // Sizes of about equal ink.
    let outline: &[(f64, f64)] = match slot % MARKERS {
        0 => return path.circle((x, y), 3.6),
        1 => &[(-3.2, -3.2), (3.2, -3.2), (3.2, 3.2), (-3.2, 3.2)],
        2 => &[(0.0, -4.4), (4.1, 2.9), (-4.1, 2.9)],
        3 => &[(0.0, -4.6), (4.6, 0.0), (0.0, 4.6), (-4.6, 0.0)],
        4 => &[(0.0, 4.4), (4.1, -2.9), (-4.1, -2.9)],
        5 => &[
            (-1.3, -4.2),
            (1.3, -4.2),
            (1.3, -1.3),
            (4.2, -1.3),
            (4.2, 1.3),
            (1.3, 1.3),
            (1.3, 4.2),
            (-1.3, 4.2),
            (-1.3, 1.3),
            (-4.2, 1.3),
            (-4.2, -1.3),
            (-1.3, -1.3),
        ],
        6 => &[(-2.2, -4.0), (2.2, -4.0), (4.4, 0.0), (2.2, 4.0), (-2.2, 4.0), (-4.4, 0.0)],
        7 => &[(-4.2, -3.4), (0.0, -1.2), (4.2, -3.4), (4.2, 3.4), (0.0, 1.2), (-4.2, 3.4)],
        8 => &[
            (-4.0, -2.2),
            (-2.2, -4.0),
            (0.0, -1.8),
            (2.2, -4.0),
            (4.0, -2.2),
            (1.8, 0.0),
            (4.0, 2.2),
            (2.2, 4.0),
            (0.0, 1.8),
            (-2.2, 4.0),
            (-4.0, 2.2),
            (-1.8, 0.0),
        ],
        _ => &[(0.0, -5.2), (1.4, -1.4), (5.2, 0.0), (1.4, 1.4), (0.0, 5.2), (-1.4, 1.4), (-5.2, 0.0), (-1.4, -1.4)],
    };
    for (i, (dx, dy)) in outline.iter().enumerate() {
        let point = (x + dx, y + dy);
        if i == 0 {
            path.move_to(point);
        } else {
            path.line_to(point);
        }
    }
    path.close();
}

/// The map "viridis" (van der Walt, Smith, 2015) in ten steps: brightness rises
/// evenly, for every kind of colour vision and in grey.
const VIRIDIS: [[f64; 3]; 10] = [
    [68.0, 1.0, 84.0],
    [72.0, 40.0, 120.0],
    [62.0, 73.0, 137.0],
    [49.0, 104.0, 142.0],
    [38.0, 130.0, 142.0],
    [31.0, 158.0, 137.0],
    [53.0, 183.0, 121.0],
    [110.0, 206.0, 88.0],
    [181.0, 222.0, 43.0],
    [253.0, 231.0, 37.0],
];

/// Colour at `share` (0 to 1) of the heat map's range as `#rrggbb`, and whether text
/// on it has to be dark.
pub(super) fn heat(share: f64) -> (String, bool) {
    let position = share.clamp(0.0, 1.0) * (VIRIDIS.len() - 1) as f64;
    let below = (position as usize).min(VIRIDIS.len() - 2);
    let part = position - below as f64;
    let mut rgb = [0u8; 3];
    for (channel, value) in rgb.iter_mut().enumerate() {
        let (a, b) = (VIRIDIS[below][channel], VIRIDIS[below + 1][channel]);
        *value = libm::round(a + (b - a) * part) as u8;
    }
    let [r, g, b] = rgb;
    let color = format!("#{r:02x}{g:02x}{b:02x}");
    let dark_text = contrast(&color, "#000000") > contrast(&color, "#ffffff");
    (color, dark_text)
}

/// Contrast of two colours by WCAG 2.2, from 1 (none) to 21.
fn contrast(a: &str, b: &str) -> f64 {
    let (a, b) = (luminance(a), luminance(b));
    (a.max(b) + 0.05) / (a.min(b) + 0.05)
}

/// Linear light of the channel whose digits begin at `i` in `#rrggbb`.
fn channel(color: &str, i: usize) -> f64 {
    let byte = u8::from_str_radix(&color[i..i + 2], 16).expect("colours are #rrggbb");
    let share = f64::from(byte) / 255.0;
    if share <= 0.04045 { share / 12.92 } else { libm::pow((share + 0.055) / 1.055, 2.4) }
}

fn luminance(color: &str) -> f64 {
    0.2126 * channel(color, 1) + 0.7152 * channel(color, 3) + 0.0722 * channel(color, 5)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_stand_out_from_their_background() {
        for theme in [LIGHT, DARK] {
            for color in theme.series {
                // WCAG 2.2, 1.4.11: 3 for graphics; 4.5 for text by 1.4.3.
                let got = contrast(color, theme.background);
                assert!(got >= 3.0, "{color} on {}: {got}", theme.background);
            }
            assert!(contrast(theme.text, theme.background) >= 4.5);
            assert!(contrast(theme.muted, theme.background) >= 4.5);
        }
    }

    /// What dichromats see of a linear colour (Machado et al. 2009, severity 1.0).
    const VISIONS: [[[f64; 3]; 3]; 4] = [
        [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]],
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
    ];

    /// CIE 1976 L*a*b* of linear sRGB under D65.
    fn lab(rgb: [f64; 3]) -> [f64; 3] {
        let [r, g, b] = rgb.map(|x| x.clamp(0.0, 1.0));
        let f = |t: f64| if t > 0.008856 { libm::cbrt(t) } else { 7.787 * t + 16.0 / 116.0 };
        let x = f((0.4124 * r + 0.3576 * g + 0.1805 * b) / 0.95047);
        let y = f(0.2126 * r + 0.7152 * g + 0.0722 * b);
        let z = f((0.0193 * r + 0.1192 * g + 0.9505 * b) / 1.08883);
        [116.0 * y - 16.0, 500.0 * (x - y), 200.0 * (y - z)]
    }

    #[test]
    fn eight_colours_can_be_distinguished_with_every_kind_of_colour_vision() {
        for theme in [LIGHT, DARK] {
            for vision in VISIONS {
                let seen = theme.series.map(|color| {
                    let linear = [1, 3, 5].map(|i| channel(color, i));
                    lab(vision.map(|row| row.iter().zip(linear).map(|(a, b)| a * b).sum::<f64>()))
                });
                for (i, one) in seen.iter().enumerate() {
                    for (j, other) in seen.iter().enumerate().skip(i + 1) {
                        let distance = libm::sqrt(one.iter().zip(other).map(|(a, b)| (a - b) * (a - b)).sum::<f64>());
                        // A difference of 2.3 is just seen; bars and dots are small, and apart.
                        assert!(distance > 25.0, "{} and {}: {distance}", theme.series[i], theme.series[j]);
                    }
                }
            }
        }
    }

    #[test]
    fn ten_series_have_ten_markers() {
        let markers = (0..MARKERS).map(|slot| {
            let mut path = Path::default();
            marker(&mut path, slot, (0.0, 0.0));
            format!("{path:?}")
        });
        assert_eq!(markers.collect::<std::collections::BTreeSet<_>>().len(), MARKERS);
    }

    #[test]
    fn contrast_knows_its_ends() {
        assert!((contrast("#000000", "#ffffff") - 21.0).abs() < 1e-9);
        assert_eq!(contrast("#123456", "#123456"), 1.0);
    }

    #[test]
    fn heat_text_can_be_read_everywhere() {
        for step in 0..=100 {
            let (color, dark_text) = heat(f64::from(step) / 100.0);
            let text = if dark_text { "#000000" } else { "#ffffff" };
            assert!(contrast(&color, text) >= 4.5, "{color}");
        }
        assert_eq!(heat(0.0).0, "#440154");
        assert_eq!(heat(1.0).0, "#fde725");
    }

    #[test]
    fn more_series_than_colours_differ_in_dashes() {
        let mut classes: Vec<String> = (0..COLORS * DASHES).map(series_class).collect();
        classes.sort();
        classes.dedup();
        assert_eq!(classes.len(), COLORS * DASHES);
    }
}
