//! What `onion receive` and `onion send` have in common: a user of the overlay, and what is said of it.

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};

use anabranch_control::time::Duration;
use anabranch_net::onion::hidden_edge::{Hidden, HiddenEdge, HiddenSettings};
use anabranch_net::onion::network_file::NetworkFile;
use anabranch_net::state::StateFolder;
use anabranch_net::udp::Socket;
use anabranch_onion::directory::Remembered;
use anabranch_onion::guards::{GuardState, MOST_GUARDS};
use anabranch_onion::node::UserSettings;
use anabranch_onion::session::Secrecy;
use anabranch_onion::size::MOST_HOPS;

use crate::failure::Failure;
use crate::stderr::eprint_line;

/// What was seen of the directory.
const SEEN: &str = "seen.json";

/// The guards.
const GUARDS: &str = "guards.json";

/// How often it is looked whether the user has had enough.
pub const LOOK: Duration = Duration::from_millis(50);

/// So long a leave has to reach the other end.
pub const LEAVE: Duration = Duration::from_millis(500);

/// So long the other end is told that nothing is to be kept of a file, while it does not acknowledge that: over paths that
/// lose much, or on a busy machine, timeouts pass first.
const LONGEST_LEAVE: Duration = Duration::from_millis(10_000);

/// What both verbs hide, and what not.
pub const PROTECTS: &str = "\
It does not hide you from whoever runs one of your guards and, at the same time, one of the other end's: if somebody \
runs c of the n relays, a user with g guards has one of theirs with probability 1 - (1 - c/n)^g, and both ends must. \
Whoever has a receiver's address and runs relays can find its guards. It hides nothing from whoever sees both lines. docs/onion.md has the figures.";

/// How a user's paths are.
#[derive(Debug, clap::Args)]
pub struct PathArgs {
    /// Guards: relays by which all packets enter, for months; 0 is any relay for each packet, which hides least
    #[arg(long, value_name = "G", default_value_t = 2, value_parser = clap::value_parser!(u8).range(0..=MOST_GUARDS as i64))]
    guards: u8,
    /// Relays up to a mailbox, which is the last of them; a half that begins there has one less
    #[arg(long, value_name = "H", default_value_t = 3, value_parser = clap::value_parser!(u8).range(2..=MOST_HOPS as i64))]
    hops: u8,
    /// What places packets on relays: per-path, random, or a controller of `anabranch controllers`
    #[arg(long, value_name = "NAME", default_value = "timeouts")]
    placement: String,
}

impl PathArgs {
    /// How the user of this network chooses.
    pub fn settings(&self, network: &NetworkFile) -> Result<UserSettings, Failure> {
        let user = UserSettings {
            guards: usize::from(self.guards),
            hops: usize::from(self.hops),
            placement: self.placement.clone(),
            placement_back: self.placement.clone(),
            packets_per_key: network.authorities.packets_per_key,
            secrecy: Secrecy::Sealed,
            mixing: None,
        };
        user.check().map_err(|why| Failure::new(format!("--placement {}: {why}", self.placement)))?;
        Ok(user)
    }
}

/// Goes on until `is_heard` says that the other end knows that a file is given up, for some seconds at most.
pub fn await_heard<M>(edge: &mut HiddenEdge<M>, mut is_heard: impl FnMut(&mut M) -> bool) -> Result<(), Failure>
where
    M: Hidden<Job = Infallible, Done = Infallible>,
{
    let begun = edge.now();
    let mut is_said = false;
    while edge.act(|machine, _| is_heard(machine)) == Some(false) {
        let waited = edge.now().since(begun);
        if waited >= LONGEST_LEAVE {
            break;
        }
        if waited >= LEAVE && !std::mem::replace(&mut is_said, true) {
            eprint_line!("the other end has not heard of it yet; Ctrl-C again ends this at once");
        }
        edge.turn(edge.now() + LOOK)?;
        edge.take_news();
    }
    Ok(())
}

/// The user's side, with what `folder` remembers of it.
pub fn settings(network: NetworkFile, user: UserSettings, folder: &StateFolder) -> Result<HiddenSettings, Failure> {
    let guards: GuardState = folder.load(GUARDS)?;
    let remembered: Remembered = folder.load(SEEN)?;
    let any: SocketAddr = (Ipv4Addr::UNSPECIFIED, 0).into();
    let (keep_in, guards_in) = (folder.clone(), folder.clone());
    Ok(HiddenSettings {
        network,
        user,
        socket: Socket::bind(any)?,
        guards,
        keep_guards: Box::new(move |state| guards_in.save(GUARDS, state).map_err(std::io::Error::other)),
        remembered,
        keep: Box::new(move |seen| keep_in.save(SEEN, seen).map_err(std::io::Error::other)),
    })
}
