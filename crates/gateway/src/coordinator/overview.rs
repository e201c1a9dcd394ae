//! What a coordinator tells of itself: the body of `GET /api/overview`, and of each event of `GET /events`.
//!
//! Units are in the names. What is unknown is `None`, and `null` in JSON; it is never zero.

use serde::Serialize;

/// Events that an overview holds at most.
pub const MOST_EVENTS: usize = 100;

/// What a coordinator knows, and what it has directed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Overview {
    /// Of the program.
    pub version: &'static str,
    /// Since it began.
    pub uptime_s: f64,
    /// By which agents find it.
    pub link: String,
    /// Where its page is; null if there is none.
    pub page: Option<String>,
    /// How often it decides.
    pub every_s: f64,
    /// Which part of a link it gives away.
    pub utilisation: f64,
    /// Among whom shares are equal where the rule decides: `per-flow` or `per-host`.
    pub share: &'static str,
    /// The policy that decides in the rule's place, by its file; null without one.
    pub policy: Option<String>,
    /// The links that it divides.
    pub links: Vec<Link>,
    /// Who sends over them.
    pub hosts: Vec<Host>,
    /// Who watches them.
    pub monitors: Vec<Monitor>,
    /// What happened, newest last, [`MOST_EVENTS`] at most.
    pub events: Vec<Happening>,
}

/// A link as it was divided last, and what the coordinator believes of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Link {
    /// Its name.
    pub name: String,
    /// What it carries.
    pub capacity_mbit_s: f64,
    /// Who decided last what its hosts may send.
    pub decided_by: DecidedBy,
    /// Why the rule does where there is a policy; null where it does not.
    pub rule_because: Option<String>,
    /// What the policy has seen that no training had shown it, the first time; null if it has not.
    pub beyond: Option<String>,
    /// Whether hosts are directed nothing for now, unless by the policy: its monitor is still to say what others send.
    pub awaits_monitor: bool,
    /// What others than the hosts send over it; null without a monitor.
    pub other_mbit_s: Option<f64>,
    /// What the rule takes them to send until the next decision; null without a monitor.
    pub expected_mbit_s: Option<f64>,
    /// What hosts that send may send, all together.
    pub given_mbit_s: f64,
    /// What passes, as its monitor says.
    pub passes_mbit_s: Option<f64>,
    /// What waits before it, as its monitor says.
    pub queued_bytes: Option<u64>,
    /// What it has dropped since its monitor began.
    pub dropped_packets: Option<u64>,
}

/// Who decides what hosts may send.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum DecidedBy {
    /// Fair shares of what others leave.
    Rule,
    /// A trained policy.
    Policy,
}

/// What is known of a host, and what it was directed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Host {
    /// Its name.
    pub name: String,
    /// The link over which it sends.
    pub link: String,
    /// Whether there is a session with its agent.
    pub is_here: bool,
    /// Flows that have something to send.
    pub flows: Option<u32>,
    /// What it sends; null once its last report is old.
    pub sends_mbit_s: Option<f64>,
    /// What it may send; null without a lease.
    pub budget_mbit_s: Option<f64>,
    /// How long that holds yet; null without a lease.
    pub lease_s: Option<f64>,
    /// How old its last report is.
    pub report_age_s: Option<f64>,
    /// The mean round trip of its flows.
    pub round_trip_s: Option<f64>,
    /// The least.
    pub least_round_trip_s: Option<f64>,
    /// What it has sent since its agent began.
    pub sent_bytes: Option<u64>,
}

/// What is known of a monitor.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Monitor {
    /// Its name.
    pub name: String,
    /// The link that it watches.
    pub link: String,
    /// Whether there is a session with its agent.
    pub is_here: bool,
    /// What passes there; null once its last report is old.
    pub passes_mbit_s: Option<f64>,
    /// How old its last report is.
    pub report_age_s: Option<f64>,
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Happening {
    /// Since the coordinator began.
    pub at_s: f64,
    /// What.
    pub kind: HappeningKind,
    /// To whom.
    pub name: String,
    /// In words.
    pub text: String,
}

/// What can happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum HappeningKind {
    /// An agent came.
    Came,
    /// An agent went, or nothing is heard of it.
    Went,
    /// An agent reports what cannot be.
    Untrue,
    /// The policy decides for a link, or the rule does.
    Decides,
    /// The policy sees what no training had shown it.
    Beyond,
}
