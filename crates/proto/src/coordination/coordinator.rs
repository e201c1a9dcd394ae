//! The coordinator: takes reports, divides links, gives directives.

mod others;

use std::collections::{BTreeMap, VecDeque};

use anabranch_control::time::{Duration, Time};
use anabranch_control::units::{Bytes, Rate};

use self::others::Others;
use super::agent::{LEAST_PERIOD, LONGEST_PERIOD};
use super::budget::{lifetime, period_after, renewal};
use super::config::OfLink;
pub use super::config::{CoordinatorConfig, Duty, LinkConfig, Member, Share};
use super::counted::Counted;
use super::division::{Claim, divide, level};
pub use super::known::{Divided, Known, Untruth};
use super::message::{Datagram, Directive, Report, Seen, Terms};
use super::steered::Steered;
use crate::session::{Application, Closed, PeerKey, Remote, SessionId, Sessions};

/// Quarters of a period after a decision at which the next comes at the soonest, if a host's flows have begun or
/// ended.
const HASTE_QUARTERS: u64 = 1;

/// Monitors report this many times as often as hosts. A host's rate changes when it is told, in the middle of a period
/// of the monitor's, and counts between two reports are taken to have grown evenly: what others send would look
/// larger and smaller in turn, and hosts be told less and more, for ever.
const MONITORS_OFTENER: u64 = 4;

/// From the first session on, a link's monitor is waited for as long as one that is silent is believed. Until then
/// nobody knows what others send, and hosts are told nothing: on their own they share with it, as they did before.
const PATIENCE: Duration = super::IDLE_TIMEOUT;

/// Who goes on to say what cannot be is named again after this.
const UNTRUE_AGAIN: Duration = Duration::from_millis(60_000);

/// What an observer is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CoordinatorEvent {
    /// An agent has come: its place among the members.
    Came(usize),
    /// One is gone.
    Went(usize, Closed),
    /// One says what cannot be. It is told once in a while.
    Untrue(usize, Untruth),
    /// The policy decides for a link from now on.
    ByPolicy(usize),
    /// The rule decides for a link from now on, since something is not known that the policy sees.
    ByRule(usize),
    /// The policy sees at a link what no training had shown it. It is told once.
    Beyond(usize),
}

/// The machine.
#[derive(Clone, Debug)]
pub struct Coordinator<A> {
    config: CoordinatorConfig,
    by_key: BTreeMap<PeerKey, usize>,
    of_links: Vec<OfLink>,
    known: Vec<Known>,
    divided: Vec<Divided>,
    /// Until when each link's monitors are waited for, if it has any of which nothing is known yet; never before the
    /// first session.
    awaits: Vec<Option<Time>>,
    /// What is known of others than the hosts of each link.
    others: Vec<Others>,
    /// Each link's policy; none where the rule decides for good.
    steered: Vec<Option<Steered>>,
    /// What is to be reported to an observer.
    happened: VecDeque<CoordinatorEvent>,
    /// Which agent is at the other end of each session.
    members: BTreeMap<SessionId, usize>,
    /// To whom directives are to leave.
    to_direct: VecDeque<usize>,
    number: u64,
    decisions: u64,
    decided: Time,
    next: Time,
    /// When those who are here are told again what was decided.
    renews: Time,
    address: core::marker::PhantomData<A>,
}

impl<A> Coordinator<A> {
    /// Knows nothing of anybody yet.
    ///
    /// # Panics
    ///
    /// If a member's link is not there, two have the same key, `every` is zero, or a policy does not fit
    /// ([`super::fitness::check`]): those who read settings refuse that.
    pub fn new(config: CoordinatorConfig) -> Coordinator<A> {
        let by_key: BTreeMap<PeerKey, usize> =
            config.members.iter().enumerate().map(|(place, member)| (member.key, place)).collect();
        assert_eq!(by_key.len(), config.members.len(), "two members have the same key");
        assert!(config.every > Duration::ZERO, "a period of nothing");
        let of_links = OfLink::each(&config);
        let awaits = |of: &OfLink| (!of.monitors.is_empty()).then_some(Time::MAX);
        let steered = of_links.iter().enumerate().map(|(link, of)| Steered::new(&config, link, of));
        Coordinator {
            by_key,
            known: config.members.iter().map(|_| Known::default()).collect(),
            divided: config.links.iter().map(|_| Divided::default()).collect(),
            awaits: of_links.iter().map(awaits).collect(),
            others: vec![Others::unknown(config.expected); config.links.len()],
            steered: steered.collect(),
            of_links,
            happened: VecDeque::new(),
            members: BTreeMap::new(),
            to_direct: VecDeque::new(),
            number: 0,
            decisions: 0,
            decided: Time::ZERO,
            next: Time::ZERO,
            renews: Time::MAX,
            config,
            address: core::marker::PhantomData,
        }
    }

    /// What was settled.
    pub fn config(&self) -> &CoordinatorConfig {
        &self.config
    }

    /// What is known of each member, in their order.
    pub fn known(&self) -> &[Known] {
        &self.known
    }

    /// How each link was divided at the last decision.
    pub fn divided(&self) -> &[Divided] {
        &self.divided
    }

    /// Whether hosts of a link are told nothing by the rule, since its monitor is still to say what others send.
    pub fn awaits_monitor(&self, link: usize) -> bool {
        self.awaits[link].is_some()
    }

    /// How often it has decided.
    pub fn decisions(&self) -> u64 {
        self.decisions
    }

    /// Whether a policy decided last for a link.
    pub fn is_by_policy(&self, link: usize) -> bool {
        self.steered[link].as_ref().and_then(Steered::decides) == Some(true)
    }

    /// Why the rule decides for a link in place of the policy, in words; none where it does not.
    pub fn blocked(&self, link: usize) -> Option<String> {
        let (steered, policy) = (self.steered[link].as_ref()?, self.config.policy.as_ref()?);
        Some(steered.blocked()?.in_words(&self.config, policy))
    }

    /// What the policy has seen at a link that no training had shown it, if it has, in words.
    pub fn beyond(&self, link: usize) -> Option<&str> {
        self.steered[link].as_ref()?.note()
    }

    fn decide(&mut self, now: Time) {
        self.decisions += 1;
        self.decided = now;
        self.next = now + self.config.every;
        self.renews = now + renewal(self.config.every);
        for link in 0..self.config.links.len() {
            self.divide(now, link);
        }
    }

    /// Tells hosts again what was decided.
    fn renew(&mut self, now: Time) {
        let due = self.renews;
        self.renews = due + renewal(self.config.every);
        for place in 0..self.known.len() {
            let known = &self.known[place];
            if known.budget.is_some() && known.is_fresh(now) {
                self.direct(now, due, place);
            }
        }
    }

    /// What one host wants of the link; none if it is not counted.
    fn claim(&self, now: Time, place: usize) -> Option<Claim> {
        let (known, Duty::Host { least, most, most_flows, .. }) = (&self.known[place], self.config.members[place].duty)
        else {
            return None;
        };
        // Without flows it is told what a first one might have, as all others without are: no sum of those fits a link.
        let host = known.host().filter(|host| host.flows > 0)?;
        if !known.is_fresh(now) {
            // It follows its last directive until the lease is over.
            let (rate, _) = known.budget.filter(|(_, ends)| *ends > now)?;
            return Some(Claim { weight: 0, least: rate, most: rate });
        }
        let weight = match self.config.share {
            Share::PerFlow => host.flows.min(most_flows),
            Share::PerHost => 1,
        };
        let most = host.limit.map_or(most, |limit| most.min(limit));
        Some(Claim { weight, least: least.min(most), most })
    }

    fn divide(&mut self, now: Time, link: usize) {
        let watched = self.watched(now, link);
        let (capacity, expected) = (watched.capacity, watched.expected.bits_per_sec());
        if self.ask(now, link, &watched) {
            return self.follow(now, link, watched);
        }
        self.awaits[link] = self.awaits[link].filter(|until| now < *until);
        if self.awaits_monitor(link) {
            self.divided[link] = watched;
            return;
        }
        let usable = capacity.bits_per_sec() as f64 * self.config.utilisation;
        let room = Rate::from_bits_per_sec((usable as u64).saturating_sub(expected));
        let (places, mut claims) = self.claims(now, link);
        let shares = divide(room, &claims);
        let given = shares.iter().map(|share| share.bits_per_sec()).sum();
        // A host without flows knows what its first may send; that is not counted until it reports one.
        claims.push(Claim { weight: 1, least: Rate::ZERO, most: room });
        let of_one_more = level(room, &claims);
        let mut counted = places.iter().zip(&shares).peekable();
        for index in 0..self.of_links[link].hosts.len() {
            let place = self.of_links[link].hosts[index];
            let Duty::Host { least, most, .. } = self.config.members[place].duty else { continue };
            let share = match counted.next_if(|(counted, _)| **counted == place) {
                Some((_, share)) => *share,
                None => of_one_more.max(least).min(most).min(room),
            };
            self.known[place].decided = share;
            if self.known[place].is_fresh(now) {
                self.direct(now, now, place);
            }
        }
        if let Some(steered) = &mut self.steered[link] {
            steered.on_rule_decided(capacity, &self.known);
        }
        self.divided[link] = Divided { given: Rate::from_bits_per_sec(given), ..watched };
    }

    /// The hosts that are counted at a link, and what each wants.
    fn claims(&self, now: Time, link: usize) -> (Vec<usize>, Vec<Claim>) {
        let hosts = self.of_links[link].hosts.iter();
        hosts.filter_map(|&place| Some((place, self.claim(now, place)?))).unzip()
    }

    /// Lets a link's policy look at it, and decide if all that it sees is known; whether it has.
    fn ask(&mut self, now: Time, link: usize, watched: &Divided) -> bool {
        let Some(mut steered) = self.steered[link].take() else { return false };
        // Policies were trained on what has passed.
        let passed = self.monitor(now, link).and_then(|monitor| {
            let span = self.covered(now, link, monitor, watched.capacity)?;
            self.by_others(now, link, &monitor.counted, span)
        });
        let other = passed.unwrap_or(self.others[link].passed).min(watched.capacity.bytes_per_sec());
        self.others[link].passed = other;
        let before = (steered.decides(), steered.note().is_some());
        steered.ask(now, &self.known, watched.capacity, other);
        let decides = steered.decides();
        if before.0 != decides {
            let event = if decides == Some(true) { CoordinatorEvent::ByPolicy } else { CoordinatorEvent::ByRule };
            self.happened.push_back(event(link));
        }
        if steered.note().is_some() && !before.1 {
            self.happened.push_back(CoordinatorEvent::Beyond(link));
        }
        self.steered[link] = Some(steered);
        decides == Some(true)
    }

    /// Hosts have what the policy directs, between what each keeps in any case, as by the rule, and what it takes at
    /// most.
    fn follow(&mut self, now: Time, link: usize, watched: Divided) {
        let Some(steered) = self.steered[link].take() else { return };
        let (places, claims) = self.claims(now, link);
        // Without a weight they have what they keep.
        let kept: Vec<Claim> = claims.iter().map(|claim| Claim { weight: 0, ..*claim }).collect();
        let kept = divide(watched.capacity, &kept);
        let mut counted = places.iter().zip(claims.iter().zip(&kept)).peekable();
        let mut given = 0u64;
        for (host, &place) in steered.hosts().iter().enumerate() {
            let Duty::Host { least, most, .. } = self.config.members[place].duty else { continue };
            let directed = steered.rate(watched.capacity, host);
            let decided = match counted.next_if(|(counted, _)| **counted == place) {
                Some((_, (claim, kept))) => {
                    let rate = directed.min(claim.most).max(*kept);
                    given = given.saturating_add(rate.bits_per_sec());
                    rate
                }
                None => directed.max(least).min(most),
            };
            self.known[place].decided = decided;
            if self.known[place].is_fresh(now) {
                self.direct(now, now, place);
            }
        }
        self.divided[link] = Divided { given: Rate::from_bits_per_sec(given), ..watched };
        self.steered[link] = Some(steered);
    }

    /// What a policy directs is divided anew where the idle lend, if that is due.
    fn divide_anew(&mut self, now: Time) {
        for link in 0..self.steered.len() {
            if self.steered[link].as_ref().is_some_and(|steered| steered.divides() <= now) {
                let Some(steered) = &mut self.steered[link] else { continue };
                steered.divide(now, &self.known);
                self.follow(now, link, self.divided[link]);
            }
        }
    }

    /// When that is due next.
    fn divides(&self) -> Time {
        self.steered.iter().flatten().map(Steered::divides).min().unwrap_or(Time::MAX)
    }

    /// A host is directed what it may send, if it was not for a period, at an occasion that was `due`: on a busy
    /// machine it is later `now`, and the next one is not.
    fn direct(&mut self, now: Time, due: Time, place: usize) {
        let (every, known) = (self.config.every, &mut self.known[place]);
        let rate = known.decided;
        if known.session.is_none() || known.next > due && known.budget.is_some_and(|(before, _)| before == rate) {
            return;
        }
        let pace = period_after(known.words, renewal(every), rate);
        // Of a small budget, control would else take more than its share whenever something changes.
        if pace > renewal(every) && known.next > due {
            return;
        }
        known.words += u64::from(due == self.decided);
        known.next = due + pace;
        // As the directive says: the first ones are renewed sooner than they have to be.
        known.budget = Some((rate, now + lifetime(every, rate)));
        known.granted.note(now + known.round_trip, rate);
        if !core::mem::replace(&mut known.is_to_direct, true) {
            self.to_direct.push_back(place);
        }
    }

    fn on_report(&mut self, now: Time, place: usize, report: Report) -> Result<(), Untruth> {
        let fits = matches!(
            (self.config.members[place].duty, report.seen),
            (Duty::Host { .. }, Seen::Host(_)) | (Duty::Monitor { .. }, Seen::Link(_))
        );
        if !fits {
            return Err(Untruth::Duty);
        }
        let known = &mut self.known[place];
        let (lost, flows) = match report.seen {
            Seen::Host(host) => (host.lost.get(), host.flows),
            Seen::Link(link) => (link.dropped, 0),
        };
        if known.report.is_some_and(|(before, _)| report.number <= before.number) {
            // It was overtaken.
            return Ok(());
        }
        let is_news = known.report.is_none() || known.host().is_some_and(|host| host.flows != flows);
        let period = report.period.min(LONGEST_PERIOD);
        let counted = known.count(now, report.at, period, &report.seen);
        known.report = Some((Report { period, ..report }, now));
        if self.config.policy.is_some() {
            known.lost.note(now, report.at, lost);
            known.has_round_trips |= known.host().is_some_and(|host| host.rtt.is_some() && host.min_rtt.is_some());
        } else if is_news {
            // A policy decides at equal spans, which its numbers stand for.
            self.next = self.next.min((self.decided + self.config.every * HASTE_QUARTERS / 4).max(now));
        }
        counted
    }

    /// Has an observer told what a member says that cannot be, unless that was a short time ago.
    fn on_untrue(&mut self, now: Time, place: usize, what: Untruth, sessions: &mut impl Sessions<Self>)
    where
        A: Copy + Eq + core::fmt::Debug,
    {
        let told = &mut self.known[place].untrue_told;
        if told.is_none_or(|at| now.since(at) >= UNTRUE_AGAIN) {
            *told = Some(now);
            sessions.event(CoordinatorEvent::Untrue(place, what));
        }
    }
}

impl<A: Copy + Eq + core::fmt::Debug> Application for Coordinator<A> {
    type Address = A;
    type Message = Terms;
    type Datagram = Datagram;
    type Event = CoordinatorEvent;

    fn accepts(&mut self, _: Time, remote: &Remote<A>) -> bool {
        self.by_key.contains_key(&remote.key)
    }

    fn on_open(&mut self, now: Time, session: SessionId, remote: &Remote<A>, sessions: &mut impl Sessions<Self>) {
        let Some(&place) = self.by_key.get(&remote.key) else { return sessions.close(session) };
        // An agent that has begun anew may not know that its old session stands.
        if let Some(old) = self.known[place].session.replace(session) {
            self.members.remove(&old);
            sessions.close(old);
        }
        self.members.insert(session, place);
        // The first one: the others come at the same time.
        self.awaits.iter_mut().flatten().for_each(|until| *until = (*until).min(now + PATIENCE));
        // Its numbers begin anew, and so may its counts; its lease holds.
        let known = &mut self.known[place];
        (known.report, known.counted, known.words, known.next) = (None, Counted::default(), 0, now);
        (known.arrivals, known.is_late) = (Counted::default(), false);
        (known.lost, known.has_round_trips) = (Counted::default(), false);
        let every = match self.config.members[place].duty {
            Duty::Host { .. } => self.config.every,
            Duty::Monitor { .. } => (self.config.every / MONITORS_OFTENER).max(LEAST_PERIOD),
        };
        sessions.send(session, Terms { epoch: self.config.epoch, every });
        sessions.event(CoordinatorEvent::Came(place));
    }

    fn on_message(&mut self, now: Time, session: SessionId, _: Terms, sessions: &mut impl Sessions<Self>) {
        // Agents send none.
        if let Some(&place) = self.members.get(&session) {
            self.on_untrue(now, place, Untruth::Foreign, sessions);
        }
    }

    fn on_datagram(&mut self, now: Time, session: SessionId, datagram: Datagram, sessions: &mut impl Sessions<Self>) {
        let Some(&place) = self.members.get(&session) else { return };
        let said = match datagram {
            Datagram::Report(report) => {
                if let Some(round_trip) = sessions.least_round_trip(session) {
                    self.known[place].round_trip = round_trip;
                }
                self.on_report(now, place, report)
            }
            Datagram::Directive(_) => Err(Untruth::Foreign),
        };
        if let Err(what) = said {
            self.on_untrue(now, place, what, sessions);
        }
    }

    fn on_closed(&mut self, _: Time, session: SessionId, why: Closed, sessions: &mut impl Sessions<Self>) {
        if let Some(place) = self.members.remove(&session) {
            self.known[place].session = None;
            sessions.event(CoordinatorEvent::Went(place, why));
        }
    }

    fn on_timer(&mut self, now: Time, sessions: &mut impl Sessions<Self>) {
        if self.next <= now {
            self.decide(now);
        } else if self.divides() <= now {
            self.divide_anew(now);
        } else if self.renews <= now {
            self.renew(now);
        }
        self.happened.drain(..).for_each(|event| sessions.event(event));
    }

    fn timer(&self, _: Time) -> Time {
        if self.members.is_empty() { Time::MAX } else { self.next.min(self.renews).min(self.divides()) }
    }

    fn waiting(&self) -> Bytes {
        Bytes::ZERO
    }

    fn next_datagram(&mut self, _: Time) -> Option<(SessionId, Datagram)> {
        loop {
            let place = self.to_direct.pop_front()?;
            self.known[place].is_to_direct = false;
            let (known, Duty::Host { least, .. }) = (&self.known[place], self.config.members[place].duty) else {
                continue;
            };
            let (Some(session), Some((rate, _))) = (known.session, known.budget) else { continue };
            self.number += 1;
            let directive = Directive {
                epoch: self.config.epoch,
                number: self.number,
                rate,
                minimum: least.min(rate),
                actuator: self.config.actuator,
                lifetime: lifetime(self.config.every, rate),
            };
            return Some((session, Datagram::Directive(directive)));
        }
    }
}
