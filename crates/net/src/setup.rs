//! From what a user or a scenario asks for to a sender that can send.

use std::fmt;
use std::net::SocketAddr;

use anabranch_control::path::registry::{Entry, Pacing, Setup};
use anabranch_control::path::{MAX_RELAYS, Slot};
use anabranch_control::registry::ParameterError;
use anabranch_control::rng::Rng;
use anabranch_control::rtt::RttConfig;
use anabranch_control::time::{Duration, Time};
use anabranch_control::units::{Bytes, Rate};
use anabranch_proto::overlay::courier::Courier;
use anabranch_proto::overlay::path_sender::{PathSender, SenderConfig};
use anabranch_proto::overlay::wire;

/// Bytes of a data datagram as UDP payload, which is what controllers and relays count.
/// Below `wire::MAX_DATAGRAM` (1472, an Ethernet frame) by more than usual tunnels add
/// (WireGuard 60, GRE 24, PPPoE 8).
pub const PACKET: usize = 1400;

/// No ACK is late sooner than this: as in Linux's TCP (`TCP_RTO_MIN`). Above what a standing queue of a
/// fifth of 100 ms takes at three relays, there and back, and far below the second in which controllers
/// count.
pub const LEAST_TIMEOUT: Duration = Duration::from_millis(200);

/// A sender and the peers it knows.
#[derive(Clone, Debug)]
pub struct SenderSetup {
    /// The peers by slot: relays and destinations.
    pub peers: Vec<SocketAddr>,
    /// Relays for each packet.
    pub hops: usize,
    /// The controller.
    pub controller: &'static Entry,
    /// Its parameters.
    pub parameters: toml::Table,
    /// How rates become sending times.
    pub pacing: Pacing,
    /// The sender's own limit, if it has one.
    pub upload: Option<Rate>,
    /// Bytes of each packet; [`PACKET`] if nothing says otherwise.
    pub packet: usize,
    /// When the controller begins to count.
    pub start: Time,
    /// Its random numbers.
    pub rng: Rng,
}

/// Why there can't be such a sender.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SetupError {
    /// The controller needs to know what only a simulation knows.
    OnlySimulated(&'static str),
    /// A parameter is unknown or outside its range.
    Parameter(&'static str, ParameterError),
    /// Paths can't have this number of relays.
    Hops {
        /// Relays asked for.
        hops: usize,
        /// Peers that may be relays.
        relays: usize,
    },
    /// Nothing would limit the sender.
    Unlimited(&'static str),
}

impl fmt::Display for SetupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SetupError::OnlySimulated(name) => write!(
                f,
                "the controller \"{name}\" knows every relay's load and limit, and so exists only in simulation; \
                 on a network choose one that learns (see `anabranch controllers`)"
            ),
            SetupError::Parameter(name, error) => write!(f, "controller \"{name}\": {error}"),
            SetupError::Hops { hops: 0, .. } => write!(f, "--hops 0: a path has at least 1 relay"),
            SetupError::Hops { hops, relays } if hops > relays => {
                let asked = if *hops == 1 { "relay for each packet is" } else { "relays for each packet are" };
                write!(f, "--hops {hops}: {hops} {asked} asked for, but ")?;
                match relays {
                    0 => f.write_str("none is known beside the receiver"),
                    1 => f.write_str("only 1 is known"),
                    relays => write!(f, "only {relays} are known"),
                }
            }
            SetupError::Hops { hops, .. } => write!(f, "--hops {hops}: a path has at most {MAX_RELAYS} relays"),
            SetupError::Unlimited(name) => {
                write!(f, "the controller \"{name}\" limits nothing: an upload limit is needed, --upload RATE")
            }
        }
    }
}

impl std::error::Error for SetupError {}

impl SenderSetup {
    /// Makes the sender.
    pub fn build(self) -> Result<Courier, SetupError> {
        let name = self.controller.name;
        // One of the peers is the destination.
        check_hops(self.hops, self.peers.len().saturating_sub(1))?;
        let packet = Bytes::new(self.packet as u64);
        let setup = Setup { peers: self.peers.len(), packet, start: self.start, pacing: self.pacing };
        let made = self.controller.build.make(&setup, &self.parameters).ok_or(SetupError::OnlySimulated(name))?;
        let controller = made.map_err(|error| SetupError::Parameter(name, error))?;
        if controller.rate(Slot(0)).is_none() && self.upload.is_none() {
            return Err(SetupError::Unlimited(name));
        }
        let config = SenderConfig { peers: self.peers.len(), relays: self.hops, packet, rtt: RttConfig::default() };
        let sender = PathSender::new(&config, controller, self.rng);
        let sender = sender.with_least_timeout(LEAST_TIMEOUT).with_moving_deadlines();
        let deliver = |sender| Courier::new(sender, self.peers, packet, self.upload, secret());
        // Who does what relays say needs a bound, for they may not be able to keep it, and need not know
        // the round trip to each relay alone, as the thesis's controllers do.
        Ok(match self.controller.reads_telemetry {
            true => deliver(sender.with_relays_in_order()).with_bound(),
            false => deliver(sender),
        })
    }
}

/// Refuses more relays for each packet than there are or than fit a route, and none.
pub fn check_hops(hops: usize, relays: usize) -> Result<(), SetupError> {
    if (1..=relays.min(MAX_RELAYS)).contains(&hops) { Ok(()) } else { Err(SetupError::Hops { hops, relays }) }
}

/// A route as long as the longest over `hops` of `relays` to `to`: for sizes, not to travel.
pub fn longest_route(relays: &[SocketAddr], hops: usize, to: SocketAddr) -> Vec<SocketAddr> {
    // IPv6 addresses are the longer ones.
    let mut relays = relays.to_vec();
    relays.sort_by_key(SocketAddr::is_ipv4);
    relays.truncate(hops);
    let source = relays.first().map(|&relay| wire::unknown_source(relay));
    source.into_iter().chain(relays).chain([to]).collect()
}

/// 32 bytes that nobody can guess.
pub fn secret() -> [u8; 32] {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).expect("the system has random numbers");
    bytes
}

/// A seed that nobody can guess.
pub fn random_seed() -> u64 {
    u64::from_be_bytes(*secret().first_chunk().expect("32 bytes are more than 8"))
}

#[cfg(test)]
mod tests {
    use anabranch_control::path::registry;

    use super::*;

    fn setup(controller: &str, hops: usize) -> SenderSetup {
        SenderSetup {
            peers: (1..=4).map(|port| SocketAddr::from(([127, 0, 0, 1], port))).collect(),
            hops,
            controller: registry::find(controller).unwrap(),
            parameters: toml::Table::new(),
            pacing: Pacing::Burst,
            upload: None,
            packet: PACKET,
            start: Time::ZERO,
            rng: Rng::stream(1, "setup"),
        }
    }

    #[test]
    fn what_can_not_send_is_refused_with_the_reason() {
        for (setup, says) in [
            (setup("perfect", 2), "only in simulation"),
            (setup("random", 2), "an upload limit is needed, --upload RATE"),
            (setup("q-learning", 0), "--hops 0: a path has at least 1 relay"),
            (setup("q-learning", 4), "--hops 4: 4 relays for each packet are asked for, but only 3 are known"),
            (SenderSetup { parameters: "epsilom = 1".parse().unwrap(), ..setup("q-learning", 3) }, "epsilom"),
        ] {
            let error = setup.build().unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        }
        assert!(setup("q-learning", 3).build().is_ok());
        let upload = Some(Rate::from_bytes_per_sec(1_000_000));
        assert!(SenderSetup { upload, ..setup("random", 3) }.build().is_ok());
    }

    #[test]
    fn a_wrong_number_of_relays_names_its_option_in_the_singular_too() {
        for (hops, relays, says) in [
            (1, 0, "--hops 1: 1 relay for each packet is asked for, but none is known beside the receiver"),
            (2, 1, "--hops 2: 2 relays for each packet are asked for, but only 1 is known"),
            (MAX_RELAYS + 1, usize::MAX, "--hops 9: a path has at most 8 relays"),
        ] {
            assert_eq!(check_hops(hops, relays).unwrap_err().to_string(), says);
        }
    }

    #[test]
    fn the_longest_route_has_the_longest_addresses() {
        let [v4, v6, to] = ["127.0.0.1:1", "[::1]:1", "127.0.0.1:9"].map(|text| text.parse().unwrap());
        assert_eq!(longest_route(&[v4, v6], 1, to), [wire::unknown_source(v6), v6, to]);
    }
}
