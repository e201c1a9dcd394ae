//! What must hold for whatever strangers say to a relay's mailboxes, and relays to their users. Fuzz targets and an
//! ordinary test include this file.

use anabranch_control::time::{Duration, Time};
use anabranch_onion::crypto::Transparent;
use anabranch_onion::directory::PublicKey;
use anabranch_onion::hidden::body::{Answer, Request, take_onward, write_onward};
use anabranch_onion::hidden::mailbox::{MOST_BLOCKS_IN_ALL, MOST_DESCRIPTORS, MOST_MAILBOXES};
use anabranch_onion::hidden::{MAILBOX, Mailboxes, ONWARD};
use anabranch_onion::packet::{BODY, Label};
use anabranch_onion::size::DATAGRAM;

/// The relay's key.
pub const HERE: PublicKey = PublicKey([5; 32]);

/// The epoch in which it begins.
pub const EPOCH: u64 = 7;

/// Bytes that a relay's mailboxes take at most.
const MOST_MEMORY: usize = 40 << 20;

/// Packets that leave for one body that comes: both parts of a descriptor.
const MOST_ANSWERS: usize = 2;

/// A body of these bytes and zeros.
fn body(bytes: &[u8]) -> [u8; BODY] {
    let mut body = [0; BODY];
    let length = bytes.len().min(BODY);
    body[..length].copy_from_slice(&bytes[..length]);
    body
}

/// What is read of a body is written as it was.
pub fn onion_mailbox(input: &[u8]) {
    let said = body(input);
    let mut again = [1; BODY];
    if let Ok(request) = Request::read(&said) {
        request.write(&mut again);
        assert_eq!(again, said);
    }
    if let Ok(answer) = Answer::read(&said) {
        answer.write(&mut again);
        assert_eq!(again, said);
    }
    let mut cell = said;
    if let Some(block) = take_onward(&mut cell) {
        let length = BODY - block.to_bytes().len();
        write_onward(&block, &cell[..length], &mut again);
        assert_eq!(again, said);
    }
}

/// Epochs, time and bodies as the input has them, each command with its length (2 bytes): what a relay keeps and says
/// stays within its bounds.
pub fn onion_mailboxes(mut input: &[u8]) {
    let mut relay = Mailboxes::<Transparent>::new(HERE, EPOCH);
    let (mut now, mut epoch) = (Time::ZERO, EPOCH);
    // Labels that somebody has named.
    let mut labels: Vec<Label> = Vec::new();
    while let [what, high, low, rest @ ..] = input {
        let length = usize::from(u16::from_be_bytes([*high, *low])).min(rest.len());
        let (bytes, after) = rest.split_at(length);
        input = after;
        let mut most = 0;
        match what % 6 {
            0 => {
                epoch += 1;
                relay.begin_epoch(now, epoch, Duration::SECOND * length as u64);
            }
            1 => {
                now += Duration::SECOND * length as u64;
                if relay.timer() <= now {
                    relay.on_timer(now);
                }
                assert!(relay.timer() > now, "what is due is done");
            }
            2 | 3 => {
                let said = body(bytes);
                match Request::read(&said) {
                    Ok(Request::Open(open)) => labels.push(anabranch_onion::hidden::body::label_of(&open.key)),
                    Ok(Request::Fill { label, .. }) => labels.push(label),
                    _ => {}
                }
                assert!(relay.on_body(now, MAILBOX, &said));
                most = MOST_ANSWERS;
            }
            4 => {
                assert!(relay.on_body(now, ONWARD, &body(bytes)));
                most = 1;
            }
            _ => {
                let Some(label) = labels.get(length % labels.len().max(1)) else { continue };
                relay.on_body(now, *label, &body(bytes));
                // It may be the one that requests come for.
                most = MOST_ANSWERS;
            }
        }
        let mut datagram = [0; DATAGRAM];
        let mut left = 0;
        while relay.poll(&mut datagram).is_some() {
            left += 1;
        }
        assert!(left <= most, "{left} packets left for one body");
        let (mailboxes, blocks) = relay.held();
        assert!(
            mailboxes <= MOST_MAILBOXES && blocks <= MOST_BLOCKS_IN_ALL && mailboxes + blocks <= input_bound(&relay)
        );
        assert!(relay.descriptors() <= MOST_DESCRIPTORS && relay.memory() <= MOST_MEMORY);
    }
}

/// No more is held than was taken.
fn input_bound(relay: &Mailboxes<Transparent>) -> usize {
    (relay.counts().opened + relay.counts().filled) as usize
}
