//! A coordinator that steers many hosts ([C3]): collection, coordination, parametrisation, as machines without IO.
//!
//! ```text
//!             reports, each period            directives, each period
//!   hosts    ------------------->             ------------------------>  hosts
//!   monitors ------------------->  coordinator
//! ```
//!
//! - Hosts report their flows and what those have sent, monitors what passes over a link ([`message`]).
//! - The coordinator divides what each link has beside other traffic among the hosts that send over it
//!   ([`division`], [`coordinator`]).
//! - A directive is a rate for a host, and a lease: each host divides the rate by its own flows and multiplies it
//!   by its own least round trip ([`budget`]), so that who lies about its round trip moves nobody else's share.
//!   When no directive comes any more, the lease ends and the host's own congestion control is alone ([`agent`]).
//! - In the rule's place a policy may decide that was trained on simulated links ([`policy`], [`fitness`]). It sees what
//!   agents report, by the code by which it saw simulated flows.
//!
//! Reports and directives are numbered datagrams over sessions with keys that both ends have proved; one that is
//! lost is not sent again, since the next says more.

pub mod agent;
pub mod budget;
pub mod config;
pub mod coordinator;
mod counted;
pub mod division;
pub mod fitness;
pub mod forecast;
mod granted;
mod known;
pub mod message;
pub mod peer;
pub mod policy;
mod steered;
pub mod wire;

use anabranch_control::time::Duration;

use crate::session::SessionConfig;

/// A coordinator that says nothing for so long is gone: reports and directives go several times a second, and an
/// agent that waits longer than its lease has lost nothing but time.
pub const IDLE_TIMEOUT: Duration = Duration::from_millis(5000);

/// How sessions between a coordinator and its `members` are kept.
pub fn session_config(members: usize) -> SessionConfig {
    SessionConfig {
        idle_timeout: IDLE_TIMEOUT,
        keep_alive: IDLE_TIMEOUT / 4,
        // One each, and as many of agents that have begun anew before their old one was found to be over.
        most_sessions: 2 * members + 1,
        // All hosts of a rack or a site come at once when their coordinator does.
        knows_who_comes: true,
        // A directive renews a lease, and is as good as the one before: a network that was gone for a moment is heard of
        // by the next one, not by a probe that comes half as often each time.
        datagrams_to_silent: true,
        // Budgets bound what control takes of a network. A window of one controller for all would hold directives back when
        // some of a thousand hosts vanish, or after a moment in which nobody is heard.
        least_window: SessionConfig::PACKET + budget::LEAST_IN_FLIGHT * members as u64,
        ..SessionConfig::default()
    }
}
