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
use crate::hidden::descriptor::{MAILBOX_BYTES, MOST_MAILBOXES_TOLD};
use crate::session::StreamId;

/// The stream by which a receiver tells a sender the mailboxes that are for its session alone; its users' streams
/// come after it.
const CONTROL: StreamId = StreamId(0);

/// What a sender is told in that stream: how many mailboxes, the epoch whose directory has their relays, and each.
fn tell(epoch: u64, mailboxes: &[MailboxAt]) -> Vec<u8> {
    let mut message = Vec::new();
    let mut writer = Writer::new(&mut message);
    writer.u8(mailboxes.len() as u8);
    writer.u64(epoch);
    mailboxes.iter().for_each(|mailbox| mailbox.write(&mut writer));
    message
}

/// The newest that there is whole in `told`, which keeps what is not; with the epoch.
///
/// # Errors
///
/// When that is no such message.
fn hear(told: &mut Vec<u8>) -> Result<Option<(u64, Vec<MailboxAt>)>, CodecError> {
    let mut newest = None;
    while let Some(&count) = told.first() {
        if !(1..=MOST_MAILBOXES_TOLD).contains(&usize::from(count)) {
            return Err(CodecError::Value("mailboxes"));
        }
        let length = 1 + 8 + usize::from(count) * MAILBOX_BYTES;
        if told.len() < length {
            break;
        }
        let mut reader = Reader::new(&told[1..length]);
        let epoch = reader.u64()?;
        let mailboxes = (0..count).map(|_| MailboxAt::read(&mut reader)).collect::<Result<_, _>>()?;
        newest = Some((epoch, mailboxes));
        told.drain(..length);
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
    fn the_newest_of_what_a_sender_was_told_is_heard_however_it_comes_in_pieces() {
        let all = [tell(7, &mailboxes(1)), tell(8, &mailboxes(4)), tell(9, &mailboxes(2))].concat();
        for cut in 0..=all.len() {
            let mut told = all[..cut].to_vec();
            let first = hear(&mut told).expect("messages");
            told.extend_from_slice(&all[cut..]);
            let second = hear(&mut told).expect("messages");
            assert_eq!((second.or(first), told.len()), (Some((9, mailboxes(2))), 0), "cut at {cut}");
        }
        assert!(hear(&mut vec![0]).is_err() && hear(&mut vec![MOST_MAILBOXES_TOLD as u8 + 1]).is_err());
        let nowhere = [MailboxAt { relay: RelayIndex(LAST_INDEX.0 + 1), label: Label([0; 8]) }];
        assert!(hear(&mut tell(7, &nowhere)).is_err());
    }

    proptest! {
        #[test]
        fn whatever_a_sender_is_told_it_keeps_less_than_a_message(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            let mut told = bytes;
            if hear(&mut told).is_ok() {
                prop_assert!(told.len() < 1 + 8 + MOST_MAILBOXES_TOLD * MAILBOX_BYTES);
            }
        }
    }
}
