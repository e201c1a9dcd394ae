//! What agents and coordinators tell each other.

use anabranch_control::flow::Bounds;
use anabranch_control::time::Duration;
use anabranch_control::units::{Bytes, Rate};

/// What goes reliably: the terms on which the coordinator takes reports, when a session begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// Which life of the coordinator: a later one has a higher number.
    pub epoch: u64,
    /// How often reports are wanted.
    pub every: Duration,
}

/// What may be lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Datagram {
    /// To the coordinator.
    Report(Report),
    /// From the coordinator.
    Directive(Directive),
}

/// What an agent has seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// Ascending over a session.
    pub number: u64,
    /// When that was so, on the agent's clock. Rates are differences of counts over differences of this.
    pub at: Duration,
    /// How long after it the next comes, if nothing changes: what is heard of an agent holds for some of these (RFC
    /// 2205, 3.7).
    pub period: Duration,
    /// What.
    pub seen: Seen,
}

/// What an agent can see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// At a host that sends.
    Host(HostSeen),
    /// At a link.
    Link(LinkSeen),
}

/// A host that sends. Counts are totals since its agent began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostSeen {
    /// Flows that have something to send.
    pub flows: u32,
    /// What has left, on the wire.
    pub sent: Bytes,
    /// Of that, what was lost.
    pub lost: Bytes,
    /// The least round trip of all flows, if there is a sample.
    pub min_rtt: Option<Duration>,
    /// The mean of their smoothed round trips.
    pub rtt: Option<Duration>,
    /// The most that the host can send, if it knows.
    pub limit: Option<Rate>,
}

/// A link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkSeen {
    /// What it carries, if the monitor knows better than the coordinator.
    pub capacity: Option<Rate>,
    /// What has left over it since the monitor began, whoever sent it.
    pub sent: Bytes,
    /// What waits before it, if known.
    pub queued: Option<Bytes>,
    /// Packets that it dropped since the monitor began.
    pub dropped: u64,
}

/// How a host makes its flows keep to their share.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Actuator {
    /// A window that the flow begins with and never exceeds; its answer to loss stays.
    #[default]
    Maximum,
    /// A window, whatever the flow's controller says.
    Fixed,
    /// The highest pacing rate; the window is the controller's.
    Rate,
}

/// What a host may send, for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Directive {
    /// Which life of the coordinator it comes from.
    pub epoch: u64,
    /// Ascending over an epoch.
    pub number: u64,
    /// All flows of the host together.
    pub rate: Rate,
    /// What the host's flows keep in any case, all together: no window is smaller.
    pub minimum: Rate,
    /// How flows keep to it.
    pub actuator: Actuator,
    /// For how long from its arrival.
    pub lifetime: Duration,
}

impl Directive {
    /// The bounds of one of `flows` flows whose least round trip is `min_rtt`, without an end. A flow without a
    /// round trip yet has no bounds but a rate.
    pub fn bounds(&self, flows: u32, min_rtt: Option<Duration>) -> Bounds {
        let each = |rate: Rate| Rate::from_bits_per_sec(rate.bits_per_sec() / u64::from(flows.max(1)));
        let rate = each(self.rate);
        let (window, minimum) = match (min_rtt, self.actuator) {
            (_, Actuator::Rate) => return Bounds { rate: Some(rate), ..Bounds::default() },
            (None, _) => return Bounds::default(),
            // Not nothing: a flow that may not send never learns when that ends.
            (Some(rtt), _) => ((rate * rtt).max(Bytes::new(1)), each(self.minimum) * rtt),
        };
        let minimum = Some(minimum.min(window)).filter(|minimum| *minimum > Bytes::ZERO);
        match self.actuator {
            Actuator::Fixed => Bounds { fixed: Some(window), ..Bounds::default() },
            _ => Bounds { initial: Some(window), minimum, maximum: Some(window), ..Bounds::default() },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIRECTIVE: Directive = Directive {
        epoch: 1,
        number: 1,
        rate: Rate::from_bits_per_sec(80_000_000),
        minimum: Rate::from_bits_per_sec(8_000_000),
        actuator: Actuator::Maximum,
        lifetime: Duration::from_millis(500),
    };

    #[test]
    fn a_hosts_rate_is_divided_by_its_flows_and_multiplied_by_their_own_round_trips() {
        let bounds = DIRECTIVE.bounds(4, Some(Duration::from_millis(10)));
        // A quarter of 80 Mbit/s for 10 ms, and a quarter of 8 Mbit/s.
        let (window, least) = (Bytes::new(25_000), Bytes::new(2500));
        let expected =
            Bounds { initial: Some(window), maximum: Some(window), minimum: Some(least), ..Bounds::default() };
        assert_eq!(bounds, expected);
        assert_eq!(DIRECTIVE.bounds(4, Some(Duration::from_millis(20))).maximum, Some(Bytes::new(50_000)));
        let fixed = Directive { actuator: Actuator::Fixed, ..DIRECTIVE };
        assert_eq!(fixed.bounds(4, Some(Duration::from_millis(10))).fixed, Some(window));
    }

    #[test]
    fn a_flow_without_a_round_trip_has_no_window_but_may_have_a_rate() {
        assert_eq!(DIRECTIVE.bounds(1, None), Bounds::default());
        let paced = Directive { actuator: Actuator::Rate, ..DIRECTIVE };
        let rate = Some(Rate::from_bits_per_sec(40_000_000));
        assert_eq!(paced.bounds(2, None), Bounds { rate, ..Bounds::default() });
    }

    #[test]
    fn no_share_is_a_window_of_nothing_and_no_minimum_exceeds_its_window() {
        let nothing = Directive { rate: Rate::ZERO, ..DIRECTIVE };
        let bounds = nothing.bounds(1, Some(Duration::from_millis(10)));
        assert_eq!((bounds.maximum, bounds.minimum), (Some(Bytes::new(1)), Some(Bytes::new(1))));
    }
}
