//! The tables and keys of an onion overlay that carries its users' traffic, and the scenario that they make.

use anabranch_control::flow::registry as flow;
use anabranch_control::time::Duration;
use anabranch_control::units::{Bytes, Rate};
use anabranch_onion::directory::document::MOST_PER_FAMILY;
use anabranch_onion::guards::MOST_GUARDS;
use anabranch_onion::routes::RoutesConfig;
use anabranch_onion::session::total_rate::{LEAST_RATE, MOST_RATE};
use anabranch_onion::size::{DATAGRAM, MOST_HOPS};

use super::error::{Problem, nearest};
use super::overlay::{LimitModel, chosen};
use super::shape::{Optional, OrStandard, Section, Shape, Value, keys, said, some, span, write};
use super::values::{BitRate, Millis, Number, Seconds, Seed, Share, Whole, Word, Words};
use crate::onion_run::{
    CoverKind, LONGEST_RUN_S, MOST_KILOBYTES, MOST_PACKETS_PER_S, MOST_RELAYS, MOST_USERS, OnionOverlay, OnionRelays,
    OnionRunScenario, OnionUsers, RateRule,
};
use crate::overlay::{LimitKind, STANDARD_QUEUE};

/// The tables that only such a scenario has.
pub(super) const OWN: &[&str] = &["onion", "users", "relays"];

/// What flow controllers that decide a total rate are called by.
const FLOW_PREFIX: &str = "flow:";

type RunSeconds = Seconds<0, LONGEST_RUN_S>;

keys! {
    /// All tables.
    pub struct File {
        run: Option<Section<Run>>,
        onion: Section<OnionKeys>,
        users: Option<Section<UserKeys>>,
        relays: Option<Section<RelayKeys>>,
    }
}

keys! {
    /// `[run]`.
    pub struct Run {
        seconds: Optional<Seconds<1_000_000_000, LONGEST_RUN_S>>,
        warmup_s: Optional<RunSeconds>,
        seed: Optional<Seed>,
    }
}

keys! {
    /// `[onion]`.
    pub struct OnionKeys {
        relays: Optional<Whole<4, MOST_RELAYS>>,
        hops: Optional<Whole<2, { MOST_HOPS as u64 }>>,
        guards: Optional<Whole<0, { MOST_GUARDS as u64 }>>,
        packets_per_key: Optional<Whole<1, { u16::MAX as u64 }>>,
        placement: Optional<String>,
        placement_back: Optional<String>,
        total_rate: Optional<RateRule>,
        cells_per_s: Optional<Whole<{ LEAST_RATE as u64 }, { MOST_RATE as u64 }>>,
        cover: Optional<Word<CoverKind>>,
        loops_per_s: Optional<Number<1_000_000, MOST_PACKETS_PER_S>>,
        cover_per_s: Optional<Whole<1, MOST_PACKETS_PER_S>>,
        mix_delay_ms: Optional<Millis>,
        span_ms: Optional<Millis>,
        access_ms: Optional<Millis>,
        jitter: Optional<Share>,
        loss: Optional<Share>,
    }
}

keys! {
    /// `[users]`.
    pub struct UserKeys {
        count: Optional<Whole<1, MOST_USERS>>,
        begin_within_s: Optional<RunSeconds>,
        receive_only: Optional<Share>,
        download_kilobytes: Optional<Whole<1, MOST_KILOBYTES>>,
    }
}

keys! {
    /// `[relays]`.
    pub struct RelayKeys {
        limit: Optional<Limit>,
        limit_model: Optional<Word<LimitModel>>,
        bucket_bytes: Optional<Whole<1, { u32::MAX as u64 }>>,
        queue_ms: Optional<Millis>,
        per_family: Optional<Whole<1, { MOST_PER_FAMILY as u64 }>>,
        droppers: Optional<Share>,
        greedy: Optional<Share>,
        kill_share: Optional<Share>,
        kill_at_s: Optional<RunSeconds>,
    }
}

impl Words for CoverKind {
    const WORDS: &'static [(&'static str, CoverKind)] =
        &[("off", CoverKind::Off), ("loops", CoverKind::Loops), ("constant-rate", CoverKind::ConstantRate)];
}

/// A rate, or `"none"`.
pub struct Limit;

impl Shape for Limit {
    type Holds = Option<Rate>;

    fn expected() -> String {
        format!("{}, or \"none\"", BitRate::expected())
    }

    fn read(value: &Value<'_>) -> Result<Option<Rate>, Problem> {
        match value.text(Self::expected)? {
            "none" => Ok(None),
            _ => BitRate::read(value).map(Some),
        }
    }

    fn write(limit: &Option<Rate>, out: &mut String) {
        match limit {
            Some(rate) => BitRate::write(rate, out),
            None => write("none", out),
        }
    }
}

impl Shape for RateRule {
    type Holds = RateRule;

    fn expected() -> String {
        "\"stepped\", \"constant\" or \"flow:NAME\" with a flow controller's name (anabranch controllers)".to_owned()
    }

    fn read(value: &Value<'_>) -> Result<RateRule, Problem> {
        let text = value.text(Self::expected)?;
        if let Some(name) = text.strip_prefix(FLOW_PREFIX) {
            let entry = flow::find(name).map_err(|unknown| value.wrong(unknown.to_string()))?;
            if let Some(what) = entry.needs() {
                return Err(value.wrong(format!("\"{name}\" needs {what}, which no key here gives; expected another")));
            }
            return Ok(RateRule::Flow(entry));
        }
        match text {
            "stepped" => Ok(RateRule::Stepped),
            "constant" => Ok(RateRule::Constant),
            other => Err(value.wrong(match nearest(other, &["stepped", "constant"]) {
                Some(near) => format!("did you mean \"{near}\"? (expected {})", Self::expected()),
                None => format!("expected {}", Self::expected()),
            })),
        }
    }

    fn write(rule: &RateRule, out: &mut String) {
        write(&rule.name(), out);
    }
}

/// The scenario that `file` describes.
pub fn scenario(file: &Section<File>) -> Result<OnionRunScenario, Problem> {
    let standard = OnionRunScenario::standard();
    let run = file.run.as_ref();
    let duration = run.map_or(standard.duration, |run| run.seconds.or_standard(standard.duration));
    let warmup = run.and_then(|run| run.warmup_s.as_ref());
    if let Some(warmup) = warmup.filter(|warmup| ***warmup >= duration) {
        return Err(warmup.wrong(format!("nothing would be measured; expected less than run.seconds, {duration}")));
    }
    let onion = file.onion.overlay()?;
    let users = file.users.as_ref().map_or(standard.users.clone(), |users| OnionUsers {
        count: users.count.or_standard(standard.users.count),
        begin_within: users.begin_within_s.or_standard(standard.users.begin_within),
        receive_only: users.receive_only.or_standard(standard.users.receive_only),
        download_kilobytes: users.download_kilobytes.as_ref().map(|kilobytes| **kilobytes),
    });
    let relays = match &file.relays {
        Some(relays) => relays.relays(duration)?,
        None => OnionRelays { kill_at: duration / 2, ..standard.relays },
    };
    let scenario = OnionRunScenario {
        seed: run.map_or(standard.seed, |run| run.seed.or_standard(standard.seed)),
        duration,
        warmup: warmup.map_or(duration / 2, |warmup| **warmup),
        onion,
        users,
        relays,
    };
    if let Some(relays) = &file.relays {
        relays.check(&scenario)?;
    }
    if let Some(within) = file.users.as_ref().and_then(|users| users.begin_within_s.as_ref())
        && scenario.users.begin_within > duration
    {
        return Err(
            within.wrong("some users would begin after the run has ended; expected at most `seconds`".to_owned())
        );
    }
    Ok(scenario)
}

impl Section<OnionKeys> {
    fn overlay(&self) -> Result<OnionOverlay, Problem> {
        let standard = OnionRunScenario::standard().onion;
        let placement = self.placement.or_standard(standard.placement);
        let cover = self.cover.or_standard(standard.cover);
        // Who hides that there is something to say must not be answered at a rate that tells it.
        let total_rate = if cover == CoverKind::ConstantRate { RateRule::Constant } else { standard.total_rate };
        let overlay = OnionOverlay {
            relays: self.relays.or_standard(standard.relays),
            hops: self.hops.or_standard(standard.hops),
            guards: self.guards.or_standard(standard.guards),
            packets_per_key: self.packets_per_key.or_standard(standard.packets_per_key),
            placement_back: self.placement_back.or_standard(placement.clone()),
            placement,
            total_rate: self.total_rate.or_standard(total_rate),
            cells_per_s: self.cells_per_s.or_standard(standard.cells_per_s),
            cover,
            loops_per_s: self.loops_per_s.or_standard(standard.loops_per_s),
            cover_per_s: self.cover_per_s.or_standard(standard.cover_per_s),
            mix_delay: self.mix_delay_ms.or_standard(standard.mix_delay),
            span: self.span_ms.or_standard(standard.span),
            access: self.access_ms.or_standard(standard.access),
            jitter: self.jitter.or_standard(standard.jitter),
            loss: self.loss.or_standard(standard.loss),
        };
        for placement in [&self.placement, &self.placement_back].into_iter().flatten() {
            let routes = RoutesConfig { placement: (**placement).clone(), ..RoutesConfig::default() };
            routes.check().map_err(|error| placement.wrong(error.to_string()))?;
        }
        // A loop has the relays of one half, the guard that it ends at, and two guards are no middles.
        let needed = overlay.guards + 2 * overlay.hops;
        if overlay.relays < needed {
            let problem = format!("expected at least {needed} relays, for guards and hops");
            return Err(match (&self.relays, &self.hops, &self.guards) {
                (Some(relays), ..) => relays.wrong(problem),
                (None, Some(hops), _) => hops.wrong(problem),
                (None, None, Some(guards)) => guards.wrong(problem),
                (None, None, None) => self.wrong(problem),
            });
        }
        if let Some(span) = span(&self.total_rate)
            && cover == CoverKind::ConstantRate
            && overlay.total_rate != RateRule::Constant
        {
            let problem = "with cover = \"constant-rate\" services answer at the constant rate of cells_per_s; expected \
                           \"constant\", or nothing";
            return Err(Problem::at(span, problem.to_owned()));
        }
        let belongs = |kind: CoverKind| overlay.cover == kind;
        for (key, kind) in
            [(span(&self.loops_per_s), CoverKind::Loops), (span(&self.cover_per_s), CoverKind::ConstantRate)]
        {
            if let Some(span) = key.filter(|_| !belongs(kind)) {
                let problem =
                    format!("this belongs to cover = \"{}\", which is \"{}\"", kind.word(), overlay.cover.word());
                return Err(Problem::at(span, problem));
            }
        }
        Ok(overlay)
    }
}

impl Section<RelayKeys> {
    fn relays(&self, duration: Duration) -> Result<OnionRelays, Problem> {
        let standard = OnionRunScenario::standard().relays;
        let limit = self.limit.or_standard(standard.limit);
        let limit_model = self.limit_kind(limit)?;
        Ok(OnionRelays {
            limit,
            limit_model,
            per_family: self.per_family.or_standard(standard.per_family),
            droppers: self.droppers.or_standard(standard.droppers),
            greedy: self.greedy.or_standard(standard.greedy),
            kill_share: self.kill_share.or_standard(standard.kill_share),
            kill_at: self.kill_at_s.or_standard(duration / 2),
        })
    }

    fn limit_kind(&self, limit: Option<Rate>) -> Result<LimitKind, Problem> {
        let keys = [(span(&self.bucket_bytes), LimitModel::Bucket), (span(&self.queue_ms), LimitModel::Queue)];
        let model = chosen("relays.limit_model", &self.limit_model, &keys)?;
        let packet = Bytes::new(DATAGRAM as u64);
        let a_second = limit.map(|limit| limit * Duration::SECOND);
        if let (LimitModel::Window, Some(limit), Some(said)) = (model, a_second, &self.limit)
            && limit < packet
        {
            return Err(said.wrong(format!("a relay that counts in seconds would refuse every packet of {packet}")));
        }
        Ok(match model {
            LimitModel::Window => LimitKind::Window,
            LimitModel::Bucket => {
                let depth = self.bucket_bytes.as_ref().map(|bytes| Bytes::new(**bytes));
                if let (Some(depth), Some(said)) = (depth, &self.bucket_bytes)
                    && depth < packet
                {
                    return Err(said.wrong(format!("a bucket of {depth} never holds a packet of {packet}")));
                }
                LimitKind::Bucket { depth: depth.or(a_second).unwrap_or(packet).max(packet) }
            }
            LimitModel::Queue => LimitKind::Queue { longest: self.queue_ms.or_standard(STANDARD_QUEUE) },
        })
    }

    /// Enough relays are left that do what they should.
    fn check(&self, scenario: &OnionRunScenario) -> Result<(), Problem> {
        let (droppers, greedy) = scenario.misbehaving();
        let honest = scenario.onion.relays.saturating_sub(droppers + greedy);
        let OnionRelays { per_family, .. } = scenario.relays;
        // A path has one relay of each family.
        let needed = scenario.onion.guards + 2 * scenario.onion.hops;
        if let Some(at) = &self.kill_at_s
            && scenario.relays.kill_at >= scenario.duration
        {
            return Err(at.wrong("the run has ended by then; expected an instant before `seconds`".to_owned()));
        }
        let families = scenario.onion.relays.div_ceil(per_family);
        if families < needed
            && let Some(per_family) = &self.per_family
        {
            return Err(per_family.wrong(format!("there are {families} families; expected at least {needed}")));
        }
        // A service, and another one where that is a user's guard, or of a guard's family.
        let needed = scenario.onion.guards * per_family + 1;
        if honest < needed {
            let problem = format!("{honest} honest relays are left; expected at least {needed}");
            return Err(match (&self.greedy, &self.droppers) {
                (Some(greedy), _) if scenario.relays.greedy >= scenario.relays.droppers => greedy.wrong(problem),
                (_, Some(droppers)) => droppers.wrong(problem),
                _ => self.wrong(problem),
            });
        }
        // Services stay, and so do enough others for a path.
        let needed = scenario.onion.guards + 2 * scenario.onion.hops;
        if scenario.onion.relays - scenario.killed().min(scenario.onion.relays) < needed
            && let Some(share) = &self.kill_share
        {
            return Err(share.wrong(format!("fewer than {needed} relays would be left; expected a smaller share")));
        }
        Ok(())
    }
}

impl From<&OnionRunScenario> for File {
    fn from(scenario: &OnionRunScenario) -> File {
        let OnionRunScenario { onion, users, relays, .. } = scenario;
        let (limit_model, bucket, queue) = match relays.limit_model {
            LimitKind::Window => (LimitModel::Window, None, None),
            LimitKind::Bucket { depth } => (LimitModel::Bucket, Some(depth.get()), None),
            LimitKind::Queue { longest } => (LimitModel::Queue, None, Some(longest)),
        };
        File {
            run: Some(said(Run {
                seconds: some(scenario.duration),
                warmup_s: some(scenario.warmup),
                seed: some(scenario.seed),
            })),
            onion: said(OnionKeys {
                relays: some(onion.relays),
                hops: some(onion.hops),
                guards: some(onion.guards),
                packets_per_key: some(onion.packets_per_key),
                placement: some(onion.placement.clone()),
                placement_back: some(onion.placement_back.clone()),
                total_rate: some(onion.total_rate),
                cells_per_s: some(onion.cells_per_s),
                cover: some(onion.cover),
                loops_per_s: (onion.cover == CoverKind::Loops).then(|| said(onion.loops_per_s)),
                cover_per_s: (onion.cover == CoverKind::ConstantRate).then(|| said(onion.cover_per_s)),
                mix_delay_ms: some(onion.mix_delay),
                span_ms: some(onion.span),
                access_ms: some(onion.access),
                jitter: some(onion.jitter),
                loss: some(onion.loss),
            }),
            users: Some(said(UserKeys {
                count: some(users.count),
                begin_within_s: some(users.begin_within),
                receive_only: some(users.receive_only),
                download_kilobytes: users.download_kilobytes.map(said),
            })),
            relays: Some(said(RelayKeys {
                limit: some(relays.limit),
                limit_model: some(limit_model),
                bucket_bytes: bucket.map(said),
                queue_ms: queue.map(said),
                per_family: some(relays.per_family),
                droppers: some(relays.droppers),
                greedy: some(relays.greedy),
                kill_share: some(relays.kill_share),
                kill_at_s: some(relays.kill_at),
            })),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::documented::{documented, keys, part};
    use super::*;
    use crate::file::{AnyScenario, Override, ScenarioError, onion_run_to_toml, parse_any};

    fn parse(text: &str, sets: &[Override]) -> Result<OnionRunScenario, ScenarioError> {
        parse_any(text, "o.toml", sets).map(|scenario| match scenario {
            AnyScenario::Onion(scenario) => scenario,
            other => panic!("an onion: {other:?}"),
        })
    }

    #[test]
    fn an_empty_table_is_the_standard_scenario() {
        assert_eq!(parse("[onion]\n", &[]).unwrap(), OnionRunScenario::standard());
    }

    #[test]
    fn what_is_written_is_read_as_it_was() {
        let text = "[run]\nseconds = 30\nwarmup_s = 2.5\nseed = 4\n[onion]\nrelays = 40\nhops = 4\nguards = 0\n\
                    packets_per_key = 1\nplacement = \"per-path\"\nplacement_back = \"flow:cubic\"\n\
                    total_rate = \"flow:reno\"\ncells_per_s = 50\ncover = \"loops\"\nloops_per_s = 2.5\n\
                    mix_delay_ms = 20\njitter = 0\nloss = 0.01\n[users]\ncount = 3\nreceive_only = 0.5\n\
                    download_kilobytes = 500\n[relays]\nlimit = \"3 MB/s\"\nlimit_model = \"queue\"\nqueue_ms = 50\n\
                    per_family = 4\ndroppers = 0.2\ngreedy = 0.1\nkill_share = 0.25\nkill_at_s = 20\n";
        let scenario = parse(text, &[]).unwrap();
        assert_eq!((scenario.onion.guards, scenario.misbehaving(), scenario.killed()), (0, (8, 4), 10));
        assert_eq!(scenario.onion.total_rate.name(), "flow:reno");
        let written = onion_run_to_toml(&scenario);
        assert_eq!(parse(&written, &[]).unwrap(), scenario, "{written}");
        let unlimited = parse("[onion]\ncover = \"constant-rate\"\ncover_per_s = 9\n[relays]\nlimit = \"none\"\n", &[]);
        let unlimited = unlimited.unwrap();
        assert_eq!((unlimited.relays.limit, unlimited.onion.cover_per_s), (None, 9));
        assert_eq!(unlimited.onion.total_rate, RateRule::Constant, "what runs is what is said");
        assert_eq!(parse(&onion_run_to_toml(&unlimited), &[]).unwrap(), unlimited);
    }

    #[test]
    fn what_cannot_be_is_refused_with_its_place() {
        for (text, key, word) in [
            ("[onion]\nrelays = 7\n", "onion.relays", "at least 8"),
            ("[onion]\nhops = 5\n", "onion.hops", "2 to 4"),
            ("[onion]\nplacement = \"tomografy\"\n", "onion.placement", "tomography"),
            ("[onion]\nplacement = \"explicit-rate\"\n", "onion.placement", "relays of an onion know no sender"),
            ("[onion]\nplacement_back = \"perfect\"\n", "onion.placement_back", "only a simulation"),
            ("[onion]\ncover = \"constant-rate\"\ntotal_rate = \"flow:reno\"\n", "onion.total_rate", "cells_per_s"),
            ("[onion]\ntotal_rate = \"steped\"\n", "onion.total_rate", "did you mean \"stepped\""),
            ("[onion]\ntotal_rate = \"flow:cubik\"\n", "onion.total_rate", "cubic"),
            ("[onion]\ntotal_rate = \"flow:policy\"\n", "onion.total_rate", "needs"),
            ("[onion]\nloops_per_s = 3\n", "onion.loops_per_s", "cover = \"loops\""),
            ("[onion]\ncover = \"loop\"\n", "onion.cover", "did you mean \"loops\""),
            ("[onion]\n[users]\nreceive_only = 2\n", "users.receive_only", "0 to 1"),
            ("[onion]\n[relays]\nlimit = \"9\"\n", "relays.limit", "a unit"),
            ("[onion]\n[relays]\nlimit = \"1000 B/s\"\n", "relays.limit", "refuse every packet"),
            ("[onion]\n[relays]\nqueue_ms = 9\n", "relays.queue_ms", "limit_model"),
            ("[onion]\n[relays]\ndroppers = 0.9\ngreedy = 0.1\n", "relays.droppers", "honest relays"),
            ("[onion]\n[relays]\nper_family = 3\n", "relays.per_family", "7 families; expected at least 8"),
            ("[onion]\n[relays]\nper_family = 65\n", "relays.per_family", "1 to 64"),
            ("[onion]\n[relays]\nkill_share = 0.9\n", "relays.kill_share", "would be left"),
            ("[run]\nseconds = 20\n[onion]\n[relays]\nkill_at_s = 20\n", "relays.kill_at_s", "before `seconds`"),
            (
                "[run]\nseconds = 20\n[onion]\n[users]\nbegin_within_s = 21\n",
                "users.begin_within_s",
                "at most `seconds`",
            ),
            ("[run]\nwarmup_s = 120\n[onion]\n", "run.warmup_s", "less than run.seconds"),
            ("[onion]\nrelay = 1\n", "onion.relay", "did you mean \"relays\""),
            ("[onion]\n[senders]\n", "senders", "users"),
        ] {
            let error = parse(text, &[]).unwrap_err().to_string();
            assert!(error.contains(key) && error.contains(word) && error.contains("o.toml:"), "{error}");
        }
    }

    #[test]
    fn an_override_takes_the_place_of_a_value() {
        let sets = [Override::set("onion.placement=q-learning").unwrap(), Override::set("run.seconds=10").unwrap()];
        let scenario = parse("[onion]\nplacement = \"aimd\"\n", &sets).unwrap();
        assert_eq!(
            (scenario.onion.placement.as_str(), scenario.onion.placement_back.as_str()),
            ("q-learning", "q-learning")
        );
        assert_eq!(scenario.warmup, Duration::from_millis(5_000));
    }

    #[test]
    fn every_key_is_documented_and_every_documented_key_is_read() {
        let page = part(include_str!("../../../../docs/onion-scenarios.md"), "Traffic");
        assert_eq!(documented(page, "[run]"), keys::<Run>());
        assert_eq!(documented(page, "[onion]"), keys::<OnionKeys>());
        assert_eq!(documented(page, "[users]"), keys::<UserKeys>());
        assert_eq!(documented(page, "[relays]"), keys::<RelayKeys>());
    }
}
