//! What must hold for any input of a rendezvous, and of what the two sides of a mailbox tell each
//! other. Fuzz targets and an ordinary test include this file, as they do `checks.rs`.

use std::net::SocketAddr;

use anabranch_control::rng::Rng;
use anabranch_control::time::{Duration, Time};
use anabranch_rendezvous::agreement::{Answer, Offer};
use anabranch_rendezvous::code::Code;
use anabranch_rendezvous::frame::{Frame, MOST};
use anabranch_rendezvous::limits::Limits;
use anabranch_rendezvous::mailboxes::{Letter, Mailboxes};

/// Few of everything, so that an input can reach each limit.
fn limits() -> Limits {
    Limits {
        mailboxes: 4,
        mailboxes_of_one: 2,
        mailbox_bytes: 200,
        message_bytes: 100,
        age: Duration::from_millis(30_000),
        messages_per_second: 4,
        connections: 6,
        connections_of_one: 3,
        ..Limits::default()
    }
}

/// Where client `number` is: three share each address.
fn seen(number: u8) -> SocketAddr {
    SocketAddr::from(([192, 0, 2, number % 3], 4000 + u16::from(number)))
}

/// A frame that is read comes out the same, and no longer than a frame may be if it was not.
fn frame(input: &[u8]) {
    let Some(frame) = Frame::decode(input) else { return };
    let mut bytes = Vec::new();
    frame.encode(&mut bytes);
    if input.len() <= MOST {
        let (length, rest) = bytes.split_first_chunk().expect("a frame has a length");
        assert_eq!(usize::from(u16::from_be_bytes(*length)), rest.len());
        assert_eq!(Frame::decode(rest), Some(frame));
    }
}

/// Clients say whatever they like to a rendezvous: the input is cut into steps, a client and what it
/// does in one byte, and of a frame its length in another, and itself.
pub fn rendezvous(input: &[u8]) {
    frame(input);
    let (limits, mut now) = (limits(), Time::ZERO);
    let mut post = Mailboxes::new(limits, Rng::stream(1, "mailboxes"));
    let (mut there, mut letters) = ([false; 9], Vec::new());
    let mut rest = input;
    while let Some((&step, behind)) = rest.split_first() {
        rest = behind;
        let client = step % 9;
        match step / 9 {
            0 => {
                post.leave(u64::from(client), &mut letters);
                there[usize::from(client)] = false;
            }
            1 => {
                now += Duration::from_millis(500);
                post.expire(now, &mut letters);
            }
            2 => {
                now += limits.age;
                post.expire(now, &mut letters);
            }
            _ => {
                let Some((&length, behind)) = rest.split_first() else { break };
                let (bytes, behind) = behind.split_at(usize::from(length).min(behind.len()));
                rest = behind;
                frame(bytes);
                let is_there = &mut there[usize::from(client)];
                *is_there = *is_there || post.join(u64::from(client), seen(client)).is_ok();
                // Who says what makes no sense is sent away, as the server does.
                match Frame::decode(bytes).filter(|_| *is_there) {
                    Some(frame) => post.on_frame(now, u64::from(client), seen(client), frame, &mut letters),
                    None => post.leave(u64::from(client), &mut letters),
                }
            }
        }
        for Letter { to, frame } in letters.drain(..) {
            let mut bytes = Vec::new();
            frame.encode(&mut bytes);
            assert!(bytes.len() <= MOST + 2, "{frame:?}");
            assert_eq!(Frame::decode(&bytes[2..]).as_ref(), Some(&frame));
            assert!(!matches!(frame, Frame::Open(_) | Frame::Claim(..) | Frame::Put(_)), "{frame:?} to a client");
            if let Frame::Refused(_) = frame {
                there[to as usize] = false;
            } else {
                assert!(there[to as usize], "{frame:?} to {to}, who is not there");
            }
        }
        // A frame that was none: its client is not there either.
        there.iter_mut().zip(0..).for_each(|(is_there, client)| *is_there &= post.has(client));
        assert!(post.len() <= limits.mailboxes && post.members() <= limits.connections);
        assert!(post.waiting_bytes() <= limits.mailboxes * limits.mailbox_bytes);
    }
    (0..9).for_each(|client| post.leave(client, &mut letters));
    assert_eq!(post.members(), 0);
    post.expire(now + limits.age, &mut letters);
    assert_eq!((post.len(), post.waiting_bytes()), (0, 0), "nobody is there, and all is too old");
}

/// What the other side of a mailbox says comes out the same where it makes sense.
pub fn agreement(input: &[u8]) {
    if let Ok(offer) = Offer::decode(input) {
        assert_eq!(Offer::decode(&offer.encode()).expect("what was read is written"), offer);
    }
    if let Ok(answer) = Answer::decode(input) {
        assert_eq!(Answer::decode(&answer.encode()).expect("what was read is written"), answer);
    }
}

/// A code that is read comes out as one that is the same.
pub fn code(input: &[u8]) {
    if let Some(code) = std::str::from_utf8(input).ok().and_then(|text| text.parse::<Code>().ok()) {
        assert!(code.to_string().parse::<Code>().is_ok_and(|again| again == code));
    }
}
