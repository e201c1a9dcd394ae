//! What a test picture may be configured with: its size, how many a second, and how many bits.

use std::fmt;
use std::str::FromStr;

use super::h264;

/// What a test picture is like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PatternConfig {
    /// In pixels; even.
    pub width: usize,
    /// In pixels; even.
    pub height: usize,
    /// Pictures a second.
    pub frames_per_s: u32,
    /// Pictures from one that needs no other to the next; a second of them at most.
    pub keyframe_interval: u32,
    /// Of the whole transport stream.
    pub bits_per_s: u64,
}

impl Default for PatternConfig {
    fn default() -> PatternConfig {
        PatternConfig { width: 320, height: 192, frames_per_s: 25, keyframe_interval: 25, bits_per_s: 1_000_000 }
    }
}

/// A test picture that is not made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadPattern {
    /// The size.
    #[error("{0}x{1}: sizes of test pictures are even numbers of pixels from 320x192 to 1920x1080, as 640x360")]
    Size(usize, usize),
    /// Pictures a second.
    #[error("{0} frames a second: test pictures have 10 to 60")]
    FramesPerSecond(u32),
    /// Keyframes.
    #[error("a keyframe every {0} frames: it must be 1 to {1}, which is a second")]
    KeyframeInterval(u32, u32),
    /// The rate is too low for what is in the picture.
    #[error("{0} bit/s are too little: pictures of that size need {1} bit/s")]
    TooSlow(u64, u64),
    /// The rate is too high.
    #[error("{0} bit/s are too much: test pictures have {MOST_BITS_PER_S} at most")]
    TooFast(u64),
    /// No number, or no unit.
    #[error("{0}: no rate of the form NUMBER UNIT, as 2Mbit/s, 800kbit/s or 2M")]
    Rate(String),
    /// Not of the form.
    #[error("{option}: no number; {form} was expected")]
    Number {
        /// What was given.
        option: String,
        /// How it is to be.
        form: &'static str,
    },
    /// No such option.
    #[error(
        "{0}: no option of a test picture: bitrate=2M, fps=25, size=640x360 and keyframes=25 (frames from one to the \
         next) are, with commas between them"
    )]
    Option(String),
}

/// The most that a level of H.264 here allows, about.
const MOST_BITS_PER_S: u64 = 50_000_000;

impl PatternConfig {
    /// The level of H.264 that it needs, if it can be made.
    pub(super) fn level(&self) -> Result<u8, BadPattern> {
        let &PatternConfig { width, height, frames_per_s, keyframe_interval, bits_per_s } = self;
        // Each square of the counter is two macroblocks wide and high at least.
        let is_size = (320..=1920).contains(&width) && (192..=1080).contains(&height);
        if !is_size || width % 2 + height % 2 > 0 {
            return Err(BadPattern::Size(width, height));
        }
        // The clock comes with each picture, and must come ten times a second (ISO/IEC 13818-1, 2.7.2).
        if !(10..=60).contains(&frames_per_s) {
            return Err(BadPattern::FramesPerSecond(frames_per_s));
        }
        if !(1..=frames_per_s).contains(&keyframe_interval) {
            return Err(BadPattern::KeyframeInterval(keyframe_interval, frames_per_s));
        }
        if bits_per_s > MOST_BITS_PER_S {
            return Err(BadPattern::TooFast(bits_per_s));
        }
        Ok(h264::level(width, height, frames_per_s, bits_per_s).expect("the last level allows all of this"))
    }
}

impl fmt::Display for PatternConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PatternConfig { width, height, frames_per_s, bits_per_s, .. } = self;
        write!(f, "{width}x{height}, {frames_per_s} frames/s, {} Mbit/s", *bits_per_s as f64 / 1e6)
    }
}

/// `2Mbit/s`, or `bitrate=2M,fps=25,size=640x360,keyframes=25`, each as wanted; nothing is the default.
impl FromStr for PatternConfig {
    type Err = BadPattern;

    fn from_str(text: &str) -> Result<PatternConfig, BadPattern> {
        let mut config = PatternConfig::default();
        let mut keyframe_interval = None;
        for option in text.split(',').filter(|_| !text.is_empty()) {
            let bad = |form| BadPattern::Number { option: option.to_owned(), form };
            match option.split_once('=') {
                None if option.starts_with(|first: char| first.is_ascii_digit()) => config.bits_per_s = rate(option)?,
                Some(("bitrate", value)) => config.bits_per_s = rate(value)?,
                Some(("fps", value)) => config.frames_per_s = value.parse().map_err(|_| bad("fps=25"))?,
                Some(("keyframes", value)) => {
                    keyframe_interval = Some(value.parse().map_err(|_| bad("keyframes=25"))?);
                }
                Some(("size", value)) => {
                    let parsed = value.split_once('x').map(|(width, height)| (width.parse(), height.parse()));
                    let Some((Ok(width), Ok(height))) = parsed else { return Err(bad("size=640x360")) };
                    (config.width, config.height) = (width, height);
                }
                _ => return Err(BadPattern::Option(option.to_owned())),
            }
        }
        config.keyframe_interval = keyframe_interval.unwrap_or(config.frames_per_s);
        // Whatever it is, it can be made.
        super::Pattern::new(config).map(|_| config)
    }
}

/// `2Mbit/s`, `2.5 Mbit/s`, `800k`, `1000000`.
fn rate(text: &str) -> Result<u64, BadPattern> {
    let bad = || BadPattern::Rate(text.to_owned());
    let end = text.find(|letter: char| !letter.is_ascii_digit() && letter != '.').unwrap_or(text.len());
    let number: f64 = text[..end].parse().map_err(|_| bad())?;
    let unit = match text[end..].trim_start() {
        "" | "bit/s" => 1.0,
        "k" | "kbit/s" => 1e3,
        "M" | "Mbit/s" => 1e6,
        "G" | "Gbit/s" => 1e9,
        _ => return Err(bad()),
    };
    // What is too much for the type is the most of it, and refused as too much.
    Ok((number * unit).round() as u64)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse(text: &str) -> Result<PatternConfig, BadPattern> {
        text.parse()
    }

    #[test]
    fn options_are_what_users_call_them() {
        let default = PatternConfig::default();
        assert_eq!(parse(""), Ok(default));
        for rate in ["2Mbit/s", "2M", "2000k", "bitrate=2M", "bitrate=2 Mbit/s", "2000000", "2000.0kbit/s"] {
            assert_eq!(parse(rate), Ok(PatternConfig { bits_per_s: 2_000_000, ..default }), "{rate}");
        }
        let all =
            PatternConfig { width: 1280, height: 720, frames_per_s: 50, keyframe_interval: 10, bits_per_s: 8_000_000 };
        assert_eq!(parse("keyframes=10,8M,size=1280x720,fps=50"), Ok(all));
        assert!(parse("size=1920x1080,fps=60,bitrate=50M").is_ok(), "the most of everything");
        assert_eq!(parse("fps=30").unwrap().keyframe_interval, 30, "a second of them");
    }

    #[test]
    fn what_cannot_be_made_is_answered_with_what_can() {
        for (text, expected) in [
            ("size=100x100", "320x192"),
            ("size=641x480", "even"),
            ("size=640", "size=640x360"),
            ("size=4000x2000", "1920x1080"),
            ("fps=5", "10 to 60"),
            ("fps=much", "fps=25"),
            ("fps=99999999999", "fps=25"),
            ("fps=25,keyframes=50", "1 to 25"),
            ("keyframes=0", "1 to 25"),
            ("10k", "need"),
            ("900G", "too much"),
            ("1.2.3M", "as 2Mbit/s"),
            ("2 Mbyte", "as 2Mbit/s"),
            ("rate=3M", "bitrate=2M"),
            (",", "fps=25"),
        ] {
            let words = parse(text).unwrap_err().to_string();
            assert!(words.contains(expected), "{text}: {words}");
        }
    }

    #[test]
    fn the_least_rate_that_is_named_is_enough() {
        for size in ["320x192", "642x358", "1920x1080"] {
            let BadPattern::TooSlow(_, least) = parse(&format!("size={size},bitrate=1")).unwrap_err() else { panic!() };
            assert!(parse(&format!("size={size},bitrate={least}")).is_ok());
            assert!(parse(&format!("size={size},bitrate={}", least - 1)).is_err());
        }
    }

    proptest! {
        #[test]
        fn any_words_are_options_or_refused_with_a_reason(text in "[a-z0-9=,.xM/ ]{0,30}") {
            let _ = parse(&text);
        }
    }
}
