//! A coordinator that tests give reports, one by one, as a driver does, and whose directives they take.

use anabranch_control::time::{Duration, Time};
use anabranch_control::units::Rate;
use anabranch_proto::coordination::coordinator::{Coordinator, CoordinatorConfig, CoordinatorEvent};
use anabranch_proto::coordination::fitness;
use anabranch_proto::coordination::message::{Datagram, Directive, HostSeen, LinkSeen, Report, Seen};
use anabranch_proto::session::{Application, Remote, SessionId};

use crate::standing::{Standing, coordinator};

pub const MBIT: fn(u64) -> Rate = |megabits| Rate::from_bits_per_sec(megabits * 1_000_000);
pub const CAPACITY: Rate = Rate::from_bits_per_sec(10_000_000);

pub fn at(millis: u64) -> Time {
    Time::ZERO + Duration::from_millis(millis)
}

pub struct Driven {
    pub coordinator: Coordinator<u32>,
    sessions: Standing,
    number: u64,
}

impl Driven {
    pub fn new(config: CoordinatorConfig) -> Driven {
        if let Some(policy) = &config.policy {
            fitness::check(policy, &config).unwrap();
        }
        Driven { coordinator: coordinator(&config), sessions: Standing::default(), number: 0 }
    }

    pub fn report(&mut self, now: Time, place: u32, seen: Seen) {
        self.report_of(now, now.since(Time::ZERO), place, seen);
    }

    /// The same by an agent's clock that says another time.
    pub fn report_of(&mut self, now: Time, clock: Duration, place: u32, seen: Seen) {
        self.number += 1;
        let period = self.coordinator.config().every;
        let report = Report { number: self.number, at: clock, period, seen };
        self.coordinator.on_datagram(now, SessionId(place), Datagram::Report(report), &mut self.sessions);
    }

    /// A member's session begins anew.
    pub fn open(&mut self, now: Time, place: u32) {
        let key = self.coordinator.config().members[place as usize].key;
        let remote = Remote { address: place, key, is_initiator: true };
        self.coordinator.on_open(now, SessionId(place), &remote, &mut self.sessions);
    }

    /// All of a moment: what each host has, and what its monitor says of the queue.
    pub fn report_all(&mut self, now: Time, hosts: [HostSeen; 2], link: LinkSeen) {
        (0..).zip(hosts).for_each(|(place, host)| self.report(now, place, Seen::Host(host)));
        self.report(now, 2, Seen::Link(link));
    }

    /// What is due at `now`, and the directives that leave then.
    pub fn act(&mut self, now: Time) -> Vec<(u32, Directive)> {
        while self.coordinator.timer(now) <= now {
            self.coordinator.on_timer(now, &mut self.sessions);
        }
        let mut directives = Vec::new();
        while let Some((session, datagram)) = self.coordinator.next_datagram(now) {
            let Datagram::Directive(directive) = datagram else { panic!("{datagram:?}") };
            directives.push((session.0, directive));
        }
        directives
    }

    pub fn take_events(&mut self) -> Vec<CoordinatorEvent> {
        std::mem::take(&mut self.sessions.0)
    }
}

pub fn host(flows: u32) -> HostSeen {
    HostSeen { flows, ..HostSeen::default() }
}
