//! What others than the hosts send over a link: by its monitor's counts, less what the hosts say that they sent.

use anabranch_control::time::{Duration, Time};
use anabranch_control::units::Rate;

use super::super::counted::Counted;
use super::super::forecast::{Expected, Forecast, LEAST_SHARE};
use super::super::known::{Divided, Known, PACKET};
use super::Coordinator;

/// Hosts that report seldom are waited for if they may send more than one part in this many of a link together.
const SELDOM_MATTERS: u64 = 20;

/// A forecast is told of spans of this part of a period at least: in a shorter one, errors of counts weigh more...
const LEAST_PASSED: f64 = 0.75;

/// ...in which the link carries this many full packets, so that one more or less is no traffic that comes and goes.
const LEAST_PACKETS: f64 = 50.0;

/// What others than the hosts send over a link, as far as is known; rates in bytes a second.
#[derive(Clone, Copy, Debug)]
pub(super) struct Others {
    forecast: Forecast,
    /// The end of the last span that it was told of, if there was one.
    until: Option<Time>,
    /// What passed of theirs in the last span that all reports covered: what policies see.
    pub(super) passed: f64,
}

impl Others {
    pub(super) fn unknown(expected: Expected) -> Others {
        Others { forecast: Forecast::new(expected), until: None, passed: 0.0 }
    }
}

impl<A> Coordinator<A> {
    /// What is known of each of a link's monitors.
    fn monitors(&self, link: usize) -> impl Iterator<Item = &Known> {
        self.of_links[link].monitors.iter().map(|&place| &self.known[place])
    }

    /// What is known of a link's monitor, if there is one that reports.
    pub(super) fn monitor(&self, now: Time, link: usize) -> Option<&Known> {
        self.monitors(link).find(|known| known.is_fresh(now))
    }

    /// What a link carries, and what others than the hosts send over it: by its monitor. Of one that is silent, what
    /// was known holds until its session is over: reports each few milliseconds that are held up for a few more would
    /// else end in a link that is given away as if it were empty. Without one, a link carries its hosts' traffic alone.
    pub(super) fn watched(&mut self, now: Time, link: usize) -> Divided {
        let (before, settled) = (self.divided[link], self.config.links[link].capacity);
        if let Some(monitor) = self.monitor(now, link) {
            let capacity = monitor.link().and_then(|seen| seen.capacity).unwrap_or(settled);
            let span = self.covered(now, link, monitor, capacity);
            let other = span.and_then(|span| self.by_others(now, link, monitor.arrivals_from(span.0), span));
            let other = other.map(Rate::from_bytes_per_sec_f64);
            if other.is_some() {
                self.awaits[link] = None;
            }
            let other = other.unwrap_or(before.other).min(capacity);
            let expected = span.and_then(|span| self.forecast(now, link, capacity, span));
            let expected = expected.map_or(other, Rate::from_bytes_per_sec_f64).min(capacity);
            return Divided { capacity, other, expected, is_monitored: true, ..before };
        }
        if before.is_monitored && self.monitors(link).any(Known::is_here) {
            // No forecast of a moment holds for so long.
            return Divided { expected: before.other, ..before };
        }
        self.others[link] = Others::unknown(self.config.expected);
        Divided { capacity: settled, ..Divided::default() }
    }

    /// The hosts of a link of which something is known.
    fn hosts(&self, now: Time, link: usize) -> impl Iterator<Item = &Known> {
        let all = self.of_links[link].hosts.iter().map(|&place| &self.known[place]);
        all.filter(move |known| known.is_fresh(now) || known.is_directed(now))
    }

    /// The last span that all reports cover; none, where they cover none. Hosts that report seldom are taken to go on as
    /// they did, unless what they may send together matters: most of them do, and those that do not say so late.
    pub(super) fn covered(&self, now: Time, link: usize, monitor: &Known, capacity: Rate) -> Option<(Time, Time)> {
        let hosts = || self.hosts(now, link);
        let period = |known: &Known| known.report.map_or(Duration::ZERO, |(report, _)| report.period);
        let is_seldom = |known: &Known| period(known) > self.config.every * 2;
        let seldom = hosts().filter(|known| is_seldom(known)).filter_map(|known| known.budget);
        let seldom: u64 = seldom.map(|(rate, _)| rate.bits_per_sec()).sum();
        let has_all = seldom > capacity.bits_per_sec() / SELDOM_MATTERS;
        let counts = |known: &&Known| known.is_fresh(now) && (has_all || !is_seldom(known));
        let to = hosts().filter(counts).chain([monitor]).filter_map(|known| known.counted.last()).min()?;
        let span = hosts().filter(counts).map(period).fold(self.config.every, Duration::max);
        Some((to.before(span).max(monitor.counted.first()?), to))
    }

    /// What of a count of all grew in that span by others than the hosts, in bytes a second; none of a span without a
    /// length.
    pub(super) fn by_others(&self, now: Time, link: usize, all: &Counted, (from, to): (Time, Time)) -> Option<f64> {
        let grew = all.between(from, to).filter(|_| from < to)?;
        let sent: f64 = self.hosts(now, link).filter_map(|known| known.sent(from, to)).sum();
        Some((grew - sent).max(0.0) / to.since(from).as_secs_f64())
    }

    /// What others than the hosts will send over a link until the next decision, in bytes a second; none, where that is
    /// what they did last. All reports cover the span.
    fn forecast(&mut self, now: Time, link: usize, capacity: Rate, (from, to): (Time, Time)) -> Option<f64> {
        if self.config.expected == Expected::LastSpan {
            return None;
        }
        let monitor = self.monitor(now, link)?;
        let first = monitor.counted.first()?;
        // Since the last span that the forecast was told of, unless it is not known what was between.
        let told = self.others[link].until.filter(|until| *until >= first);
        let from = told.unwrap_or(from);
        let rate = self.by_others(now, link, monitor.arrivals_from(from), (from, to));
        // What a host has sent before its session began looks like others'.
        let is_known = self.hosts(now, link).all(|host| host.is_counted_from(from));
        let others = &mut self.others[link];
        if told.is_none() {
            (others.forecast, others.until) = (Forecast::new(self.config.expected), Some(from));
        }
        let (seconds, every) = (to.since(from).as_secs_f64(), self.config.every.as_secs_f64());
        let capacity = capacity.bytes_per_sec();
        let is_span = seconds >= LEAST_PASSED * every && seconds * capacity >= LEAST_PACKETS * PACKET as f64;
        if let Some(rate) = rate.filter(|_| is_span) {
            match is_known {
                true => others.forecast.pass(seconds, rate, LEAST_SHARE * capacity),
                false => others.forecast.miss(seconds),
            }
            others.until = Some(to);
        }
        let age = now.since(others.until?).as_secs_f64();
        others.forecast.by_period(age, age + every)
    }
}
