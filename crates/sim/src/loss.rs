//! Losses that have nothing to do with congestion.

use anabranch_control::rng::Rng;
use anabranch_control::time::Time;

use crate::varying::{Course, Varying};

/// How a link loses packets.
#[derive(Clone, Debug, PartialEq)]
pub enum LossModel {
    /// It does not.
    None,
    /// Each packet with this probability.
    Random(Course<f64>),
    /// In bursts: a link changes between a good and a bad state at each packet and loses
    /// packets in each with another probability (Gilbert 1960, Elliott 1963).
    GilbertElliott(GilbertElliott),
}

/// Probabilities of the Gilbert-Elliott model, each for a packet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GilbertElliott {
    /// That the good state ends.
    pub to_bad: f64,
    /// That the bad state ends.
    pub to_good: f64,
    /// That a packet is lost in the good state.
    pub loss_good: f64,
    /// That a packet is lost in the bad state.
    pub loss_bad: f64,
}

impl GilbertElliott {
    /// The share of packets that is lost in the long run.
    pub fn mean_loss(&self) -> f64 {
        let bad = self.to_bad / (self.to_bad + self.to_good);
        bad * self.loss_bad + (1.0 - bad) * self.loss_good
    }
}

/// One link's losses.
#[derive(Clone, Debug)]
pub struct Loss {
    state: State,
    rng: Rng,
}

#[derive(Clone, Debug)]
enum State {
    None,
    Random(Varying<f64>),
    GilbertElliott { model: GilbertElliott, bad: bool },
}

impl Loss {
    /// Losses by `model`, drawn from `rng`; values that change at random draw from `law`.
    pub fn new(model: &LossModel, rng: Rng, law: Rng) -> Loss {
        let state = match model {
            LossModel::None => State::None,
            LossModel::Random(course) => State::Random(Varying::new(course, law)),
            LossModel::GilbertElliott(model) => State::GilbertElliott { model: *model, bad: false },
        };
        Loss { state, rng }
    }

    /// Whether the packet that has passed at `now` is lost.
    #[inline]
    pub fn loses(&mut self, now: Time) -> bool {
        match &mut self.state {
            State::None => false,
            State::Random(probability) => {
                let probability = probability.at(now);
                probability > 0.0 && self.rng.chance(probability)
            }
            State::GilbertElliott { model, bad } => {
                let lost = self.rng.chance(if *bad { model.loss_bad } else { model.loss_good });
                if self.rng.chance(if *bad { model.to_good } else { model.to_bad }) {
                    *bad = !*bad;
                }
                lost
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACKETS: u32 = 400_000;

    /// The share of lost packets, and the mean length of a row of them.
    fn observed(model: &LossModel) -> (f64, f64) {
        let mut loss = Loss::new(model, Rng::stream(1, "loss"), Rng::stream(1, "law"));
        let lost: Vec<bool> = (0..PACKETS).map(|_| loss.loses(Time::ZERO)).collect();
        let count = lost.iter().filter(|&&lost| lost).count() as f64;
        let rows = lost.windows(2).filter(|pair| pair[0] && !pair[1]).count() as f64;
        (count / f64::from(PACKETS), count / rows.max(1.0))
    }

    #[test]
    fn random_losses_have_their_probability_and_no_memory() {
        let (share, row) = observed(&LossModel::Random(Course::constant(0.05)));
        assert!((share - 0.05).abs() < 0.002, "{share}");
        assert!((row - 1.0 / 0.95).abs() < 0.02, "{row}");
        assert_eq!(observed(&LossModel::None).0, 0.0);
    }

    #[test]
    fn bursts_have_the_models_share_and_length() {
        let model = GilbertElliott { to_bad: 0.01, to_good: 0.2, loss_good: 0.0, loss_bad: 1.0 };
        let (share, row) = observed(&LossModel::GilbertElliott(model));
        assert!((share - model.mean_loss()).abs() < 0.004, "{share} against {}", model.mean_loss());
        // A row ends with the bad state: 1 / to_good packets.
        assert!((row - 5.0).abs() < 0.2, "{row}");
    }
}
