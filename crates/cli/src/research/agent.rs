//! `anabranch agent`: reports what a host sends, or what passes over a link, and keeps the host's budget.

use std::path::PathBuf;

use anabranch_control::time::{Duration, Time};
use anabranch_control::units::{Bytes, Rate};
use anabranch_net::coordination::host::{Device, Host, HostError, Shaper};
use anabranch_net::coordination::node::CoordinationNode;
use anabranch_net::identity_file;
use anabranch_net::sessions::identity::PeerIdentity;
use anabranch_net::stream::link::Link;
use anabranch_proto::coordination::agent::{AgentEvent, LEAST_PERIOD};
use anabranch_proto::coordination::budget::Ignored;
use anabranch_proto::coordination::message::{HostSeen, Seen};
use anabranch_proto::coordination::peer::CoordinationEvent;
use anabranch_proto::session::Closed;
use serde::Serialize;

use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::printer::Printer;
use crate::research::words::Words;
use crate::stderr::eprint_line;
use crate::stream::local;

/// How often the host is looked at, unless reports are wanted more often than half as often.
const LOOK: Duration = Duration::from_millis(50);

/// A device that cannot be kept to a budget is tried again after this.
const TRY_AGAIN: Duration = Duration::SECOND;

/// A budget is said again when it differs by one part in this many.
const WORTH_SAYING: u64 = 10;

/// Arguments of `agent`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Without LINK, the key by which a coordinator knows this agent is printed, and made if there is none: it goes into \
the coordinator's file.

With --enforce, all that this host sends over the device keeps to what the coordinator gives it, by a token bucket at \
the device's root (tc-htb(8); as root, or with CAP_NET_ADMIN). When the coordinator falls silent the bucket is taken \
away within the lease, and at the end of the agent. Without it, the agent says what the host may send, and changes \
nothing.")]
pub struct Args {
    /// What `anabranch coordinate` printed
    #[arg(value_name = "LINK", requires = "device")]
    link: Option<Link>,
    /// The network device over which the host sends, or which is watched
    #[arg(long, value_name = "DEVICE")]
    device: Option<String>,
    /// Watch what passes over the device, whoever sends it: the monitor of a link
    #[arg(long, requires = "link", conflicts_with_all = ["enforce", "limit"])]
    monitor: bool,
    /// Keep the device to what the coordinator says
    #[arg(long, requires = "link")]
    enforce: bool,
    /// Follow no more than this, whatever the coordinator says
    #[arg(long, requires = "link", value_name = "RATE", value_parser = local::upload)]
    limit: Option<Rate>,
    /// The file with the agent's key [default: anabranch/agent-key in $XDG_CONFIG_HOME or ~/.config]
    #[arg(long, value_name = "FILE")]
    identity: Option<PathBuf>,
    /// Print one JSON object for each thing that happens
    #[arg(long)]
    json: bool,
}

/// What has happened.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
enum Notice {
    /// The coordinator takes reports.
    Enrolled { at_s: f64, report_each_s: f64 },
    /// What the host may send, and for how long.
    Budget { at_s: f64, rate_mbit_s: f64, lifetime_s: f64, is_enforced: bool },
    /// The lease is over.
    Alone { at_s: f64 },
    /// There is no session.
    Unreachable { at_s: f64, why: &'static str },
    /// A directive was not followed.
    Ignored { at_s: f64, why: &'static str },
    /// The device cannot be looked at: no flows are reported of it.
    Unseen { at_s: f64, why: String },
    /// The device cannot be kept to what the host may send: nothing limits it.
    Unlimited { at_s: f64, why: String },
}

/// Reports, and keeps to what comes back, until the user ends it.
pub fn run(args: &Args) -> Result<(), Failure> {
    let path = args.identity.clone().map_or_else(identity_file::agent_path, Ok)?;
    let identity: PeerIdentity = identity_file::load_or_make(&path)?;
    let (Some(link), Some(device)) = (&args.link, &args.device) else {
        crate::printer::print_line!("{}", identity.public())?;
        return Ok(());
    };
    let device = Device::new(device)?;
    let interrupt = Interrupt::listen()?;
    let node = CoordinationNode::agent(link.clone(), &identity, args.limit)?;
    let port = node.local_addr().port();
    let shaper = if args.enforce { Some(Shaper::new(&device, port)?) } else { None };
    eprint_line!("asking the coordinator at {}", link.addresses().join(" and "));
    let watched = if args.monitor { Watched::Link(device) } else { Watched::Host(Host::new(device)) };
    let mut running = Running {
        node,
        watched,
        shaper,
        tries: Time::ZERO,
        sent: Bytes::ZERO,
        unseen: None,
        look: LOOK,
        looks: Time::ZERO,
        said: None,
        missed: None,
    };
    // Who stops a terminal leaves no host limited for longer than its lease.
    let (mut printer, words) = (Printer::start()?, Words::start()?);
    while !interrupt.is_raised() {
        for notice in running.turn()? {
            if args.json {
                printer = printer.print(&notice)?;
            } else if let Some(line) = running.words(notice) {
                words.say(line);
            }
        }
    }
    if let Some(shaper) = &mut running.shaper
        && running.unseen.is_none()
    {
        shaper.release()?;
    }
    Ok(running.node.stop()?)
}

/// What is looked at.
#[derive(Debug)]
enum Watched {
    Host(Host),
    Link(Device),
}

struct Running {
    node: CoordinationNode,
    watched: Watched,
    shaper: Option<Shaper>,
    /// When a shaper that has failed is tried again.
    tries: Time,
    /// What the host had sent when it was looked at last.
    sent: Bytes,
    /// Why the device cannot be looked at, if it cannot.
    unseen: Option<String>,
    look: Duration,
    /// When it is looked next.
    looks: Time,
    /// The budget that was said last.
    said: Option<Rate>,
    /// Why there is no session, as it was said last.
    missed: Option<&'static str>,
}

impl Running {
    /// Looks if that is due, waits until something happens or it is again, and tells what has happened.
    fn turn(&mut self) -> Result<Vec<Notice>, Failure> {
        let mut notices = Vec::new();
        if self.looks <= self.node.now() {
            let now = self.node.now();
            if self.tries <= now && self.shaper.as_ref().is_some_and(Shaper::is_left) {
                self.release();
            }
            notices.extend(self.look());
            self.looks = self.node.now() + self.look;
        }
        while notices.is_empty() && self.node.now() < self.looks {
            self.node.turn(self.looks)?;
            while let Some(event) = self.node.poll_event() {
                if let CoordinationEvent::Agent(event) = event {
                    notices.push(self.act(event)?);
                }
            }
        }
        Ok(notices)
    }

    /// Looks at the device. One that is gone, as of a line that has broken off, may come again.
    fn look(&mut self) -> Option<Notice> {
        let seen = match &mut self.watched {
            Watched::Host(host) => host.seen().map(Seen::Host),
            Watched::Link(device) => device.link_seen().map(Seen::Link),
        };
        match seen {
            Ok(seen) => {
                if let Seen::Host(host) = &seen {
                    self.sent = host.sent;
                }
                self.unseen = None;
                self.node.set_seen(seen);
                None
            }
            Err(why) => {
                if let Watched::Host(_) = self.watched {
                    self.node.set_seen(Seen::Host(HostSeen { sent: self.sent, ..HostSeen::default() }));
                }
                let (at_s, why) = (self.at_s(), why.to_string());
                let before = self.unseen.replace(why.clone());
                (before.as_ref() != Some(&why)).then_some(Notice::Unseen { at_s, why })
            }
        }
    }

    fn at_s(&self) -> f64 {
        self.node.now().since(Time::ZERO).as_secs_f64()
    }

    /// Keeps the device to `rate`, if it is to be kept to any and can be: what it is kept to then.
    fn shape(&mut self, rate: Rate) -> Result<Option<Rate>, HostError> {
        let now = self.node.now();
        let Some(shaper) = self.shaper.as_mut().filter(|_| self.tries <= now) else { return Ok(None) };
        shaper.set(rate).map(Some).inspect_err(|_| self.tries = now + TRY_AGAIN)
    }

    /// Nothing limits the device any more. What cannot be taken away is tried again; of a device that is gone it limits
    /// nothing.
    fn release(&mut self) {
        let now = self.node.now();
        if self.shaper.as_mut().is_some_and(|shaper| shaper.release().is_err()) {
            self.tries = now + TRY_AGAIN;
        }
    }

    fn act(&mut self, event: AgentEvent) -> Result<Notice, Failure> {
        let at_s = self.at_s();
        Ok(match event {
            AgentEvent::Enrolled(terms) => {
                self.look = (terms.every / 2).min(LOOK).max(LEAST_PERIOD);
                Notice::Enrolled { at_s, report_each_s: terms.every.as_secs_f64() }
            }
            AgentEvent::Directed(directive, _) => match self.shape(directive.rate) {
                Ok(shaped) => Notice::Budget {
                    at_s,
                    rate_mbit_s: shaped.unwrap_or(directive.rate).bits_per_sec() as f64 / 1e6,
                    lifetime_s: directive.lifetime.as_secs_f64(),
                    is_enforced: shaped.is_some(),
                },
                Err(why) => Notice::Unlimited { at_s, why: why.to_string() },
            },
            AgentEvent::Alone => {
                self.release();
                Notice::Alone { at_s }
            }
            AgentEvent::Unreachable(why) => Notice::Unreachable { at_s, why: unreachable(why) },
            AgentEvent::Ignored(why) => Notice::Ignored { at_s, why: ignored(why) },
        })
    }

    /// For people; none for what is much like what was said before.
    fn words(&mut self, notice: Notice) -> Option<String> {
        match notice {
            Notice::Enrolled { report_each_s, .. } => {
                self.missed = None;
                Some(format!("the coordinator takes reports, one each {report_each_s} s"))
            }
            Notice::Budget { rate_mbit_s, is_enforced, .. } => {
                let rate = Rate::from_bits_per_sec((rate_mbit_s * 1e6) as u64);
                let differs = |before: &Rate| {
                    before.bits_per_sec().abs_diff(rate.bits_per_sec()) > before.bits_per_sec() / WORTH_SAYING
                };
                self.said.is_none_or(|before| differs(&before)).then(|| {
                    self.said = Some(rate);
                    let how = if is_enforced { "" } else { " (nothing makes it; see --enforce)" };
                    format!("this host may send {rate_mbit_s:.2} Mbit/s{how}")
                })
            }
            Notice::Alone { .. } => {
                self.said = None;
                Some(
                    "nothing was heard of the coordinator for as long as the lease held: this host is on its own"
                        .into(),
                )
            }
            Notice::Unreachable { why, .. } => {
                (self.missed.replace(why) != Some(why)).then(|| format!("{why}; trying again"))
            }
            Notice::Ignored { .. } => None,
            Notice::Unseen { why, .. } => Some(format!("{why}; looking again")),
            Notice::Unlimited { why, .. } => {
                self.said = None;
                Some(format!("{why}: nothing limits this host; trying again"))
            }
        }
    }
}

fn unreachable(why: Closed) -> &'static str {
    match why {
        Closed::Refused => {
            "the coordinator does not know this agent's key, or has another key than the link says, or strangers of this host's network ask for too many sessions: does its file have what `anabranch agent` prints?"
        }
        Closed::TimedOut => "nobody answers at the link's address",
        Closed::ByPeer => "the coordinator has ended the session",
        Closed::Misused => "the coordinator has sent what no coordinator sends",
    }
}

fn ignored(why: Ignored) -> &'static str {
    match why {
        Ignored::StaleEpoch => "it is of an earlier life of the coordinator",
        Ignored::Overtaken => "a later one has come before it",
    }
}
