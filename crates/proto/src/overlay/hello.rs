//! The bodies of hellos and their replies: a handshake that costs a receiver next to nothing before its
//! sender's address is proved.
//!
//! ```text
//! hello:        cookie 16 (zeros: none yet), proof 8, pattern 1, handshake message, zeros
//! hello reply:  1 cookie    proof 8, cookie 16
//!               2 answer    handshake message 48, sealed proof 8 + 8 + 16
//! ```
//!
//! A hello without the right cookie is answered by that cookie alone, which the sender repeats with
//! its hello: it was there to hear the answer (RFC 9147, 5.1; RFC 9000, 8.1.2). Until then nothing is computed
//! on a curve and nothing is remembered, but for the few half-open sessions that a receiver allows while it has
//! no more of them (RFC 7296, 2.6). A cookie is a keyed hash of the source's address, as
//! the first relay has written it down, and of the handshake's message; its key is drawn anew every
//! [`EPOCH`] and is good for the next one too. The port is not in it: behind a NAT each relay may
//! see another one.
//!
//! A hello is as long as the longest message of a handshake allows, so that no reply is longer. One
//! that is longer tries which packets the path carries ([`path_mtu`](crate::overlay::path_mtu)).
//! The proof travels in the clear, for nothing can be opened before the handshake: a relay can
//! answer in the receiver's name with a cookie, which the receiver then refuses and replaces. Only what is
//! sealed in an answer proves that the receiver was reached.

use std::net::IpAddr;

use anabranch_control::time::{Duration, Time};

use crate::seal;

/// So long a cookie's key is in use before the next is drawn; a cookie lives for one to two epochs.
/// As long as a sender greets before it gives up.
pub const EPOCH: Duration = Duration::from_millis(30_000);

/// Bytes of a cookie: as many as of a tag.
pub const COOKIE: usize = 16;

/// Bytes of a hello's body, at least.
pub const HELLO: usize = COOKIE + 8 + seal::MAX_OPENING;

/// What a receiver gives out and wants to see again.
pub type Cookie = [u8; COOKIE];

/// A sender's first message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HelloBody<'a> {
    /// What the receiver has answered before; zeros if nothing was heard of it.
    pub cookie: Cookie,
    /// What the answer must return.
    pub proof: u64,
    /// The handshake's pattern and message.
    pub opening: &'a [u8],
}

impl<'a> HelloBody<'a> {
    /// Appends the bytes of this hello to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&self.cookie);
        out.extend_from_slice(&self.proof.to_be_bytes());
        out.extend_from_slice(self.opening);
        out.resize(start + HELLO, 0);
    }

    /// Reads a hello; none if it is shorter, has another end than zeros, or an unknown pattern.
    pub fn decode(body: &'a [u8]) -> Option<HelloBody<'a>> {
        if body.len() < HELLO {
            return None;
        }
        let (cookie, rest) = body.split_first_chunk()?;
        let (proof, rest) = rest.split_first_chunk()?;
        let (opening, zeros) = rest.split_at(seal::opening_len(*rest.first()?)?);
        let hello = HelloBody { cookie: *cookie, proof: u64::from_be_bytes(*proof), opening };
        zeros.iter().all(|&byte| byte == 0).then_some(hello)
    }
}

/// What a receiver says to a hello.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HelloReply<'a> {
    /// Say it again with this cookie.
    Cookie {
        /// The hello's proof.
        proof: u64,
        /// To be repeated.
        cookie: Cookie,
    },
    /// The handshake's second message, and the hello's proof, sealed.
    Answer {
        /// The message.
        answer: &'a [u8],
        /// The proof, as [`seal::Session::seal`] has sealed it.
        sealed: &'a [u8],
    },
}

impl<'a> HelloReply<'a> {
    /// Appends the bytes of this reply to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            HelloReply::Cookie { proof, cookie } => {
                out.push(1);
                out.extend_from_slice(&proof.to_be_bytes());
                out.extend_from_slice(cookie);
            }
            HelloReply::Answer { answer, sealed } => {
                out.push(2);
                out.extend_from_slice(answer);
                out.extend_from_slice(sealed);
            }
        }
    }

    /// Reads a reply, if it is one.
    pub fn decode(body: &'a [u8]) -> Option<HelloReply<'a>> {
        match body.split_first()? {
            (1, rest) => {
                let (proof, cookie) = rest.split_first_chunk()?;
                Some(HelloReply::Cookie { proof: u64::from_be_bytes(*proof), cookie: cookie.try_into().ok()? })
            }
            (2, rest) => {
                let (answer, sealed) = rest.split_at_checked(seal::ANSWER)?;
                Some(HelloReply::Answer { answer, sealed })
            }
            _ => None,
        }
    }
}

/// What a receiver keeps of all hellos together: two keys.
#[derive(Clone)]
pub struct Cookies {
    /// Of this epoch and of the one before.
    keys: [[u8; 32]; 2],
    epoch: u64,
}

impl Default for Cookies {
    fn default() -> Cookies {
        Cookies { keys: [seal::random_bytes(), seal::random_bytes()], epoch: 0 }
    }
}

impl Cookies {
    /// The cookie for a hello from `source`.
    pub fn make(&mut self, now: Time, source: IpAddr, opening: &[u8]) -> Cookie {
        self.renew(now);
        made_with(&self.keys[0], source, opening)
    }

    /// Whether `hello`, from `source`, has the cookie that it was given.
    pub fn is_right(&mut self, now: Time, source: IpAddr, hello: &HelloBody<'_>) -> bool {
        self.renew(now);
        // No early end: how long it takes says nothing about how much of it is right.
        let is_equal = |made: Cookie| made.iter().zip(&hello.cookie).fold(0, |all, (a, b)| all | (a ^ b)) == 0;
        self.keys.iter().fold(false, |any, key| any | is_equal(made_with(key, source, hello.opening)))
    }

    fn renew(&mut self, now: Time) {
        let epoch = now.since(Time::ZERO).as_nanos() / EPOCH.as_nanos();
        match epoch.saturating_sub(self.epoch) {
            0 => return,
            1 => self.keys = [seal::random_bytes(), self.keys[0]],
            _ => self.keys = [seal::random_bytes(), seal::random_bytes()],
        }
        self.epoch = epoch;
    }
}

fn made_with(key: &[u8; 32], source: IpAddr, opening: &[u8]) -> Cookie {
    let mut hasher = blake3::Hasher::new_keyed(key);
    match source {
        IpAddr::V4(ip) => hasher.update(&[4]).update(&ip.octets()),
        IpAddr::V6(ip) => hasher.update(&[6]).update(&ip.octets()),
    };
    *hasher.update(opening).finalize().as_bytes().first_chunk().expect("a hash has 32 bytes")
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use anabranch_control::path::MAX_RELAYS;
    use proptest::prelude::*;

    use super::*;
    use crate::overlay::packet::Kind;
    use crate::overlay::wire;
    use crate::seal::{Hello, Identity};

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));

    fn at(seconds: f64) -> Time {
        Time::from_secs_f64(seconds)
    }

    #[test]
    fn a_cookie_is_right_for_one_hello_from_one_address_for_one_to_two_epochs() {
        let mut cookies = Cookies::default();
        let (ours, others) = (Hello::new(None, None), Hello::new(None, None));
        let hello =
            HelloBody { cookie: cookies.make(at(29.9), HERE, ours.opening()), proof: 7, opening: ours.opening() };
        assert!(cookies.is_right(at(29.9), HERE, &hello));
        let elsewhere = "2001:db8::1".parse().unwrap();
        assert!(!cookies.is_right(at(29.9), elsewhere, &hello), "another address");
        assert!(!cookies.is_right(at(29.9), HERE, &HelloBody { opening: others.opening(), ..hello }), "another hello");
        assert!(!cookies.is_right(at(29.9), HERE, &HelloBody { cookie: [0; COOKIE], ..hello }), "none");
        let mut strangers = Cookies::default();
        assert!(!strangers.is_right(at(29.9), HERE, &hello), "another receiver's");
        assert!(cookies.is_right(at(30.0), HERE, &hello) && cookies.is_right(at(59.9), HERE, &hello));
        assert!(!cookies.clone().is_right(at(60.0), HERE, &hello), "too old");
        let mut slept = Cookies { epoch: 0, ..cookies };
        assert!(!slept.is_right(at(900.0), HERE, &hello), "nobody asked for a while");
    }

    #[test]
    fn every_pattern_fits_a_hello_and_no_reply_is_longer() {
        let (ours, theirs) = (Identity::generate(), Identity::generate());
        for (key, own) in [(None, None), (Some(theirs.public()), None), (Some(theirs.public()), Some(&ours))] {
            let hello = Hello::new(key.as_ref(), own);
            let mut body = Vec::new();
            HelloBody { cookie: [3; COOKIE], proof: 9, opening: hello.opening() }.encode(&mut body);
            assert_eq!(body.len(), HELLO);
            let read = HelloBody::decode(&body).unwrap();
            assert_eq!((read.cookie, read.proof, read.opening), ([3; COOKIE], 9, hello.opening()));
            for wrong in [&body[..HELLO - 1], &[&body[..], &[1]].concat(), &[&body[..], &[0, 0, 1, 0]].concat()] {
                assert_eq!(HelloBody::decode(wrong), None);
            }
            // Filled up, it tries which packets the path carries.
            assert_eq!(HelloBody::decode(&[&body[..], &[0; 900]].concat()).unwrap().opening, hello.opening());
        }
        let mut cookie = Vec::new();
        HelloReply::Cookie { proof: 9, cookie: [3; COOKIE] }.encode(&mut cookie);
        let answer = 1 + seal::ANSWER + 8 + 8 + seal::TAG;
        // Whole datagrams: relays stamp answers.
        for relays in 1..=MAX_RELAYS {
            let nodes = vec![SocketAddr::new(HERE, 1); relays + 2];
            let hello = wire::header_len(Kind::Data, &nodes) + HELLO;
            let longest = wire::header_len(Kind::Ack, &nodes) + answer.max(cookie.len());
            assert!(longest <= hello, "{longest} for {hello} over {relays} relays");
        }
    }

    proptest! {
        #[test]
        fn what_is_read_comes_out_the_same(
            mut body in prop::collection::vec(any::<u8>(), HELLO),
            pattern in 0u8..4,
            zeros: bool,
            reply in prop::collection::vec(any::<u8>(), 0..120),
        ) {
            body[COOKIE + 8] = pattern;
            if zeros {
                let end = COOKIE + 8 + seal::opening_len(pattern).unwrap_or(1);
                body[end..].fill(0);
            }
            let mut out = Vec::new();
            if let Some(hello) = HelloBody::decode(&body) {
                hello.encode(&mut out);
                prop_assert_eq!(&out, &body);
            }
            out.clear();
            if let Some(said) = HelloReply::decode(&reply) {
                said.encode(&mut out);
                prop_assert_eq!(out, reply);
            }
        }
    }
}
