//! The two ends of [`hidden`](crate::hidden): a user who is found by a key alone, and one who finds it.

mod own;
mod publication;
mod receiver;
mod search;
mod sender;

use core::marker::PhantomData;
use std::convert::Infallible;
use std::net::SocketAddr;

use anabranch_control::rng::Rng;
use anabranch_proto::machine::{Departure, Machine, Out};

pub use receiver::{HiddenReceiver, ReceiverCounts, ReceiverEvent};
pub use search::FindError;
pub use sender::{HiddenSender, SenderEvent};

use super::frame::Frame;
use super::user::{User, UserEvent};
use crate::crypto::Cryptography;
use crate::session::StreamId;

/// The stream by which a receiver tells a sender the mailboxes that are for its session alone; its users' streams
/// come after it.
const CONTROL: StreamId = StreamId(0);

/// The way out of the user inside, and what it tells.
struct Inner<'a, O, M> {
    out: &'a mut O,
    events: &'a mut Vec<UserEvent>,
    outer: PhantomData<M>,
}

impl<'a, O, M> Inner<'a, O, M> {
    fn new(out: &'a mut O, events: &'a mut Vec<UserEvent>) -> Inner<'a, O, M> {
        Inner { out, events, outer: PhantomData }
    }
}

impl<C, R, O, M> Out<User<C, R>> for Inner<'_, O, M>
where
    C: Cryptography,
    R: rand_core::Rng,
    M: Machine<Address = SocketAddr, Message = Frame>,
    O: Out<M>,
{
    fn send(&mut self, departure: Departure<SocketAddr>, frame: &Frame) {
        self.out.send(departure, frame);
    }

    fn event(&mut self, event: UserEvent) {
        self.events.push(event);
    }

    fn job(&mut self, job: Infallible) {
        match job {}
    }
}

/// Numbers that nothing else comes from.
fn draw(rng: &mut impl rand_core::Rng) -> Rng {
    Rng::stream(rng.next_u64(), "hidden")
}

fn bytes<const N: usize>(rng: &mut impl rand_core::Rng) -> [u8; N] {
    let mut bytes = [0; N];
    rng.fill_bytes(&mut bytes);
    bytes
}
