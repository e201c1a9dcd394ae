//! The tables and keys of a stream's scenario, and the scenario that they make.

use anabranch_control::flow::registry::{self, Entry, Setup};
use anabranch_control::time::{Duration, Time};
use anabranch_control::units::{Bytes, Rate};
use anabranch_proto::stream::message::Mode;
use anabranch_proto::stream::packet::{MAX_PACKET, MAX_SLICES};

use super::error::Problem;
use super::parameters::Parameters;
use super::shape::{
    Keys, Many, Optional, OrStandard, Part, Said, Section, Shape, Table, Value, keys, many, said, some, write,
};
use super::values::{BitRate, Millis, Number, Seconds, Seed, Share, Whole, Word, Words};
use crate::stream::{
    Audience, Churn, HIGHEST_BITRATE, Helper, LONGEST_BUFFER_S, LONGEST_RUN_S, Liars, MOST_CLIENTS, OPENING, Rates,
    SHORTEST_BUFFER, StreamConfig, StreamScenario,
};

/// The tables that only a stream's scenario has.
pub(super) const OWN: &[&str] = &["stream", "audience", "churn", "liars", "helper"];

type RunSeconds = Seconds<0, LONGEST_RUN_S>;

keys! {
    /// All tables.
    pub struct File {
        run: Option<Section<Run>>,
        stream: Option<Section<StreamKeys>>,
        audience: Section<AudienceKeys>,
        churn: Option<Section<ChurnKeys>>,
        liars: Option<Section<LiarKeys>>,
        helper: Option<Section<HelperKeys>>,
    }
}

keys! {
    /// `[run]`.
    pub struct Run {
        /// A second at least.
        seconds: Optional<Seconds<1_000_000_000, LONGEST_RUN_S>>,
        seed: Optional<Seed>,
    }
}

keys! {
    /// `[stream]`.
    pub struct StreamKeys {
        bitrate: Optional<BitRate>,
        slices: Optional<Whole<1, { MAX_SLICES as u64 }>>,
        mode: Optional<Word<Mode>>,
        exploration: Optional<Share>,
        buffer_s: Optional<Seconds<{ SHORTEST_BUFFER.as_nanos() }, LONGEST_BUFFER_S>>,
        controller: Optional<Controller>,
        parameters: Optional<Parameters>,
    }
}

keys! {
    /// `[audience]`.
    pub struct AudienceKeys {
        clients: Said<Whole<1, MOST_CLIENTS>>,
        arrival_s: Optional<RunSeconds>,
        upload: Optional<Rates>,
        upload_every_s: Optional<Seconds<100_000_000, LONGEST_RUN_S>>,
        download: Optional<BitRate>,
        server_upload: Optional<BitRate>,
        span_ms: Optional<Millis>,
        access_ms: Optional<Millis>,
        loss: Optional<Share>,
    }
}

keys! {
    /// `[churn]`.
    pub struct ChurnKeys {
        mean_stay_s: Optional<Seconds<1_000_000_000, LONGEST_RUN_S>>,
        kill_share: Optional<Share>,
        kill_at_s: Optional<RunSeconds>,
    }
}

keys! {
    /// `[liars]`.
    pub struct LiarKeys {
        free_riders: Optional<Share>,
        claim_factor: Optional<Number<1_000_000_000, 1_000_000>>,
        claimers: Optional<Share>,
        droppers: Optional<Share>,
        poisoners: Optional<Share>,
    }
}

keys! {
    /// `[helper]`.
    pub struct HelperKeys {
        least: Optional<BitRate>,
        most: Said<BitRate>,
    }
}

keys! {
    /// `upload = { least = RATE, most = RATE }`.
    struct UniformKeys {
        least: Said<BitRate>,
        most: Said<BitRate>,
    }
}

keys! {
    /// `upload = { median = RATE, sigma = NUMBER }`.
    struct LogNormalKeys {
        median: Said<BitRate>,
        sigma: Said<Number<0, 3>>,
    }
}

impl Words for Mode {
    const WORDS: &'static [(&'static str, Mode)] =
        &[("hybrid", Mode::Hybrid), ("trees", Mode::Trees), ("mesh", Mode::Mesh)];
}

/// Who decides how fast a peer sends.
struct Controller;

impl Shape for Controller {
    type Holds = &'static Entry;

    fn expected() -> String {
        "the name of a flow controller in quotes (anabranch controllers)".to_owned()
    }

    fn read(value: &Value<'_>) -> Result<&'static Entry, Problem> {
        let name = value.text(Self::expected)?;
        registry::find(name).map_err(|unknown| value.wrong(unknown.to_string()))
    }

    fn write(entry: &&'static Entry, out: &mut String) {
        write(entry.name, out);
    }
}

impl Shape for Rates {
    type Holds = Rates;

    fn expected() -> String {
        "a rate as \"5 Mbit/s\", a list of rates that viewers have in turn, { least, most } or { median, sigma }"
            .to_owned()
    }

    fn read(value: &Value<'_>) -> Result<Rates, Problem> {
        match value.part {
            Part::Text(_) => Ok(Rates::InTurn(vec![BitRate::read(value)?])),
            Part::List(_) => {
                let rates: Vec<Rate> = Many::<BitRate>::read(value)?.iter().map(|rate| **rate).collect();
                match rates.is_empty() {
                    true => Err(value.wrong("this list has no rate; expected one at least")),
                    false => Ok(Rates::InTurn(rates)),
                }
            }
            Part::Table(table) if table.contains_key("least") || table.contains_key("most") => {
                let keys = UniformKeys::read(table, &value.span)?;
                match *keys.least <= *keys.most {
                    true => Ok(Rates::Uniform(*keys.least, *keys.most)),
                    false => Err(keys.most.wrong(format!("expected at least {}, which is `least`", *keys.least))),
                }
            }
            Part::Table(table) => {
                let keys = LogNormalKeys::read(table, &value.span)?;
                Ok(Rates::LogNormal { median: *keys.median, sigma: *keys.sigma })
            }
            _ => Err(value.instead_of(&Self::expected())),
        }
    }

    fn write(rates: &Rates, out: &mut String) {
        match rates {
            Rates::InTurn(rates) => match rates[..] {
                [rate] => BitRate::write(&rate, out),
                _ => Many::<BitRate>::write(&many::<BitRate>(rates.iter().copied()), out),
            },
            Rates::Uniform(least, most) => {
                Table::write(&UniformKeys { least: said(*least), most: said(*most) }, out);
            }
            Rates::LogNormal { median, sigma } => {
                Table::write(&LogNormalKeys { median: said(*median), sigma: said(*sigma) }, out);
            }
        }
    }
}

/// The scenario that `file` describes.
pub fn scenario(file: &Section<File>) -> Result<StreamScenario, Problem> {
    let standard = StreamScenario::standard();
    let stream = file.stream.as_ref().map_or(Ok(standard.stream), |stream| stream.config())?;
    let scenario = StreamScenario {
        seed: file.run.as_ref().map_or(standard.seed, |run| run.seed.or_standard(standard.seed)),
        duration: file.run.as_ref().map_or(standard.duration, |run| run.seconds.or_standard(standard.duration)),
        audience: file.audience.audience(&stream, file.stream.as_ref().and_then(|stream| stream.bitrate.as_ref()))?,
        stream,
        churn: Churn::default(),
        liars: file.liars.as_ref().map_or(Ok(standard.liars), |liars| liars.liars())?,
        helper: None,
    };
    let helper = file.helper.as_ref().map(|helper| helper.helper(&scenario)).transpose()?;
    let churn = file.churn.as_ref().map_or(Ok(standard.churn), |churn| churn.churn(scenario.duration))?;
    if scenario.audience.arrival >= scenario.duration {
        let over = format!("the run is over after {}, before all have come", scenario.duration);
        let arrival = scenario.audience.arrival;
        return Err(match (&file.audience.arrival_s, file.run.as_ref().and_then(|run| run.seconds.as_ref())) {
            (Some(said), _) => said.wrong(format!("{over}; expected a shorter time or more run.seconds")),
            (None, Some(said)) => said.wrong(format!(
                "{over}, who come over {arrival} unless audience.arrival_s says otherwise; expected more, or an \
                 audience.arrival_s of less"
            )),
            (None, None) => file.audience.wrong(over),
        });
    }
    Ok(StreamScenario { churn, helper, ..scenario })
}

impl Section<StreamKeys> {
    fn config(&self) -> Result<StreamConfig, Problem> {
        let standard = StreamScenario::standard().stream;
        if let Some(bitrate) = self.bitrate.as_ref().filter(|bitrate| ***bitrate > HIGHEST_BITRATE) {
            return Err(bitrate.wrong(format!("expected at most \"{HIGHEST_BITRATE}\"")));
        }
        let controller = self.controller.or_standard(standard.controller);
        let setup = Setup::new(Bytes::new(MAX_PACKET as u64), Time::ZERO);
        let check = |table: &toml::Table| controller.make(&setup, table).map(drop);
        let parameters = match (&self.parameters, &self.controller) {
            (Some(parameters), _) => parameters.checked(check)?,
            (None, said) => {
                let none = toml::Table::new();
                if let (Err(error), Some(said)) = (check(&none), said) {
                    return Err(said.wrong(error.to_string()));
                }
                none
            }
        };
        Ok(StreamConfig {
            bitrate: self.bitrate.or_standard(standard.bitrate),
            slices: self.slices.as_ref().map_or(standard.slices, |slices| **slices as u8),
            mode: self.mode.or_standard(standard.mode),
            exploration: self.exploration.as_ref().map(|share| **share),
            buffer: self.buffer_s.or_standard(standard.buffer),
            controller,
            parameters,
        })
    }
}

impl Section<AudienceKeys> {
    /// Of viewers of `stream`, whose rate stands in `bitrate` if it is said.
    fn audience(&self, stream: &StreamConfig, bitrate: Option<&Said<BitRate>>) -> Result<Audience, Problem> {
        let standard = StreamScenario::standard().audience;
        if let Some(loss) = self.loss.as_ref().filter(|loss| ***loss == 1.0) {
            return Err(loss.wrong("no packet would ever arrive; expected less than 1"));
        }
        let audience = Audience {
            clients: *self.clients as usize,
            arrival: self.arrival_s.or_standard(standard.arrival),
            upload: self.upload.or_standard(standard.upload),
            upload_every: self.upload_every_s.as_ref().map(|every| **every),
            download: self.download.or_standard(standard.download),
            server_upload: self.server_upload.or_standard(standard.server_upload),
            span: self.span_ms.or_standard(standard.span),
            access: self.access_ms.or_standard(standard.access),
            loss: self.loss.or_standard(standard.loss),
        };
        if let Some(every) = &self.upload_every_s
            && !matches!(audience.upload, Rates::Uniform(..))
        {
            return Err(
                every.wrong("lines are drawn anew from a uniform distribution; expected upload = { least, most }")
            );
        }
        for (said, rate, key, who) in [
            (&self.download, audience.download, "download", "a viewer's line could not take"),
            (&self.server_upload, audience.server_upload, "server_upload", "the server could not send"),
        ] {
            let rate_of_stream = stream.bitrate;
            if rate >= rate_of_stream {
                continue;
            }
            let words = format!("{who} a stream of {rate_of_stream} even once");
            return Err(match (said, bitrate) {
                (Some(said), _) => said.wrong(format!("{words}; expected at least that")),
                (None, Some(bitrate)) => bitrate.wrong(format!(
                    "{words}: its rate is {rate} unless audience.{key} says otherwise; expected no more than that, or \
                     an audience.{key} of \"{rate_of_stream}\" or more"
                )),
                (None, None) => self.wrong(words),
            });
        }
        Ok(audience)
    }
}

impl Section<ChurnKeys> {
    fn churn(&self, duration: Duration) -> Result<Churn, Problem> {
        let kill_share = self.kill_share.or_standard(0.0);
        let kill_at = match (&self.kill_at_s, &self.kill_share) {
            (Some(at), _) if **at >= duration => {
                return Err(at.wrong(format!("the run is over after {duration}; expected an earlier time")));
            }
            (Some(at), _) if kill_share > 0.0 && **at < OPENING => {
                return Err(at.wrong(format!(
                    "the first viewer comes after {OPENING}, so that nobody would die; expected a later time"
                )));
            }
            (Some(at), _) => **at,
            (None, Some(share)) if **share > 0.0 => {
                return Err(self.missing("kill_at_s", format!("when a share of {} dies", **share)));
            }
            (None, _) => Duration::ZERO,
        };
        Ok(Churn { mean_stay: self.mean_stay_s.as_ref().map(|stay| **stay), kill_share, kill_at })
    }
}

impl Section<LiarKeys> {
    fn liars(&self) -> Result<Liars, Problem> {
        let standard = Liars::default();
        let liars = Liars {
            free_riders: self.free_riders.or_standard(standard.free_riders),
            claimers: self.claimers.or_standard(standard.claimers),
            claim_factor: self.claim_factor.or_standard(standard.claim_factor),
            droppers: self.droppers.or_standard(standard.droppers),
            poisoners: self.poisoners.or_standard(standard.poisoners),
        };
        let sum = liars.free_riders + liars.claimers + liars.droppers + liars.poisoners;
        match sum <= 1.0 + 1e-9 {
            true => Ok(liars),
            false => Err(self.wrong(format!("nobody lies in two ways: shares add up to {sum}; expected at most 1"))),
        }
    }
}

impl Section<HelperKeys> {
    fn helper(&self, scenario: &StreamScenario) -> Result<Helper, Problem> {
        let (least, most) = (self.least.or_standard(scenario.stream.bitrate), *self.most);
        if scenario.stream.mode != Mode::Mesh {
            return Err(self
                .wrong("a server only helps where a mesh alone carries the stream; expected stream.mode = \"mesh\""));
        }
        if most < least || most > scenario.audience.server_upload {
            let upload = scenario.audience.server_upload;
            return Err(self
                .most
                .wrong(format!("expected at least {least} and at most {upload}, which is its line's")));
        }
        Ok(Helper { least, most })
    }
}

impl From<&StreamScenario> for File {
    fn from(scenario: &StreamScenario) -> File {
        let StreamScenario { stream, audience, churn, liars, helper, .. } = scenario;
        File {
            run: Some(said(Run { seconds: some(scenario.duration), seed: some(scenario.seed) })),
            stream: Some(said(StreamKeys {
                bitrate: some(stream.bitrate),
                slices: some(u64::from(stream.slices)),
                mode: some(stream.mode),
                exploration: stream.exploration.map(said),
                buffer_s: some(stream.buffer),
                controller: some(stream.controller),
                parameters: Parameters::written(&stream.parameters),
            })),
            audience: said(AudienceKeys {
                clients: said(audience.clients as u64),
                arrival_s: some(audience.arrival),
                upload: some(audience.upload.clone()),
                upload_every_s: audience.upload_every.map(said),
                download: some(audience.download),
                server_upload: some(audience.server_upload),
                span_ms: some(audience.span),
                access_ms: some(audience.access),
                loss: some(audience.loss),
            }),
            churn: Some(said(ChurnKeys {
                mean_stay_s: churn.mean_stay.map(said),
                kill_share: some(churn.kill_share),
                kill_at_s: some(churn.kill_at),
            })),
            liars: Some(said(LiarKeys {
                free_riders: some(liars.free_riders),
                claim_factor: some(liars.claim_factor),
                claimers: some(liars.claimers),
                droppers: some(liars.droppers),
                poisoners: some(liars.poisoners),
            })),
            helper: helper.map(|helper| said(HelperKeys { least: some(helper.least), most: said(helper.most) })),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::documented::{documented, keys};
    use super::*;
    use crate::file::{AnyScenario, Override, ScenarioError, parse_any};

    fn parsed(text: &str) -> Result<StreamScenario, ScenarioError> {
        match parse_any(text, "s.toml", &[])? {
            AnyScenario::Stream(scenario) => Ok(scenario),
            other => panic!("a stream: {other:?}"),
        }
    }

    fn refused(text: &str) -> String {
        parsed(text).unwrap_err().to_string()
    }

    #[test]
    fn an_audience_is_all_that_must_be_said() {
        let scenario = parsed("[audience]\nclients = 7\n").unwrap();
        assert_eq!(scenario.audience.clients, 7);
        assert_eq!((scenario.stream.controller.name, scenario.stream.slices), ("copa", 20));
        assert!(refused("[stream]\n").contains("audience"));
    }

    #[test]
    fn what_is_written_is_read_as_it_was() {
        let text = "[run]\nseconds = 20\nseed = 9\n[stream]\nbitrate = \"1 Mbit/s\"\nslices = 4\nmode = \"mesh\"\n\
                    buffer_s = 1.5\ncontroller = \"copa\"\n[stream.parameters]\ndelta = 0.25\n[audience]\nclients = 3\n\
                    upload = { least = \"1 Mbit/s\", most = \"5 Mbit/s\" }\nupload_every_s = 10\n[churn]\nmean_stay_s = 30\nkill_share = 0.25\n\
                    kill_at_s = 10\n[liars]\nclaimers = 0.2\nclaim_factor = 4\n[helper]\nleast = \"2 Mbit/s\"\n\
                    most = \"10 Mbit/s\"\n";
        let scenario = parsed(text).unwrap();
        let written = AnyScenario::Stream(scenario.clone()).to_toml();
        assert_eq!(format!("{:?}", parsed(&written).unwrap()), format!("{scenario:?}"), "{written}");
    }

    #[test]
    fn a_helper_is_for_a_mesh_and_sends_no_more_than_its_line() {
        let helper = |mode: &str, most: &str| {
            let text = format!("[stream]\nmode = \"{mode}\"\n[audience]\nclients = 3\n[helper]\nmost = \"{most}\"\n");
            parsed(&text).map(|scenario| scenario.helper.expect("it is there"))
        };
        let mbit = |mbit: u64| Rate::from_bits_per_sec(mbit * 1_000_000);
        assert_eq!(helper("mesh", "10 Mbit/s").unwrap(), Helper { least: mbit(2), most: mbit(10) });
        assert!(helper("mesh", "21 Mbit/s").unwrap_err().to_string().contains("at most"));
        assert!(helper("mesh", "1 Mbit/s").unwrap_err().to_string().contains("at least"));
        assert!(helper("hybrid", "10 Mbit/s").unwrap_err().to_string().contains("mesh"));
    }

    #[test]
    fn upload_is_a_rate_a_list_or_a_distribution() {
        let upload = |said: &str| {
            parsed(&format!("[audience]\nclients = 3\nupload = {said}\n")).map(|scenario| scenario.audience.upload)
        };
        let mbit = |mbit: u64| Rate::from_bits_per_sec(mbit * 1_000_000);
        assert_eq!(upload("\"2 Mbit/s\"").unwrap(), Rates::InTurn(vec![mbit(2)]));
        assert_eq!(upload("[\"2 Mbit/s\", \"3 Mbit/s\"]").unwrap(), Rates::InTurn(vec![mbit(2), mbit(3)]));
        let uniform = "{ least = \"2 Mbit/s\", most = \"3 Mbit/s\" }";
        assert_eq!(upload(uniform).unwrap(), Rates::Uniform(mbit(2), mbit(3)));
        let wrong = "{ least = \"4 Mbit/s\", most = \"3 Mbit/s\" }";
        assert!(upload(wrong).unwrap_err().to_string().contains("at least"));
        assert!(upload("[]").unwrap_err().to_string().contains("no rate"));
        let anew = format!("{uniform}\nupload_every_s = 10");
        assert_eq!(upload(&anew).unwrap(), Rates::Uniform(mbit(2), mbit(3)));
        let wrong = "\"2 Mbit/s\"\nupload_every_s = 10";
        assert!(upload(wrong).unwrap_err().to_string().contains("a uniform distribution"));
        assert!(upload("3").unwrap_err().to_string().contains("a rate as"));
    }

    #[test]
    fn drawn_rates_have_their_mean_and_are_the_same_for_the_same_seed() {
        let mbit = |mbit: u64| Rate::from_bits_per_sec(mbit * 1_000_000);
        for rates in [Rates::Uniform(mbit(2), mbit(8)), Rates::LogNormal { median: mbit(5), sigma: 0.5 }] {
            let sum: f64 = (0..10_000).map(|line| rates.of(line, 3).bytes_per_sec()).sum();
            let share = sum / 10_000.0 / rates.mean().bytes_per_sec();
            assert!((0.97..1.03).contains(&share), "{rates:?}: {share}");
            assert_eq!(rates.of(17, 3), rates.of(17, 3));
            assert_ne!(rates.of(17, 3), rates.of(17, 4));
        }
    }

    #[test]
    fn what_cannot_be_is_refused_with_line_and_key() {
        for (text, key, word) in [
            ("[audience]\nclients = 0\n", "audience.clients", "from 1"),
            ("[audience]\nclients = 3\n[stream]\nbitrate = \"2 Gbit/s\"\n", "stream.bitrate", "at most"),
            ("[audience]\nclients = 3\ndownload = \"1 Mbit/s\"\n", "audience.download", "even once"),
            ("[audience]\nclients = 3\nserver_upload = \"1 Mbit/s\"\n", "audience.server_upload", "even once"),
            (
                "[audience]\nclients = 3\n[stream]\nbitrate = \"30 Mbit/s\"\n",
                "stream.bitrate",
                "audience.server_upload",
            ),
            (
                "[audience]\nclients = 3\nserver_upload = \"100 Mbit/s\"\n[stream]\nbitrate = \"60 Mbit/s\"\n",
                "stream.bitrate",
                "audience.download",
            ),
            ("[run]\nseconds = 8\n[audience]\nclients = 3\n", "run.seconds", "audience.arrival_s"),
            (
                "[audience]\nclients = 3\n[churn]\nkill_share = 1\nkill_at_s = 0\n",
                "churn.kill_at_s",
                "nobody would die",
            ),
            ("[audience]\nclients = 3\nloss = 1\n", "audience.loss", "ever arrive"),
            ("[audience]\nclients = 3\narrival_s = 60\n", "audience.arrival_s", "before all have come"),
            ("[audience]\nclients = 3\n[churn]\nkill_share = 0.2\n", "churn", "kill_at_s"),
            ("[audience]\nclients = 3\n[churn]\nkill_at_s = 60\n", "churn.kill_at_s", "earlier"),
            ("[audience]\nclients = 3\n[liars]\ndroppers = 0.6\npoisoners = 0.6\n", "liars", "at most 1"),
            ("[audience]\nclients = 3\n[stream]\nmode = \"meshes\"\n", "stream.mode", "did you mean \"mesh\""),
            ("[audience]\nclients = 3\n[stream]\ncontroller = \"cubik\"\n", "stream.controller", "cubic"),
            ("[audience]\nclients = 3\n[stream]\nbuffer = 3\n", "stream.buffer", "buffer_s"),
            ("[audience]\nclients = 3\n[overlay]\npeers = 3\n", "overlay", "not several"),
        ] {
            let error = refused(text);
            assert!(error.contains(key) && error.contains(word) && error.contains("s.toml:"), "{error}");
        }
    }

    #[test]
    fn an_override_takes_the_place_of_a_value() {
        let sets = [Override::set("liars.poisoners=0.05").unwrap(), Override::set("run.seconds=5").unwrap()];
        let text = "[audience]\nclients = 3\narrival_s = 1\n";
        let AnyScenario::Stream(scenario) = parse_any(text, "s.toml", &sets).unwrap() else { panic!("a stream") };
        assert_eq!((scenario.liars.poisoners, scenario.duration), (0.05, Duration::from_millis(5000)));
    }

    #[test]
    fn every_key_is_documented_and_every_documented_key_is_read() {
        let page = include_str!("../../../../docs/stream-scenarios.md");
        assert_eq!(documented(page, "[run]"), keys::<Run>());
        assert_eq!(documented(page, "[stream]"), keys::<StreamKeys>());
        assert_eq!(documented(page, "[audience]"), keys::<AudienceKeys>());
        assert_eq!(documented(page, "[churn]"), keys::<ChurnKeys>());
        assert_eq!(documented(page, "[liars]"), keys::<LiarKeys>());
        let tables: BTreeSet<String> = keys::<File>().into_iter().filter(|table| table != "run").collect();
        assert_eq!(tables, OWN.iter().map(|table| (*table).to_owned()).collect());
    }
}
