//! Plays a viewer's page in a headless Chromium: how many pictures it showed, and a picture of the page. A frame is
//! counted when the browser says that it was presented (`requestVideoFrameCallback`).

use std::path::Path;

use serde_json::{Value, json};

use crate::browser::Browser;
use crate::failure::Failure;
use crate::interrupt::Interrupt;

/// Counts frames from now on.
const COUNT: &str = "(() => {
  const video = document.querySelector('video')
  if (video === null) return false
  window.shown = { frames: 0, firstAt: null, lastAt: null }
  const note = () => {
    window.shown.frames += 1
    window.shown.lastAt = performance.now()
    window.shown.firstAt ??= window.shown.lastAt
    video.requestVideoFrameCallback(note)
  }
  video.requestVideoFrameCallback(note)
  return true
})()";

/// What was counted.
const COUNTED: &str = "JSON.stringify(window.shown ?? null)";

/// What a browser has shown.
#[derive(Clone, Debug)]
pub struct Shown {
    /// Frames that were presented.
    pub frames: u64,
    /// From the page's beginning until the first.
    pub first_after_s: Option<f64>,
    /// From the first until the last.
    pub span_s: f64,
    /// A PNG of the page, in Base64.
    pub picture: Option<String>,
}

/// Plays `page` in the browser at `path`, and counts.
///
/// # Errors
///
/// When it does not run, or not as expected, or the user has had enough.
pub fn play(path: &Path, page: &str, interrupt: &Interrupt) -> Result<Browser, Failure> {
    let arguments = ["--mute-audio", "--autoplay-policy=no-user-gesture-required"].map(str::to_owned);
    let mut browser = Browser::open(path, page, &arguments, interrupt)?;
    browser.await_value(COUNT, |counts| *counts == json!(true), "its page shows no video")?;
    Ok(browser)
}

/// What it has shown until now.
///
/// # Errors
///
/// When it does not answer.
pub fn shown(browser: &mut Browser) -> Result<Shown, Failure> {
    let counted = browser.evaluate(COUNTED)?;
    let counted: Value = counted.as_str().and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
    let at = |key: &str| counted[key].as_f64().map(|millis| millis / 1000.0);
    Ok(Shown {
        frames: counted["frames"].as_u64().unwrap_or(0),
        first_after_s: at("firstAt"),
        span_s: at("lastAt").zip(at("firstAt")).map_or(0.0, |(last, first)| last - first),
        picture: browser.picture()?,
    })
}
