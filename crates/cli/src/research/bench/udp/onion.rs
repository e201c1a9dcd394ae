//! A relay of the onion overlay, behind the same socket as the plain one.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use anabranch_control::rng::Rng;
use anabranch_control::time::{Duration as Span, Time};
use anabranch_control::units::Rate;
use anabranch_net::pool::NoWork;
use anabranch_net::runtime::Runtime;
use anabranch_net::udp::Socket;
use anabranch_onion::RelayIndex;
use anabranch_onion::crypto::{Cryptography, Real};
use anabranch_onion::node::{Members, RelayNode};
use anabranch_onion::packet::{Hop, Label, PacketsPerKey, PathKeys};
use anabranch_onion::relay::{EpochKeys, Limits, Relay};
use anabranch_onion::size::DATAGRAM;
use anabranch_proto::limiter::LimitModel;

use super::Moved;
use super::plain::{self, socket};
use crate::failure::Failure;

/// Fills the relay's socket with packets of one user, then lets it pass on all of them, in turn in one thread.
pub fn relay_full(time: Duration) -> Result<Moved, Failure> {
    let (end, socket) = (socket()?, Socket::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?.serving()?);
    let entry = socket.local_addr()?;
    let mut rng = Rng::stream(1, "bench udp onion");
    let k = PacketsPerKey::STANDARD;
    let keys = EpochKeys { epoch: 0, secret: Real::secret(&[1; 32]), members: 2, own: Some(RelayIndex(0)) };
    // Packets come as fast as they are passed on: no budget is for that.
    let limits = Limits { agreements_per_s: 1 << 40, agreements_at_once: 1 << 40, ..Limits::standard(k) };
    let relay = Relay::<Real>::new(k, limits, keys, [rng.bits(), rng.bits()]);
    let hop = |relay, key| Hop { relay: RelayIndex(relay), key, wait: Span::ZERO };
    let path = [hop(0, relay.public_key()), hop(1, Real::public(&Real::secret(&[2; 32])))];
    let limit = (LimitModel::Window { phase: Span::ZERO }, Rate::from_bits_per_sec(u64::MAX));
    let node = RelayNode::new(relay, Members::new(0, vec![entry, end.local_addr()?]), ()).limited(limit.0, limit.1);
    let mut runtime = Runtime::new(NoWork)?;
    runtime.add_gathering(socket, node)?;
    let mut user = PathKeys::<Real>::new(k);
    let mut seal = |buffer: &mut [u8]| {
        let datagram = buffer.first_chunk_mut().expect("a buffer has room for a datagram");
        let receipt = user.seal(&path, Label([0; 8]), &mut rng, datagram).expect("the path is one");
        // All of them are passed on before the next are made.
        user.arrived(&receipt);
    };
    let mut before = 0;
    plain::fill_and_empty(time, entry, &end, &[0; DATAGRAM], Some(&mut seal), || {
        runtime.turn(Time::ZERO)?;
        let forwarded = runtime.machine(0).relay().counts().forwarded;
        Ok(forwarded - std::mem::replace(&mut before, forwarded))
    })
}
