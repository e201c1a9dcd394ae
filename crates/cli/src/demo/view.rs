//! The live view: a line for the whole, and one for each relay with its learned rate and
//! what it is compared with. Only on a terminal.

use anabranch_control::units::Rate;
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

use crate::network::Amount;

/// Lines on a terminal.
#[derive(Debug)]
pub struct View {
    all: MultiProgress,
    head: ProgressBar,
    progress: ProgressBar,
    relays: Vec<ProgressBar>,
    /// What a relay's line compares its rate with.
    scale: &'static str,
}

impl View {
    /// A progress bar to `length`, and a line for each name, whose bar ends at its rate;
    /// `scale` says what that rate is.
    pub fn new(length: u64, scale: &'static str, relays: impl IntoIterator<Item = (String, Rate)>) -> View {
        const VALID: &str = "the template is valid";
        let all = MultiProgress::new();
        let line = ProgressStyle::with_template("{msg}").expect(VALID);
        let progress = ProgressStyle::with_template("{bar:50.green/white} {percent:>3} %  {elapsed}").expect(VALID);
        let relay = ProgressStyle::with_template("{prefix} {bar:32.cyan/white} {msg}").expect(VALID);
        let head = all.add(ProgressBar::no_length().with_style(line));
        let progress = all.add(ProgressBar::new(length).with_style(progress));
        let relays = relays.into_iter().map(|(name, rate)| {
            let bar = ProgressBar::new(rate.bytes_per_sec() as u64).with_style(relay.clone());
            all.add(bar.with_prefix(name))
        });
        View { head, progress, relays: relays.collect(), all, scale }
    }

    /// Shows `message`, the progress, and what was learned of each relay.
    pub fn show(&self, message: String, position: u64, learned: &[Option<f64>]) {
        self.head.set_message(message);
        self.progress.set_position(position);
        for (bar, rate) in self.relays.iter().zip(learned) {
            let (scale, end) = (self.scale, Amount(bar.length().unwrap_or(0) as f64));
            match rate {
                Some(rate) => {
                    bar.set_position(*rate as u64);
                    bar.set_message(format!("learned {:>9}/s, {scale} {end}/s", Amount(*rate).to_string()));
                }
                None => bar.set_message(format!("{scale} {end}/s")),
            }
        }
    }

    /// Takes the lines away.
    pub fn clear(self) {
        // A terminal that is gone needs no clearing.
        let _ = self.all.clear();
    }
}
