//! What a coordinator knows and what it has directed, for its page, for programs, and in words.

use std::net::SocketAddr;

use anabranch_control::time::{Duration, Time};
use anabranch_control::units::Rate;
use anabranch_gateway::coordinator::{DecidedBy, Happening, HappeningKind, Host, Link, MOST_EVENTS, Monitor, Overview};
use anabranch_proto::coordination::coordinator::{Coordinator, CoordinatorEvent, Duty, Known, Share, Untruth};
use anabranch_proto::coordination::message::Seen;
use anabranch_proto::session::Closed;

use crate::table;

/// The newest events.
#[derive(Debug, Default)]
pub struct Events(Vec<Happening>);

impl Events {
    /// What has happened, in words.
    pub fn note(&mut self, coordinator: &Coordinator<SocketAddr>, now: Time, event: CoordinatorEvent) -> String {
        let config = coordinator.config();
        let name = |place: usize| config.members[place].name.clone();
        let policy = || config.policy.as_ref().map_or("the policy", |policy| policy.name.as_str());
        let (kind, name, text) = match event {
            CoordinatorEvent::ByPolicy(link) => {
                let link = config.links[link].name.clone();
                let text = format!("{} decides for link \"{link}\"", policy());
                return self.keep(now, HappeningKind::Decides, link, text);
            }
            CoordinatorEvent::ByRule(link) => {
                let because = coordinator.blocked(link).unwrap_or_default();
                let link = config.links[link].name.clone();
                let text = format!("the rule decides for link \"{link}\": {because}");
                return self.keep(now, HappeningKind::Decides, link, text);
            }
            CoordinatorEvent::Beyond(link) => {
                let (text, link) = (coordinator.beyond(link).unwrap_or_default(), config.links[link].name.clone());
                return self.keep(now, HappeningKind::Beyond, link, text.to_owned());
            }
            CoordinatorEvent::Came(place) => (HappeningKind::Came, name(place), "is here"),
            CoordinatorEvent::Went(place, Closed::TimedOut) => {
                (HappeningKind::Went, name(place), "is gone: nothing was heard of it")
            }
            CoordinatorEvent::Went(place, _) => (HappeningKind::Went, name(place), "is gone"),
            CoordinatorEvent::Untrue(place, what) => (HappeningKind::Untrue, name(place), untruth(what)),
        };
        let text = format!("{name} {text}");
        self.keep(now, kind, name, text)
    }

    fn keep(&mut self, now: Time, kind: HappeningKind, name: String, text: String) -> String {
        if self.0.len() >= MOST_EVENTS {
            self.0.remove(0);
        }
        self.0.push(Happening { at_s: since_start(now), kind, name, text: text.clone() });
        text
    }
}

fn untruth(what: Untruth) -> &'static str {
    match what {
        Untruth::Duty => "reports what cannot be: is it a host where FILE says monitor, or the other way round?",
        Untruth::WentBack => "has a clock or a count that went back: what it sent before is forgotten",
        Untruth::Late => "has a slow clock, or reports that wait for a second: they count from when they come",
        Untruth::Foreign => "sends what no agent sends: is it of another version?",
    }
}

fn megabits(rate: Rate) -> f64 {
    rate.bits_per_sec() as f64 / 1e6
}

fn since_start(now: Time) -> f64 {
    now.since(Time::ZERO).as_secs_f64()
}

/// Where a coordinator is found: by agents, and by people.
#[derive(Clone, Debug)]
pub struct Place {
    /// By agents.
    pub link: String,
    /// By people.
    pub page: Option<String>,
}

/// How things stand with the coordinator at `place`.
pub fn overview(place: &Place, coordinator: &Coordinator<SocketAddr>, events: &Events, now: Time) -> Overview {
    let config = coordinator.config();
    let (mut hosts, mut monitors) = (Vec::new(), Vec::new());
    let mut watched: Vec<Option<&Known>> = vec![None; config.links.len()];
    for (member, known) in config.members.iter().zip(coordinator.known()) {
        let report_age_s = known.report().map(|(_, at)| now.since(at).as_secs_f64());
        let (name, is_here) = (member.name.clone(), known.is_here());
        // What an old report said holds no more.
        let rate = known.is_fresh(now).then(|| megabits(known.rate()));
        match member.duty {
            Duty::Host { link, .. } => {
                let seen = known.report().and_then(|(report, _)| match report.seen {
                    Seen::Host(host) => Some(host),
                    Seen::Link(_) => None,
                });
                let lease = known.budget().filter(|(_, ends)| *ends > now);
                let seconds = Duration::as_secs_f64;
                hosts.push(Host {
                    name,
                    link: config.links[link].name.clone(),
                    is_here,
                    flows: seen.map(|host| host.flows),
                    sends_mbit_s: rate,
                    budget_mbit_s: lease.map(|(rate, _)| megabits(rate)),
                    lease_s: lease.map(|(_, ends)| ends.since(now).as_secs_f64()),
                    report_age_s,
                    round_trip_s: seen.and_then(|host| host.rtt).map(seconds),
                    least_round_trip_s: seen.and_then(|host| host.min_rtt).map(seconds),
                    sent_bytes: seen.map(|host| host.sent.get()),
                });
            }
            Duty::Monitor { link } => {
                // As the coordinator has it: the first that reports.
                if known.is_fresh(now) && watched[link].is_none() {
                    watched[link] = Some(known);
                }
                let link = config.links[link].name.clone();
                monitors.push(Monitor { name, link, is_here, passes_mbit_s: rate, report_age_s });
            }
        }
    }
    let links = config.links.iter().zip(coordinator.divided()).zip(watched).enumerate();
    let links = links.map(|(number, ((link, divided), watched))| {
        let seen = watched.and_then(|known| match known.report()?.0.seen {
            Seen::Link(seen) => Some(seen),
            Seen::Host(_) => None,
        });
        Link {
            name: link.name.clone(),
            capacity_mbit_s: megabits(if divided.is_monitored { divided.capacity } else { link.capacity }),
            decided_by: if coordinator.is_by_policy(number) { DecidedBy::Policy } else { DecidedBy::Rule },
            rule_because: coordinator.blocked(number),
            beyond: coordinator.beyond(number).map(str::to_owned),
            awaits_monitor: coordinator.awaits_monitor(number),
            other_mbit_s: divided.is_monitored.then(|| megabits(divided.other)),
            expected_mbit_s: divided.is_monitored.then(|| megabits(divided.expected)),
            given_mbit_s: megabits(divided.given),
            passes_mbit_s: watched.map(|known| megabits(known.rate())),
            queued_bytes: seen.and_then(|seen| seen.queued).map(|queued| queued.get()),
            dropped_packets: seen.map(|seen| seen.dropped),
        }
    });
    Overview {
        version: env!("CARGO_PKG_VERSION"),
        uptime_s: since_start(now),
        link: place.link.clone(),
        page: place.page.clone(),
        every_s: config.every.as_secs_f64(),
        utilisation: config.utilisation,
        share: match config.share {
            Share::PerFlow => "per-flow",
            Share::PerHost => "per-host",
        },
        policy: config.policy.as_ref().map(|policy| policy.name.clone()),
        links: links.collect(),
        hosts,
        monitors,
        events: events.0.clone(),
    }
}

/// For people: a table of links, and one of hosts.
pub fn tables(overview: &Overview) -> std::io::Result<Vec<u8>> {
    let number = |rate: f64| format!("{rate:.2}");
    let maybe = |rate: Option<f64>| rate.map_or("-".to_owned(), number);
    let head = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    let mut rows = vec![head(&["link", "decided by", "carries Mbit/s", "others send", "given away"])];
    rows.extend(overview.links.iter().map(|link| {
        let by = match (link.decided_by, &overview.policy) {
            (DecidedBy::Policy, Some(policy)) => policy.clone(),
            _ => "the rule".to_owned(),
        };
        let rates = [number(link.capacity_mbit_s), maybe(link.other_mbit_s), number(link.given_mbit_s)];
        [vec![link.name.clone(), by], rates.to_vec()].concat()
    }));
    let mut text = Vec::new();
    table::print(&rows, 1.., &mut text)?;
    let mut rows = vec![head(&["host", "flows", "sends Mbit/s", "may send"])];
    rows.extend(overview.hosts.iter().filter(|host| host.is_here).map(|host| {
        let flows = host.flows.map_or("-".to_owned(), |flows| flows.to_string());
        vec![host.name.clone(), flows, maybe(host.sends_mbit_s), maybe(host.budget_mbit_s)]
    }));
    table::print(&rows, 1.., &mut text)?;
    Ok(text)
}
