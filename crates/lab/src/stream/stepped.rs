//! A live stream that is stepped from outside: observed by fixed indices, begun again with another seed, and copied to
//! come back to. Its audience comes and goes as the scenario has it; whoever steps it may send viewers away and change
//! their lines besides. A clone is a snapshot that goes on as the original would.

use anabranch_control::time::Time;
use anabranch_control::units::Rate;
use anabranch_proto::stream::feeds::Feed;
use anabranch_scenario::stream::StreamScenario;
use anabranch_sim::access::Direction;
use anabranch_sim::fabric::NodeId;

use super::measuring::StreamMeasured;
use super::run::Stage;

/// What [`SteppedStream::observe`] writes of a viewer, in its order, with units. "New" is since the viewer was observed
/// last. What is not known yet is 0, and so is all of a viewer that has not come or has gone.
pub const OBSERVATION: [(&str, &str); OBSERVATION_LENGTH] = [
    ("here", "1 while it is there, else 0"),
    ("let_in", "1 while the server has let it in, else 0"),
    ("played_packets_s", "new packets that went to its player, packets/s"),
    ("skipped_packets_s", "new packets that its player missed, packets/s"),
    ("download_kbyte_s", "new bytes that its line brought, with all headers, kB/s"),
    ("upload_kbyte_s", "new bytes that its line sent, with all headers, kB/s"),
    ("line_kbyte_s", "what its line can send, kB/s"),
    ("fed_share", "of the slices, those that come from somebody, 0 to 1"),
    ("fed_by_viewers_share", "of the slices, those that come from other viewers, 0 to 1"),
];

/// Numbers in an observation.
pub const OBSERVATION_LENGTH: usize = 9;

/// A viewer as it was when it was observed last.
#[derive(Clone, Copy, Debug, Default)]
struct Observed {
    at: Time,
    played: u64,
    skipped: u64,
    down: u64,
    up: u64,
}

/// A stream at work. Viewers are numbered from 0 in the order of their coming; who comes in the place of another has a
/// number of its own.
#[derive(Clone)]
#[allow(missing_debug_implementations, reason = "a world has none")]
pub struct SteppedStream {
    stage: Stage,
    /// By viewer, as far as any was observed.
    observed: Vec<Observed>,
}

/// Viewer 0 is the node after the server's.
fn node(viewer: usize) -> NodeId {
    NodeId(viewer as u32 + 1)
}

impl SteppedStream {
    /// The server is there; nothing has happened yet.
    ///
    /// # Panics
    ///
    /// If the scenario's controller refuses its parameters, which whoever makes a scenario has to check.
    pub fn new(scenario: &StreamScenario) -> SteppedStream {
        SteppedStream { stage: Stage::new(scenario), observed: Vec::new() }
    }

    /// Back to the beginning, with what chance is with `seed`: what one that is new has with that seed. The world's
    /// memory stays; peers are made anew.
    pub fn reset(&mut self, seed: u64) {
        self.stage.reset(seed);
        self.observed.clear();
    }

    /// The time up to which everything has happened.
    pub fn now(&self) -> Time {
        self.stage.world.now()
    }

    /// Lets everything happen that happens before `until`; nobody comes or goes by the scenario after its end.
    pub fn step(&mut self, until: Time) {
        self.stage.play_until(until, &());
    }

    /// Viewers that have come, those that have gone included.
    pub fn viewers(&self) -> usize {
        self.stage.world.len() - 1
    }

    fn is_here(&self, viewer: usize) -> bool {
        self.stage.world.node(node(viewer)).is_some()
    }

    /// A viewer that is there goes without a word.
    pub fn leave(&mut self, viewer: usize) {
        self.stage.bury(self.now(), node(viewer));
    }

    /// From now on the line of a viewer that is there sends `rate`, whatever it was to be; the viewer is not told.
    pub fn set_line(&mut self, viewer: usize, rate: Rate) {
        if self.is_here(viewer) {
            self.stage.world.fabric_mut().set_rate(node(viewer), Direction::Up, rate);
        }
    }

    /// Writes what [`OBSERVATION`] says of `viewer`.
    pub fn observe(&mut self, viewer: usize, into: &mut [f32; OBSERVATION_LENGTH]) {
        *into = [0.0; OBSERVATION_LENGTH];
        if !self.is_here(viewer) {
            return;
        }
        let (now, node) = (self.now(), node(viewer));
        let world = &mut self.stage.world;
        let line = world.fabric_mut().rate(node, Direction::Up).map_or(0.0, Rate::bytes_per_sec);
        let bytes = |direction| world.fabric().count(node, direction).bytes;
        let (down, up) = (bytes(Direction::Down), bytes(Direction::Up));
        let Some(watched) = world.observer().watched.get(&node.0) else { return };
        let seen = Observed { at: now, played: watched.played, skipped: watched.skipped, down, up };
        let (joined, is_let_in) = (watched.joined, watched.let_in.is_some());
        if self.observed.len() <= viewer {
            self.observed.resize(viewer + 1, Observed::default());
        }
        let before = std::mem::replace(&mut self.observed[viewer], seen);
        let seconds = now.since(before.at.max(joined)).as_secs_f64();
        let rate = |new: u64| if seconds > 0.0 { new as f64 / seconds } else { 0.0 };
        let slices = self.stage.scenario.stream.slices;
        let client = self.stage.client(node);
        let fed = |by: fn(Feed) -> bool| {
            let count = client.map_or(0, |client| (0..slices).filter(|&slice| by(client.feed(slice))).count());
            count as f64 / f64::from(slices)
        };
        *into = [
            1.0,
            f64::from(u8::from(is_let_in)),
            rate(seen.played - before.played),
            rate(seen.skipped - before.skipped),
            rate(down - before.down) / 1e3,
            rate(up - before.up) / 1e3,
            line / 1e3,
            fed(|feed| feed != Feed::None),
            fed(|feed| matches!(feed, Feed::Client(_))),
        ]
        .map(|number| number as f32);
    }

    /// What has been measured so far, as if the stream ended now.
    pub fn measured(&self) -> StreamMeasured {
        self.stage.clone().measured()
    }
}

#[cfg(test)]
mod tests {
    use anabranch_control::time::Duration;

    use super::*;
    use crate::soak::streams::draw;

    type Seen = [f32; OBSERVATION_LENGTH];

    /// What is seen of all viewers after each of `seconds` more seconds.
    fn course(stream: &mut SteppedStream, seconds: u64) -> Vec<Seen> {
        let mut seen = Vec::new();
        for _ in 0..seconds {
            stream.step(stream.now() + Duration::SECOND);
            for viewer in 0..stream.viewers() {
                let mut one = [f32::NAN; OBSERVATION_LENGTH];
                stream.observe(viewer, &mut one);
                seen.push(one);
            }
        }
        seen
    }

    fn of(seen: &Seen, name: &str) -> f32 {
        seen[OBSERVATION.iter().position(|(other, _)| *other == name).unwrap()]
    }

    /// Eight viewers of 2 Mbit/s, all there after two seconds.
    fn eight() -> StreamScenario {
        let mut scenario = StreamScenario::standard();
        (scenario.audience.clients, scenario.audience.arrival) = (8, Duration::SECOND);
        scenario
    }

    #[test]
    fn one_that_is_reset_is_as_one_that_is_new_with_that_seed() {
        // Drawn: all modes, with viewers who come, go, die and lie.
        for drawn in 1..=4 {
            let mut scenario = draw(drawn);
            let first_seed = scenario.seed;
            let mut stream = SteppedStream::new(&scenario);
            let first = course(&mut stream, 6);
            for seed in [first_seed + 1, first_seed] {
                stream.reset(seed);
                scenario.seed = seed;
                let mut new = SteppedStream::new(&scenario);
                let (again, fresh) = (course(&mut stream, 6), course(&mut new, 6));
                assert!(again == fresh && (seed == first_seed) == (again == first), "{drawn}, seed {seed}");
                // Debug's form: where nothing was measured, a number is no number.
                assert!(format!("{:?}", stream.measured()) == format!("{:?}", new.measured()), "{drawn}, seed {seed}");
            }
        }
    }

    #[test]
    fn what_is_observed_is_what_happened_in_the_units_that_are_named() {
        let scenario = eight();
        let mut stream = SteppedStream::new(&scenario);
        course(&mut stream, 10);
        let late = course(&mut stream, 5);
        assert_eq!((stream.viewers(), late.len()), (8, 40));
        let packets = scenario.stream.bitrate.bytes_per_sec() / 1316.0;
        for seen in &late {
            assert!(seen.iter().all(|number| number.is_finite() && *number >= 0.0), "{seen:?}");
            assert_eq!((of(seen, "here"), of(seen, "let_in"), of(seen, "fed_share")), (1.0, 1.0, 1.0), "{seen:?}");
            let due = f64::from(of(seen, "played_packets_s") + of(seen, "skipped_packets_s"));
            assert!((due - packets).abs() < 0.1 * packets, "{seen:?}");
            // What is played has come, and no line sends more than it can.
            assert!(f64::from(of(seen, "download_kbyte_s")) > 0.9 * packets * 1.316, "{seen:?}");
            assert!(of(seen, "upload_kbyte_s") <= 1.01 * of(seen, "line_kbyte_s"), "{seen:?}");
        }
        assert!(late.iter().any(|seen| of(seen, "fed_by_viewers_share") > 0.0));
        // Nothing new happens in no time.
        let mut again = [f32::NAN; OBSERVATION_LENGTH];
        stream.observe(0, &mut again);
        assert_eq!(again[2..6], [0.0; 4]);
        stream.observe(99, &mut again);
        assert_eq!(again, [0.0; OBSERVATION_LENGTH], "nobody");
    }

    #[test]
    fn who_is_sent_away_is_gone_and_a_line_that_is_narrowed_carries_less() {
        let mut stream = SteppedStream::new(&eight());
        course(&mut stream, 10);
        let mut other = stream.clone();
        let busiest = |stream: &mut SteppedStream| {
            let seen = course(stream, 1);
            let most =
                |a: &usize, b: &usize| of(&seen[*a], "upload_kbyte_s").total_cmp(&of(&seen[*b], "upload_kbyte_s"));
            (0..seen.len()).max_by(most).unwrap()
        };
        let viewer = busiest(&mut stream);
        assert_eq!(viewer, busiest(&mut other), "a clone is as the original");
        let narrow = Rate::from_bytes_per_sec(20_000);
        other.set_line(viewer, narrow);
        // Once what was on its way has left, over ten seconds: a packet more or less falls into one.
        let upload = |stream: &mut SteppedStream| {
            let seen = course(stream, 11);
            let seconds = seen.chunks(stream.viewers()).skip(1);
            seconds.map(|second| of(&second[viewer], "upload_kbyte_s")).sum::<f32>() / 10.0
        };
        let (narrowed, as_before) = (upload(&mut other), upload(&mut stream));
        assert!(narrowed <= 20.2 && as_before > 40.0, "{narrowed} and {as_before} kB/s");
        stream.leave(viewer);
        let mut seen = [f32::NAN; OBSERVATION_LENGTH];
        stream.observe(viewer, &mut seen);
        assert_eq!((seen, stream.viewers()), ([0.0; OBSERVATION_LENGTH], 8));
    }
}
