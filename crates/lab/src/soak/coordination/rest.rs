//! The end of a case: when what hosts may send over a link is at rest, and whether all is well then.

use anabranch_control::time::Time;
use anabranch_control::units::Rate;
use anabranch_proto::coordination::agent::Agent;
use anabranch_proto::coordination::budget::{lease, lifetime, period};
use anabranch_proto::coordination::coordinator::{Duty, LinkConfig};
use anabranch_proto::coordination::forecast::Expected;
use anabranch_proto::session::FlowSessions;

use super::stage::Stage;
use super::{CALM, COORDINATOR, Rule, TICK};

/// Rounds of reports, a decision and directives after which what hosts may send is at rest, once none is alone.
///
/// A host that is alone sends a third of its link C, two thirds of it at most more or less than it was directed. It
/// reports each P, of what it had sent at the last [`TICK`] T, and counts between two reports are taken to have grown
/// evenly. Where its rate changes by D between two, P + T apart if none is overtaken, they are wrong by D (P + T) / 4
/// at most, in the middle. That is taken for what others send in a span of P: hosts are directed q D too much or too
/// little, q = (P + T) / 4 P, 0.375 at the shortest P of 20 ms. Their rates then change by as much, and so on: after n
/// rounds 2/3 q^n C is left, 3.5 % of the link after three and 1.3 % after four, which the rule allows.
const ROUNDS: u64 = 4;

impl Stage<'_> {
    /// When a link is at rest, if no lease of its hosts ends before: delays have no longest value, and the one after which a host
    /// hears nothing for as long as its lease is drawn now and then in any calm. In a round what each has sent since
    /// is counted and comes, in as long as reports are worth something; a span passes that begins after that, and the coordinator
    /// decides; and directives come, for no lease ends. After troubles it is at rest when the calm is over in any case.
    fn rests(&self, link: usize) -> Time {
        let every = self.case.config.every;
        let hosts = self.case.config.hosts_of(link).into_iter().map(|place| {
            let held = self.agent(place as u32 + 1).and_then(Agent::budget);
            let rate = held.map_or(Rate::ZERO, |(directive, _)| directive.rate);
            let period = period(every, rate);
            let round = period + TICK + lease(period) + period + every + lifetime(every, rate);
            self.alone[place] + (round * ROUNDS).min(CALM)
        });
        hosts.max().unwrap_or(Time::ZERO)
    }

    pub(super) fn is_at_rest(&self, link: usize) -> bool {
        self.rests(link) <= self.world.now()
    }

    /// Whether all is well after a calm time.
    pub(super) fn is_well(&self) -> Result<(), (Rule, String)> {
        let config = &self.case.config;
        let sessions = self.world.node(COORDINATOR).map_or(0, FlowSessions::sessions);
        if sessions > 2 * config.members.len() {
            return Err((Rule::Bounded, format!("{sessions} sessions of {} members", config.members.len())));
        }
        for (place, member) in config.members.iter().enumerate() {
            let agent = self.agent(place as u32 + 1);
            let is_steered = match member.duty {
                Duty::Host { .. } => agent.is_some_and(|agent| agent.budget().is_some()),
                Duty::Monitor { .. } => agent.is_some_and(Agent::is_enrolled),
            };
            if !is_steered {
                return Err((Rule::Recovers, format!("{} has nothing to follow", member.name)));
            }
        }
        // What it would fill is the policy's to say; and by the last period others may be taken to go that stay.
        let is_judged = config.policy.is_none() && config.expected != Expected::LastPeriod;
        let by_rule = config.links.iter().enumerate().filter(|(link, _)| is_judged && self.is_at_rest(*link));
        for (link, LinkConfig { name, capacity, .. }) in by_rule {
            let is_monitored = config.is_monitored(link);
            let other = if is_monitored { self.other[link].bits_per_sec() as f64 } else { 0.0 };
            let usable = (capacity.bits_per_sec() as f64 * config.utilisation - other).max(0.0);
            let (mut granted, mut has_hungry) = (0.0, false);
            for (place, member) in config.members.iter().enumerate() {
                let Duty::Host { link: of, most, .. } = member.duty else { continue };
                if of != link || self.flows[place] == 0 {
                    continue;
                }
                let rate =
                    self.agent(place as u32 + 1).and_then(Agent::budget).map_or(Rate::ZERO, |(held, _)| held.rate);
                granted += rate.bits_per_sec() as f64;
                has_hungry |= rate < most;
            }
            // What is measured over a period is a few ticks off.
            let slack = 0.02 * capacity.bits_per_sec() as f64;
            if granted > usable + slack || has_hungry && granted < usable - slack {
                let what = format!("hosts may send {granted:.0} bit/s of {usable:.0} over {name}");
                return Err((Rule::Fills, what));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use anabranch_control::time::{Duration, Time};

    use super::super::tests::case;
    use super::super::{CALM, Case, Rule, TROUBLED, Trouble, run};

    /// The host is cut off from `at` on for `span`, which is longer than its lease.
    fn cut_off(case: &mut Case, at: Time, span: Duration) {
        case.troubles.push((at, Trouble::Cut(vec![1], true)));
        case.troubles.push((at + span, Trouble::Cut(vec![1], false)));
    }

    /// Its lease ends so late that it has none at the end, or that what it sent alone is taken for others' there.
    #[test]
    fn links_are_judged_once_they_are_at_rest_after_a_lease_that_ended() {
        use super::super::super::planted::{self, Breaks};
        let end = Time::ZERO + TROUBLED + CALM;
        for before in [300, 400, 500] {
            let mut case = case(1);
            cut_off(&mut case, Time::from_nanos(end.as_nanos() - before * 1_000_000), Duration::from_millis(350));
            let ran = run(&case, &()).expect("nobody interrupts it");
            assert_eq!((&ran.failures[..], ran.never_at_rest), (&[][..], 0), "{before} ms");
            let more = ran.simulated_hours * 3600.0 - end.as_secs_f64();
            assert!(more > 1.0 && more < 10.0, "{before} ms: {more} s longer");
            // It is judged then.
            let ran =
                planted::with(Breaks::Coordination(Rule::Fills), || run(&case, &())).expect("nobody interrupts it");
            assert_eq!(ran.failures.iter().map(|found| found.rule).collect::<Vec<_>>(), [Rule::Fills], "{before} ms");
        }
    }

    #[test]
    fn leases_that_go_on_ending_are_counted_and_broken_where_delays_are_constant() {
        let mut case = case(1);
        for second in 50..140 {
            cut_off(&mut case, Time::ZERO + Duration::SECOND * second, Duration::from_millis(350));
        }
        let ran = run(&case, &()).expect("nobody interrupts it");
        assert_eq!(ran.failures.iter().map(|found| found.rule).collect::<Vec<_>>(), [Rule::Recovers]);
        case.jitter = 0.01;
        let ran = run(&case, &()).expect("nobody interrupts it");
        assert_eq!((&ran.failures[..], ran.never_at_rest), (&[][..], 1));
    }
}
