//! What a host's row of an observation can hold.
//!
//! Every value is what was measured until the observation's instant: of the span since the one before, where it
//! is a rate or a share. Nothing in it is known earlier than it happens, except what says so
//! ([`Feature::is_deployable`]).

use super::error::SightError;

/// One number of a host's row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Feature {
    /// What the host's flows had acknowledged.
    Throughput,
    /// What waits for the link.
    Queue,
    /// What the link dropped for want of room.
    Dropped,
    /// Whether a flow of the host has something to send.
    Active,
    /// How many have.
    Flows,
    /// The action before.
    PreviousRate,
    /// What cross traffic took of the link.
    CrossShare,
    /// Since when cross traffic is there, or is not.
    CrossAge,
    /// How long it was there the last time.
    CrossOn,
    /// How long it was away the last time.
    CrossOff,
    /// The round trip of the host's flows.
    RoundTrip,
    /// What the host's flows lost.
    Loss,
    /// What cross traffic will take when this is acted on, if it comes and goes as the last time.
    CrossExpected,
    /// What cross traffic will take in the span to come.
    CrossNext,
    /// What the link carries in the host's least round trip.
    Pipe,
    /// How many hosts have something to send.
    Hosts,
    /// The action before, which whoever directs knows at once, however late reports are: `told` in files.
    PromptRate,
}

/// The link as it was seen at an observation's instant.
#[derive(Clone, Copy, Debug, Default)]
pub struct LinkSeen {
    /// What waits, of what may.
    pub queue: f64,
    /// Of the packets that came, those that were dropped.
    pub dropped: f64,
    /// Cross traffic's share of the link.
    pub cross: f64,
    /// The same for the span to come.
    pub cross_next: f64,
    /// The same for the step in which what is seen is acted on, if cross traffic comes and goes as the last time.
    pub cross_expected: f64,
    /// Seconds since cross traffic came or went.
    pub cross_age: f64,
    /// Seconds that it was there, and away, the last time.
    pub cross_on: f64,
    /// See above.
    pub cross_off: f64,
    /// Hosts that have something to send.
    pub hosts: usize,
}

/// A host as it was seen then.
#[derive(Clone, Copy, Debug, Default)]
pub struct HostSeen {
    /// Its data, with headers, of what the link carries.
    pub throughput: f64,
    /// Flows that have something to send.
    pub active: usize,
    /// The relative rate that it was directed.
    pub rate: f64,
    /// The mean round trip of its flows over their least; 0 where none is known.
    pub round_trip: f64,
    /// Of its packets, those that were lost.
    pub loss: f64,
    /// Packets that the link carries in the least round trip of its flows; 0 where none is known.
    pub pipe: f64,
}

impl Feature {
    /// The six of [C3] in our reading, which are the default.
    pub const C3: [Feature; 6] =
        [Feature::Throughput, Feature::Queue, Feature::Dropped, Feature::Active, Feature::Flows, Feature::PreviousRate];

    /// All.
    pub const ALL: [Feature; 17] = [
        Feature::Throughput,
        Feature::Queue,
        Feature::Dropped,
        Feature::Active,
        Feature::Flows,
        Feature::PreviousRate,
        Feature::CrossShare,
        Feature::CrossAge,
        Feature::CrossOn,
        Feature::CrossOff,
        Feature::CrossExpected,
        Feature::RoundTrip,
        Feature::Loss,
        Feature::CrossNext,
        Feature::Pipe,
        Feature::Hosts,
        Feature::PromptRate,
    ];

    /// Its name in options and files.
    pub fn name(self) -> &'static str {
        match self {
            Feature::Throughput => "throughput",
            Feature::Queue => "queue",
            Feature::Dropped => "dropped",
            Feature::Active => "active",
            Feature::Flows => "flows",
            Feature::PreviousRate => "previous_rate",
            Feature::CrossShare => "cross_share",
            Feature::CrossAge => "cross_age",
            Feature::CrossOn => "cross_on",
            Feature::CrossOff => "cross_off",
            Feature::RoundTrip => "round_trip",
            Feature::Loss => "loss",
            Feature::CrossExpected => "cross_expected",
            Feature::CrossNext => "cross_next",
            Feature::Pipe => "pipe",
            Feature::Hosts => "hosts",
            Feature::PromptRate => "told",
        }
    }

    /// That of the name.
    pub fn named(name: &str) -> Option<Feature> {
        Feature::ALL.into_iter().find(|feature| feature.name() == name)
    }

    /// All names, for people.
    pub fn names() -> String {
        Feature::ALL.map(Feature::name).join(", ")
    }

    /// Those of the names, in their order.
    ///
    /// # Errors
    ///
    /// A name that nothing has, or that stands there twice.
    pub fn all_named(names: &[String]) -> Result<Vec<Feature>, SightError> {
        let mut features = Vec::new();
        for name in names {
            let feature = Feature::named(name).ok_or_else(|| unknown(name))?;
            if features.contains(&feature) {
                return Err(SightError::Twice(name.clone()));
            }
            features.push(feature);
        }
        Ok(features)
    }

    /// What it measures, in which unit.
    pub fn unit(self) -> &'static str {
        match self {
            Feature::Throughput => {
                "data that the host's flows had acknowledged, with headers, over what the link carries"
            }
            Feature::Queue => "the wait at the link over the longest wait that its queue allows",
            Feature::Dropped => "packets that the link dropped over those that came to it",
            Feature::Active => "1 while a flow of the host has something to send, else 0",
            Feature::Flows => "flows of the host that have something to send, over 8",
            Feature::PreviousRate => {
                "the host's relative rate, as the action before had it; an initial window's log2 over 10"
            }
            Feature::CrossShare => "cross traffic that arrived over what the link carries",
            Feature::CrossAge => "seconds since cross traffic came or went, over 10",
            Feature::CrossOn => "seconds that cross traffic was there the last time, over 10",
            Feature::CrossOff => "seconds that cross traffic was away the last time, over 10",
            Feature::RoundTrip => "the mean round trip of the host's flows over their least one, less 1",
            Feature::Loss => "packets that the host's flows lost over those that they sent",
            Feature::CrossExpected => {
                "cross traffic of the step in which it is acted on over what the link carries, if it comes and goes as the last time"
            }
            Feature::CrossNext => "cross traffic of the step to come over what the link carries",
            Feature::Pipe => {
                "packets that the link carries in the least round trip of the host's flows, log2 of one more, over 10"
            }
            Feature::Hosts => "hosts that have something to send, log2 of one more, over 10",
            Feature::PromptRate => "what previous_rate is, known at once where all else is late",
        }
    }

    /// The least and the highest value: what lies beyond is cut off.
    pub fn range(self) -> (f32, f32) {
        match self {
            // What was held up before a span may be acknowledged in it.
            Feature::Throughput => (0.0, 2.0),
            Feature::Flows => (0.0, 4.0),
            Feature::PreviousRate | Feature::PromptRate => (0.0, super::action::MOST),
            Feature::RoundTrip => (0.0, 10.0),
            Feature::Pipe => (0.0, 2.0),
            Feature::Queue
            | Feature::Dropped
            | Feature::Active
            | Feature::CrossShare
            | Feature::CrossAge
            | Feature::CrossOn
            | Feature::CrossOff
            | Feature::CrossExpected
            | Feature::Loss
            | Feature::Hosts
            | Feature::CrossNext => (0.0, 1.0),
        }
    }

    /// Whether a coordinator of real hosts can know it: from its senders' and routers' reports.
    pub fn is_deployable(self) -> bool {
        self != Feature::CrossNext
    }

    /// Whether a coordinator knows it from who watches the link alone.
    pub fn needs_monitor(self) -> bool {
        let is_of_cross_traffic = matches!(
            self,
            Feature::CrossShare | Feature::CrossAge | Feature::CrossOn | Feature::CrossOff | Feature::CrossExpected
        );
        is_of_cross_traffic || self.needs_queue()
    }

    /// Whether it is of the link's queue.
    pub fn needs_queue(self) -> bool {
        matches!(self, Feature::Queue | Feature::Dropped)
    }

    /// Whether a coordinator knows it from hosts that tell round trips, and with them what they lost.
    pub fn needs_round_trips(self) -> bool {
        matches!(self, Feature::RoundTrip | Feature::Loss | Feature::Pipe)
    }

    /// Its value.
    pub fn value(self, link: &LinkSeen, host: &HostSeen) -> f32 {
        let value = match self {
            Feature::Throughput => host.throughput,
            Feature::Queue => link.queue,
            Feature::Dropped => link.dropped,
            Feature::Active => f64::from(u8::from(host.active > 0)),
            Feature::Flows => host.active as f64 / 8.0,
            Feature::PreviousRate | Feature::PromptRate => host.rate,
            Feature::CrossShare => link.cross,
            Feature::CrossAge => link.cross_age / 10.0,
            Feature::CrossOn => link.cross_on / 10.0,
            Feature::CrossOff => link.cross_off / 10.0,
            Feature::RoundTrip => host.round_trip - 1.0,
            Feature::Loss => host.loss,
            Feature::CrossExpected => link.cross_expected,
            Feature::CrossNext => link.cross_next,
            Feature::Pipe => libm::log2(1.0 + host.pipe) / 10.0,
            Feature::Hosts => libm::log2(1.0 + link.hosts as f64) / 10.0,
        };
        let (low, high) = self.range();
        (value as f32).clamp(low, high)
    }
}

fn unknown(name: &str) -> SightError {
    SightError::Unknown { kind: "feature", name: name.to_owned(), known: Feature::names() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_feature_is_found_by_its_name_and_no_two_share_one() {
        for feature in Feature::ALL {
            assert_eq!(Feature::named(feature.name()), Some(feature));
            let (low, high) = feature.range();
            assert!(low < high);
        }
        assert_eq!(Feature::named("goodput"), None);
    }

    #[test]
    fn values_are_cut_at_their_ranges_and_what_is_not_known_is_0() {
        let nothing = (LinkSeen::default(), HostSeen::default());
        let much = LinkSeen {
            queue: 9.0,
            dropped: 9.0,
            cross: 9.0,
            cross_next: 9.0,
            cross_age: 900.0,
            cross_on: 900.0,
            cross_off: 900.0,
            cross_expected: 9.0,
            hosts: 9000,
        };
        let host = HostSeen { throughput: 9.0, active: 900, rate: 9.0, round_trip: 900.0, loss: 9.0, pipe: 1e9 };
        for feature in Feature::ALL {
            assert_eq!(feature.value(&nothing.0, &nothing.1), 0.0, "{feature:?}");
            assert_eq!(feature.value(&much, &host), feature.range().1, "{feature:?}");
        }
    }

    #[test]
    fn only_what_looks_ahead_is_not_deployable() {
        let hidden: Vec<_> = Feature::ALL.into_iter().filter(|feature| !feature.is_deployable()).collect();
        assert_eq!(hidden, [Feature::CrossNext]);
        assert!(Feature::C3.into_iter().all(Feature::is_deployable));
    }
}
