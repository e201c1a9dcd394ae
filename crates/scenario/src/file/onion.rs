//! The tables and keys of an onion overlay's scenario, and the scenario that they make.

use anabranch_control::time::Duration;
use anabranch_onion::guards::MOST_GUARDS;
use anabranch_onion::routes::RoutesConfig;
use anabranch_onion::size::MOST_HOPS;

use super::error::Problem;
use super::shape::{Optional, OrStandard, Section, keys, said, some};
use super::values::{BitRate, Millis, Number, Seconds, Seed, Share, Whole, Word, Words};
use crate::onion::{
    Adversary, Cover, Exit, LONGEST_RUN_S, MOST_RELAYS, MOST_REPETITIONS, MOST_SENDERS, Mode, OnionConfig,
    OnionScenario, Senders,
};

/// From a tenth of a second on.
const TENTH: u64 = 100_000_000;

keys! {
    /// All tables.
    pub struct File {
        run: Option<Section<Run>>,
        onion: Section<OnionKeys>,
        senders: Option<Section<SenderKeys>>,
        adversary: Section<AdversaryKeys>,
    }
}

keys! {
    /// `[run]`.
    pub struct Run {
        seconds: Optional<Seconds<1_000_000_000, LONGEST_RUN_S>>,
        seed: Optional<Seed>,
        repetitions: Optional<Whole<1, MOST_REPETITIONS>>,
    }
}

keys! {
    /// `[onion]`.
    pub struct OnionKeys {
        relays: Optional<Whole<10, MOST_RELAYS>>,
        hops: Optional<Whole<2, { MOST_HOPS as u64 }>>,
        far_hops: Optional<Whole<0, { MOST_HOPS as u64 }>>,
        mode: Optional<Word<Mode>>,
        guards: Optional<Whole<0, { MOST_GUARDS as u64 }>>,
        exit: Optional<Word<Exit>>,
        far_guards: Optional<Whole<0, { MOST_GUARDS as u64 }>>,
        placement: Optional<String>,
        cover: Optional<Word<Cover>>,
        mix_delay_ms: Optional<Millis>,
        span_ms: Optional<Millis>,
        access_ms: Optional<Millis>,
        relay_rate: Optional<BitRate>,
        load: Optional<Share>,
        line_rate: Optional<BitRate>,
        honest_loss: Optional<Share>,
    }
}

keys! {
    /// `[senders]`.
    pub struct SenderKeys {
        count: Optional<Whole<2, MOST_SENDERS>>,
        packets_per_s: Optional<Number<1_000_000, 10_000>>,
        on_s: Optional<Seconds<TENTH, LONGEST_RUN_S>>,
        off_s: Optional<Seconds<TENTH, LONGEST_RUN_S>>,
    }
}

keys! {
    /// `[adversary]`.
    pub struct AdversaryKeys {
        share: Optional<Share>,
        bin_s: Optional<Seconds<TENTH, 60>>,
        false_positives: Optional<Number<1_000, 1>>,
        probes: Optional<Whole<0, 10_000>>,
        probe_s: Optional<Seconds<10_000_000_000, LONGEST_RUN_S>>,
    }
}

impl Words for Mode {
    const WORDS: &'static [(&'static str, Mode)] =
        &[("per-packet", Mode::PerPacket), ("circuit", Mode::Circuit), ("two-legs", Mode::TwoLegs)];
}

impl Words for Exit {
    const WORDS: &'static [(&'static str, Exit)] =
        &[("per-packet", Exit::PerPacket), ("per-session", Exit::PerSession)];
}

impl Words for Cover {
    const WORDS: &'static [(&'static str, Cover)] = &[("off", Cover::Off), ("constant-rate", Cover::ConstantRate)];
}

/// The scenario that `file` describes.
pub fn scenario(file: &Section<File>) -> Result<OnionScenario, Problem> {
    let standard = OnionScenario::standard();
    let run = file.run.as_ref();
    let overlay = file.onion.config()?;
    let senders = file.senders.as_ref().map_or(standard.senders, |senders| Senders {
        count: senders.count.or_standard(standard.senders.count),
        packets_per_s: senders.packets_per_s.or_standard(standard.senders.packets_per_s),
        on: senders.on_s.or_standard(standard.senders.on),
        off: senders.off_s.or_standard(standard.senders.off),
    });
    let said = &file.adversary;
    let adversary = Adversary {
        share: said.share.or_standard(standard.adversary.share),
        bin: said.bin_s.or_standard(standard.adversary.bin),
        false_positives: said.false_positives.or_standard(standard.adversary.false_positives),
        probes: said.probes.or_standard(standard.adversary.probes),
        probe_time: said.probe_s.or_standard(standard.adversary.probe_time),
    };
    let duration = run.map_or(standard.duration, |run| run.seconds.or_standard(standard.duration));
    // A correlation of fewer bins says nothing: its deviation is 1 / √(bins − 3).
    let least = Duration::from_nanos(adversary.bin.as_nanos() * LEAST_BINS);
    if duration < least {
        let problem = format!("the adversary needs {LEAST_BINS} bins; expected run.seconds of {least} or more");
        return Err(match (&said.bin_s, run.and_then(|run| run.seconds.as_ref())) {
            (_, Some(seconds)) => seconds.wrong(problem),
            (Some(bin), None) => bin.wrong(problem),
            (None, None) => said.wrong(problem),
        });
    }
    Ok(OnionScenario {
        seed: run.map_or(standard.seed, |run| run.seed.or_standard(standard.seed)),
        duration,
        repetitions: run.map_or(standard.repetitions, |run| run.repetitions.or_standard(standard.repetitions)),
        overlay,
        senders,
        adversary,
    })
}

/// Bins that a correlation takes at least.
const LEAST_BINS: u64 = 10;

impl Section<OnionKeys> {
    fn config(&self) -> Result<OnionConfig, Problem> {
        let standard = OnionScenario::standard().overlay;
        let config = OnionConfig {
            relays: self.relays.or_standard(standard.relays),
            hops: self.hops.or_standard(standard.hops),
            far_hops: self.far_hops.or_standard(standard.far_hops),
            mode: self.mode.or_standard(standard.mode),
            guards: self.guards.or_standard(standard.guards),
            exit: self.exit.or_standard(standard.exit),
            far_guards: self.far_guards.or_standard(standard.far_guards),
            placement: self.placement.or_standard(standard.placement),
            cover: self.cover.or_standard(standard.cover),
            mix_delay: self.mix_delay_ms.or_standard(standard.mix_delay),
            span: self.span_ms.or_standard(standard.span),
            access: self.access_ms.or_standard(standard.access),
            relay_rate: self.relay_rate.or_standard(standard.relay_rate),
            load: self.load.or_standard(standard.load),
            line_rate: self.line_rate.or_standard(standard.line_rate),
            honest_loss: self.honest_loss.or_standard(standard.honest_loss),
        };
        if let Some(placement) = &self.placement {
            let routes = RoutesConfig { placement: config.placement.clone(), ..RoutesConfig::default() };
            routes.check().map_err(|error| placement.wrong(error.to_string()))?;
        }
        if let (Some(far), true) = (&self.far_hops, config.mode != Mode::PerPacket && config.far_hops > 0) {
            return Err(far.wrong("a circuit's relays are the sender's choice; expected 0, or mode = \"per-packet\""));
        }
        if let (Some(far), true) = (&self.far_guards, config.far_hops == 0 && config.far_guards > 0) {
            return Err(
                far.wrong("there are no relays that the receiver chooses; expected 0, or far_hops of 1 or more")
            );
        }
        let has_exit = config.mode == Mode::PerPacket && config.far_hops == 0;
        if let (Some(exit), true) = (&self.exit, config.exit == Exit::PerSession && !has_exit) {
            return Err(exit.wrong(
                "a circuit keeps its last relay anyway, and behind far_hops there is none of the sender's; expected \
                 \"per-packet\", or another path for each packet and no far_hops",
            ));
        }
        if let (Some(guards), true) = (&self.guards, config.mode == Mode::TwoLegs && config.guards < 2) {
            return Err(guards.wrong("each of two legs begins at a guard of its own; expected 2 or more"));
        }
        if let (Some(load), true) = (&self.load, config.load == 1.0) {
            return Err(load.wrong("nothing would be left for the sender; expected less than 1"));
        }
        // The guards of both ends and the middles are different relays.
        let needed = config.guards + config.far_guards + 2 * config.path();
        if config.relays < needed
            && let Some(relays) = &self.relays
        {
            return Err(relays.wrong(format!("expected at least {needed}, for guards and hops")));
        }
        Ok(config)
    }
}

impl From<&OnionScenario> for File {
    fn from(scenario: &OnionScenario) -> File {
        let OnionScenario { overlay, senders, adversary, .. } = scenario;
        File {
            run: Some(said(Run {
                seconds: some(scenario.duration),
                seed: some(scenario.seed),
                repetitions: some(scenario.repetitions),
            })),
            onion: said(OnionKeys {
                relays: some(overlay.relays),
                hops: some(overlay.hops),
                far_hops: some(overlay.far_hops),
                mode: some(overlay.mode),
                guards: some(overlay.guards),
                exit: some(overlay.exit),
                far_guards: some(overlay.far_guards),
                placement: some(overlay.placement.clone()),
                cover: some(overlay.cover),
                mix_delay_ms: some(overlay.mix_delay),
                span_ms: some(overlay.span),
                access_ms: some(overlay.access),
                relay_rate: some(overlay.relay_rate),
                load: some(overlay.load),
                line_rate: some(overlay.line_rate),
                honest_loss: some(overlay.honest_loss),
            }),
            senders: Some(said(SenderKeys {
                count: some(senders.count),
                packets_per_s: some(senders.packets_per_s),
                on_s: some(senders.on),
                off_s: some(senders.off),
            })),
            adversary: said(AdversaryKeys {
                share: some(adversary.share),
                bin_s: some(adversary.bin),
                false_positives: some(adversary.false_positives),
                probes: some(adversary.probes),
                probe_s: some(adversary.probe_time),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::documented::{documented, keys, part};
    use super::*;
    use crate::file::{Override, onion_to_toml, parse_onion};

    #[test]
    fn the_two_tables_are_all_that_must_be_said() {
        assert_eq!(parse_onion("[onion]\n[adversary]\n", "o.toml", &[]).unwrap(), OnionScenario::standard());
        let error = parse_onion("[onion]\n", "o.toml", &[]).unwrap_err().to_string();
        assert!(error.contains("adversary"), "{error}");
    }

    #[test]
    fn what_is_written_is_read_as_it_was() {
        let text = "[run]\nseconds = 20\nseed = 9\nrepetitions = 3\n[onion]\nrelays = 50\nmode = \"two-legs\"\nguards = 3\n\
                    cover = \"constant-rate\"\nmix_delay_ms = 12.5\nload = 0.25\nplacement = \"timeouts\"\n\
                    [senders]\ncount = 7\non_s = 0.5\n[adversary]\nshare = 0.03\nbin_s = 0.5\nprobes = 3\n";
        let scenario = parse_onion(text, "o.toml", &[]).unwrap();
        assert_eq!((scenario.overlay.guards, scenario.senders.count, scenario.adversary.share), (3, 7, 0.03));
        let written = onion_to_toml(&scenario);
        assert_eq!(parse_onion(&written, "o.toml", &[]).unwrap(), scenario, "{written}");
    }

    #[test]
    fn what_cannot_be_is_refused_with_its_place() {
        for (text, key, word) in [
            ("[onion]\nrelays = 5\n[adversary]\n", "onion.relays", "from 10"),
            ("[onion]\nrelays = 12\nguards = 8\n[adversary]\n", "onion.relays", "at least 14"),
            ("[onion]\nmode = \"circiut\"\n[adversary]\n", "onion.mode", "did you mean \"circuit\""),
            ("[onion]\nmode = \"two-legs\"\nguards = 1\n[adversary]\n", "onion.guards", "2 or more"),
            ("[onion]\nmode = \"circuit\"\nfar_hops = 1\n[adversary]\n", "onion.far_hops", "per-packet"),
            ("[onion]\nfar_guards = 1\n[adversary]\n", "onion.far_guards", "far_hops"),
            ("[onion]\nplacement = \"tomografy\"\n[adversary]\n", "onion.placement", "tomography"),
            ("[onion]\nplacement = \"perfect\"\n[adversary]\n", "onion.placement", "only a simulation"),
            ("[onion]\nexit = \"per-sesion\"\n[adversary]\n", "onion.exit", "did you mean \"per-session\""),
            (
                "[onion]\nexit = \"per-session\"\nmode = \"circuit\"\n[adversary]\n",
                "onion.exit",
                "keeps its last relay",
            ),
            ("[onion]\nexit = \"per-session\"\nfar_hops = 2\n[adversary]\n", "onion.exit", "far_hops"),
            ("[onion]\nload = 1\n[adversary]\n", "onion.load", "less than 1"),
            ("[run]\nseconds = 5\n[onion]\n[adversary]\n", "run.seconds", "10 bins"),
            ("[onion]\n[adversary]\nshares = 1\n", "adversary.shares", "share"),
            ("[onion]\n[adversary]\nshare = 2\n", "adversary.share", "0 to 1"),
        ] {
            let error = parse_onion(text, "o.toml", &[]).unwrap_err().to_string();
            assert!(error.contains(key) && error.contains(word) && error.contains("o.toml:"), "{error}");
        }
    }

    #[test]
    fn who_runs_it_as_another_kind_gets_the_command() {
        let error = crate::file::parse_any("[adversary]\n[onion]\n", "o.toml", &[]).unwrap_err().to_string();
        assert!(error.contains("o.toml:2") && error.contains("anabranch onion attack"), "{error}");
    }

    #[test]
    fn an_override_takes_the_place_of_a_value() {
        let sets = [Override::set("adversary.share=0.2").unwrap(), Override::set("onion.guards=0").unwrap()];
        let scenario = parse_onion("[onion]\n[adversary]\nshare = 0.1\n", "o.toml", &sets).unwrap();
        assert_eq!((scenario.adversary.share, scenario.overlay.guards), (0.2, 0));
    }

    #[test]
    fn every_key_is_documented_and_every_documented_key_is_read() {
        let page = part(include_str!("../../../../docs/onion-scenarios.md"), "Who watches");
        assert_eq!(documented(page, "[run]"), keys::<Run>());
        assert_eq!(documented(page, "[onion]"), keys::<OnionKeys>());
        assert_eq!(documented(page, "[senders]"), keys::<SenderKeys>());
        assert_eq!(documented(page, "[adversary]"), keys::<AdversaryKeys>());
    }
}
