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
use anabranch_proto::codec::{CodecError, Reader, Writer};
use anabranch_proto::machine::{Departure, Machine, Out};

pub use receiver::{HiddenReceiver, MOST_OWN, ReceiverCounts, ReceiverEvent};
pub use search::FindError;
pub use sender::{HiddenSender, SenderEvent};

use super::frame::Frame;
use super::user::{User, UserEvent};
use crate::crypto::Cryptography;
use crate::hidden::MailboxAt;
use crate::hidden::descriptor::{MAILBOX_BYTES, MOST_MAILBOXES_NAMED};
use crate::session::StreamId;

/// The stream by which a receiver announces to a sender the mailboxes that are for its session alone; its users'
/// streams come after it.
const CONTROL: StreamId = StreamId(0);

/// What is announced in that stream: how many mailboxes, the epoch whose directory has their relays, and each.
fn encode_mailboxes(epoch: u64, mailboxes: &[MailboxAt]) -> Vec<u8> {
    let mut message = Vec::new();
    let mut writer = Writer::new(&mut message);
    writer.u8(mailboxes.len() as u8);
    writer.u64(epoch);
    mailboxes.iter().for_each(|mailbox| mailbox.write(&mut writer));
    message
}

/// The newest that there is whole in `received`, which keeps what is not; with the epoch.
///
/// # Errors
///
/// When that is no such message.
fn decode_newest(received: &mut Vec<u8>) -> Result<Option<(u64, Vec<MailboxAt>)>, CodecError> {
    let mut newest = None;
    while let Some(&count) = received.first() {
        if !(1..=MOST_MAILBOXES_NAMED).contains(&usize::from(count)) {
            return Err(CodecError::Value("mailboxes"));
        }
        let length = 1 + 8 + usize::from(count) * MAILBOX_BYTES;
        if received.len() < length {
            break;
        }
        let mut reader = Reader::new(&received[1..length]);
        let epoch = reader.u64()?;
        let mailboxes = (0..count).map(|_| MailboxAt::read(&mut reader)).collect::<Result<_, _>>()?;
        newest = Some((epoch, mailboxes));
        received.drain(..length);
    }
    Ok(newest)
}

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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::RelayIndex;
    use crate::packet::{LAST_INDEX, Label};

    fn mailboxes(count: u8) -> Vec<MailboxAt> {
        (0..count).map(|number| MailboxAt { relay: RelayIndex(number.into()), label: Label([number; 8]) }).collect()
    }

    #[test]
    fn the_newest_of_the_announced_mailboxes_is_read_however_it_comes_in_pieces() {
        let all = [
            encode_mailboxes(7, &mailboxes(1)),
            encode_mailboxes(8, &mailboxes(4)),
            encode_mailboxes(9, &mailboxes(2)),
        ]
        .concat();
        for cut in 0..=all.len() {
            let mut received = all[..cut].to_vec();
            let first = decode_newest(&mut received).expect("messages");
            received.extend_from_slice(&all[cut..]);
            let second = decode_newest(&mut received).expect("messages");
            assert_eq!((second.or(first), received.len()), (Some((9, mailboxes(2))), 0), "cut at {cut}");
        }
        assert!(
            decode_newest(&mut vec![0]).is_err() && decode_newest(&mut vec![MOST_MAILBOXES_NAMED as u8 + 1]).is_err()
        );
        let nowhere = [MailboxAt { relay: RelayIndex(LAST_INDEX.0 + 1), label: Label([0; 8]) }];
        assert!(decode_newest(&mut encode_mailboxes(7, &nowhere)).is_err());
    }

    proptest! {
        #[test]
        fn whatever_a_sender_receives_it_keeps_less_than_a_message(
            bytes in proptest::collection::vec(any::<u8>(), 0..400),
        ) {
            let mut received = bytes;
            if decode_newest(&mut received).is_ok() {
                prop_assert!(received.len() < 1 + 8 + MOST_MAILBOXES_NAMED * MAILBOX_BYTES);
            }
        }
    }
}
