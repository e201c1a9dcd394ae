//! What is to be seen: a counter in squares, colour bars, and a bar that moves.
//!
//! A picture is made of macroblocks (16 by 16 pixels) of one colour each, so that it can be coded without loss
//! in a few bits.

use super::counter::{BLACK_LUMA, COLUMNS, Counter, ROWS, WHITE_LUMA};

/// Pixels of a macroblock's side.
pub const MACROBLOCK: usize = 16;

/// Luma, and blue and red chroma, as BT.601 gives them.
pub type Colour = [u8; 3];

/// Neither blue nor red.
const NO_CHROMA: u8 = 128;

const BLACK: Colour = [BLACK_LUMA, NO_CHROMA, NO_CHROMA];
const WHITE: Colour = [WHITE_LUMA, NO_CHROMA, NO_CHROMA];

/// What the bar moves on.
const GROUND: Colour = [49, NO_CHROMA, NO_CHROMA];
const BAR: Colour = [210, 16, 146];

/// White, yellow, cyan, green, magenta, red, blue and black at three quarters.
const COLOUR_BARS: [Colour; 8] = [
    [180, 128, 128],
    [162, 44, 142],
    [131, 156, 44],
    [112, 72, 58],
    [84, 184, 198],
    [65, 100, 212],
    [35, 212, 114],
    BLACK,
];

/// The bar is as wide as a square of the counter.
const BAR_SHARE: usize = COLUMNS;

/// A picture of macroblocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Picture {
    /// Macroblocks in a row.
    pub columns: usize,
    /// Row by row, from the left.
    pub colours: Vec<Colour>,
}

impl Picture {
    /// The test picture: `place` is where the bar is, and each step moves it by a macroblock.
    pub fn paint(width: usize, height: usize, counter: Counter, place: u64) -> Picture {
        Picture::paint_squares(width, height, &counter.squares(), place)
    }

    /// White squares where `is_white`.
    pub fn paint_squares(width: usize, height: usize, is_white: &[bool], place: u64) -> Picture {
        let (columns, rows) = (width.div_ceil(MACROBLOCK), height.div_ceil(MACROBLOCK));
        // Squares begin at the macroblock that is nearest to where they would begin in pixels.
        let nearest = |pixels: usize, part: usize, parts: usize| (part * pixels + parts * 8) / (parts * MACROBLOCK);
        let square_of = |place: usize, pixels: usize, parts: usize| {
            (1..parts).take_while(|&part| nearest(pixels, part, parts) <= place).count()
        };
        let square_columns: Vec<usize> = (0..columns).map(|column| square_of(column, width, COLUMNS)).collect();
        let bars = nearest(height, ROWS - 1, ROWS);
        let moving = (bars + rows).div_ceil(2);
        let bar = (place % columns as u64) as usize;
        let colour = |row: usize, square_row: usize, column: usize| {
            if row < bars {
                if is_white[square_row * COLUMNS + square_columns[column]] { WHITE } else { BLACK }
            } else if row < moving {
                COLOUR_BARS[column * COLOUR_BARS.len() / columns]
            } else if (column + columns - bar) % columns < columns / BAR_SHARE {
                BAR
            } else {
                GROUND
            }
        };
        let colours = (0..rows).flat_map(|row| {
            let square_row = square_of(row, height, ROWS);
            (0..columns).map(move |column| (row, square_row, column))
        });
        Picture { columns, colours: colours.map(|(row, square_row, column)| colour(row, square_row, column)).collect() }
    }
}
