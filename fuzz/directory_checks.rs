//! What must hold for whatever a relay, a user or an authority sends to an authority, and for whatever
//! a user is given as the document.

use std::cell::RefCell;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::time::Duration as WallDuration;

use anabranch_control::time::{Duration, Time};
use anabranch_onion::directory::{
    Authority, AuthorityConfig, AuthorityEvent, AuthorityState, Message, Remembered, SecretKey, SignedDescriptor,
    SignedDocument, Trust, UnixTime, View, WallClock,
};
use anabranch_onion::packet::PacketsPerKey;
use anabranch_proto::machine::{Arrival, Departure, Machine, Out, Wire};

/// The one authority that all inputs come to.
pub const SEED: [u8; 32] = [42; 32];

/// Where messages are said to come from.
pub const FROM: ([u8; 4], u16) = ([10, 0, 1, 1], 4000);

/// Where the authority is.
const AUTHORITY_AT: ([u8; 4], u16) = ([10, 9, 9, 9], 1);

struct Nowhere {
    sent: usize,
}

impl Out<Authority> for Nowhere {
    fn send(&mut self, _: Departure<SocketAddr>, message: &Message) {
        let mut bytes = Vec::new();
        message.write(&mut bytes);
        let mut read = Message::default();
        read.read(&bytes).expect("what an authority sends is a message");
        assert!(read == *message, "what is sent is read as it was meant");
        self.sent += 1;
    }

    fn event(&mut self, _: AuthorityEvent) {}

    fn job(&mut self, job: Infallible) {
        match job {}
    }
}

fn authority() -> Authority {
    let key = SecretKey::from_seed(&SEED);
    let config = AuthorityConfig {
        authorities: vec![(key.public(), SocketAddr::from(AUTHORITY_AT))],
        threshold: 1,
        epoch_s: 100,
        round: Duration::SECOND,
        valid_epochs: 3,
        packets_per_key: PacketsPerKey::STANDARD,
    };
    let clock = WallClock::new(Time::ZERO, WallDuration::from_secs(1_000));
    let mut authority = Authority::new(config, key, clock, Time::ZERO, AuthorityState::default()).expect("it can work");
    // It holds the ballot of an epoch that begins 100 s after it has.
    while authority.timer(Time::ZERO) < now() {
        let timer = authority.timer(Time::ZERO);
        authority.on_timer(timer, &mut Nowhere { sent: 0 });
    }
    authority
}

fn now() -> Time {
    Time::from_secs_f64(97.5)
}

thread_local! {
    static AUTHORITY: RefCell<Authority> = RefCell::new(authority());
}

/// Descriptors, documents and messages have one form; an authority takes any message.
pub fn directory(input: &[u8]) {
    if let Ok(signed) = SignedDescriptor::decode(input) {
        assert_eq!(signed.encode(), input);
        assert!(signed.check().is_ok());
    }
    let key = SecretKey::from_seed(&SEED).public();
    let trust = Trust::new(&[key], 1).expect("one of one");
    if let Ok(signed) = SignedDocument::decode(input) {
        assert_eq!(signed.encode(), input);
        let mut view = View::new(trust.clone(), Remembered::default());
        let now = UnixTime(1_100);
        match signed.verify(&trust) {
            Ok((document, hash)) => {
                assert_eq!((document.check(), document.hash()), (Ok(()), hash));
                if view.accept(input, now).is_ok() {
                    assert_eq!(view.remembered().hash, hash);
                    assert_eq!(view.accept(input, now), Ok(false));
                }
            }
            Err(_) => assert!(view.accept(input, now).is_err()),
        }
    }
    // From a relay, and from an authority.
    for from in [SocketAddr::from(FROM), SocketAddr::from(AUTHORITY_AT)] {
        let mut message = Message::default();
        if message.read(input).is_err() {
            return;
        }
        AUTHORITY.with_borrow_mut(|authority| {
            let mut out = Nowhere { sent: 0 };
            authority.on_message(now(), Arrival::new(from), &mut message, &mut out);
            assert!(out.sent <= 1, "one message has one answer");
            assert!(authority.known() <= 2, "only what its relay has signed is known");
        });
    }
}
