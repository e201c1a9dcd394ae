//! How much the server adds to what viewers send: the QoS enabler of [Efthymiopoulos 2015, 2].
//!
//! ```text
//! H <- clip(H + K (sigma n b - S))
//! ```
//!
//! H is the helper's bandwidth, n b what n viewers take, S the surplus that monitoring has found. At rest the
//! surplus is a share sigma of the demand. Where the helper may not send more and the surplus is still less,
//! it advises the playback rate that there would be enough for. The paper prints no law; this one, K and
//! sigma are ours.

use anabranch_control::units::Rate;

use super::gossip::Mean;

/// How the law is set.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EnablerConfig {
    /// The least that the helper sends: what seeds the stream.
    pub least: Rate,
    /// The most.
    pub most: Rate,
    /// K: the part of what is missing that a step adds.
    pub gain: f64,
    /// σ: the surplus that is aimed at, as a share of the demand.
    pub margin: f64,
}

impl EnablerConfig {
    /// A helper between these two, with K = 0.5 and σ = 5 %.
    pub fn between(least: Rate, most: Rate) -> EnablerConfig {
        EnablerConfig { least, most, gain: 0.5, margin: 0.05 }
    }
}

/// What is done with what monitoring has found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Advice {
    /// What the helper sends from now on.
    pub helper: Rate,
    /// What the surplus was, in bytes a second.
    pub surplus: f64,
    /// The bits a second that viewers could get with what there is; none while the helper can give enough.
    pub playback: Option<Rate>,
}

/// The law, step by step.
#[derive(Clone, Debug)]
pub struct Enabler {
    config: EnablerConfig,
    helper: Rate,
    last: Option<Advice>,
}

impl Enabler {
    /// A helper that sends the most, until monitoring says what is needed: else newcomers would wait for it.
    pub fn new(config: EnablerConfig) -> Enabler {
        Enabler { config, helper: config.most, last: None }
    }

    /// What the helper sends.
    pub fn helper(&self) -> Rate {
        self.helper
    }

    /// The last step.
    pub fn last(&self) -> Option<Advice> {
        self.last
    }

    /// An epoch of monitoring is over: `viewers` viewers take `bitrate` on the wire; `peers` took part.
    pub fn on_epoch(&mut self, mean: &Mean, peers: usize, viewers: usize, bitrate: Rate) -> Advice {
        let EnablerConfig { least, most, gain, margin } = self.config;
        let demand = viewers as f64 * bitrate.bytes_per_sec();
        let surplus = mean.surplus(peers, viewers, bitrate);
        // H <- clip(H + K (sigma n b - S))
        let wanted = self.helper.bytes_per_sec() + gain * (margin * demand - surplus);
        let helper = wanted.clamp(least.bytes_per_sec(), most.bytes_per_sec().max(least.bytes_per_sec()));
        self.helper = Rate::from_bytes_per_sec_f64(helper);
        // What is there is the demand and the surplus; (1 + sigma) n b' is to be as much.
        let playback = (wanted > most.bytes_per_sec() && surplus < 0.0 && viewers > 0)
            .then(|| Rate::from_bytes_per_sec_f64((demand + surplus).max(0.0) / viewers as f64 / (1.0 + margin)));
        let advice = Advice { helper: self.helper, surplus, playback };
        self.last = Some(advice);
        advice
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rate(bytes_per_s: f64) -> Rate {
        Rate::from_bytes_per_sec_f64(bytes_per_s)
    }

    const VIEWERS: usize = 100;
    const BITRATE: f64 = 250_000.0;

    /// What monitoring finds where viewers can send `share` of the demand together, and the helper `helper`.
    fn found(share: f64, helper: Rate) -> Mean {
        let demand = VIEWERS as f64 * BITRATE;
        let all = share * demand + helper.bytes_per_sec();
        let peers = (VIEWERS + 1) as f64;
        let received = all.min(demand);
        Mean { capacity: rate(all / peers), idle: rate((all - received) / peers), received: rate(received / peers) }
    }

    fn settled(share: f64, most: f64, epochs: usize) -> (Enabler, Advice) {
        let demand = VIEWERS as f64 * BITRATE;
        let mut enabler = Enabler::new(EnablerConfig::between(rate(BITRATE), rate(most * demand)));
        let mut advice = None;
        for _ in 0..epochs {
            advice = Some(enabler.on_epoch(&found(share, enabler.helper()), VIEWERS + 1, VIEWERS, rate(BITRATE)));
        }
        (enabler, advice.expect("there was an epoch"))
    }

    #[test]
    fn the_helper_gives_what_is_missing_and_five_percent_more() {
        let demand = VIEWERS as f64 * BITRATE;
        for share in [0.3, 0.7, 1.0] {
            let (enabler, advice) = settled(share, 1.0, 12);
            let expected = (1.05 - share) * demand;
            assert!((enabler.helper().bytes_per_sec() / expected - 1.0).abs() < 0.01, "{share}: {}", enabler.helper());
            assert_eq!(advice.playback, None);
        }
    }

    #[test]
    fn where_viewers_have_enough_the_helper_gives_the_least() {
        assert_eq!(settled(1.3, 1.0, 12).0.helper(), rate(BITRATE));
    }

    #[test]
    fn where_the_helper_cannot_give_enough_a_playback_rate_is_advised() {
        let (enabler, advice) = settled(0.5, 0.2, 12);
        assert_eq!(enabler.helper(), rate(0.2 * VIEWERS as f64 * BITRATE));
        let playback = advice.playback.expect("there is too little").bytes_per_sec();
        assert!((playback / (0.7 / 1.05 * BITRATE) - 1.0).abs() < 0.01, "{playback}");
    }
}
