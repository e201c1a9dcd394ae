use std::net::IpAddr;

use anabranch_control::path::registry::{self, Pacing, Setup};
use anabranch_control::rng::Rng;
use anabranch_control::rtt::RttConfig;
use anabranch_control::units::Bytes;

use super::*;
use crate::message::FileName;
use crate::path_sender::{PathSender, SenderConfig};
use crate::seal::{Identity, SessionId};
use crate::transfer::{Limits, Receiver, Reply, Source, Store, StoreError};

const PACKET: Bytes = Bytes::new(600);
const PEERS: u8 = 6;
/// Five relays, two for each packet.
const COPIES: usize = 3;

/// A sender, and a receiver that it reaches as often as a test wants.
struct Pair {
    sender: FileSender,
    receiver: Receiver,
    now: Time,
}

impl Pair {
    fn new() -> Pair {
        Pair::with(Limits::default())
    }

    fn with(limits: Limits) -> Pair {
        let addresses: Vec<SocketAddr> = (1..=PEERS).map(|last| SocketAddr::from(([10, 0, 0, last], 4000))).collect();
        let config = SenderConfig { peers: addresses.len(), relays: 2, packet: PACKET, rtt: RttConfig::default() };
        let setup = Setup { peers: addresses.len(), packet: PACKET, start: Time::ZERO, pacing: Pacing::Burst };
        let made = registry::find("random").unwrap().build.make(&setup, &toml::Table::new());
        let machine = PathSender::new(&config, made.expect("not for simulation only").unwrap(), Rng::stream(1, "s"));
        let courier = Courier::new(machine, addresses, PACKET, None, [3; 32]);
        let offer = Offer { name: FileName::sanitised("a"), length: 10, block: 5, hash: [0; 32] };
        let identity = Identity::generate();
        let key = Some(identity.public());
        let sender = FileSender::new(Time::ZERO, courier, Slot(u16::from(PEERS) - 1), key, offer);
        Pair { sender, receiver: Receiver::new(identity, limits), now: Time::ZERO }
    }

    /// What leaves now.
    fn sent(&mut self) -> Vec<OwnedDatagram> {
        let (mut all, mut out) = (Vec::new(), OwnedDatagram::default());
        while self.sender.poll(self.now, &mut out).is_some() {
            all.push(out.clone());
        }
        all
    }

    fn wait(&mut self, millis: u64) {
        self.now += Duration::from_millis(millis);
        self.sender.on_timer(self.now);
    }

    /// The receiver's answer to `datagram`, whose first relay has seen it come from `source`.
    fn answer(&mut self, datagram: &OwnedDatagram, source: IpAddr) -> OwnedDatagram {
        let mut answer = datagram.clone();
        answer.body.clear();
        let Pair { receiver, now, .. } = self;
        answer.what = match datagram.what {
            Type::Hello => {
                assert!(receiver.on_hello(*now, source, &datagram.body, &mut answer.body));
                Type::HelloReply
            }
            _ => match receiver.on_data(*now, &datagram.body, &mut answer.body).expect("an answer") {
                Reply::Ack(proof) => {
                    answer.packet.nonce = proof;
                    Type::Ack
                }
                Reply::Report => Type::Report,
            },
        };
        answer
    }
}

const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));

fn cookie_of(datagram: &OwnedDatagram) -> Cookie {
    HelloBody::decode(&datagram.body).unwrap().cookie
}

#[test]
fn a_cookie_is_repeated_at_once_and_the_answer_opens_the_offer() {
    let mut pair = Pair::new();
    let first = pair.sent();
    assert_eq!((first.len(), cookie_of(&first[0])), (COPIES, Cookie::default()));
    let cookie = pair.answer(&first[0], HERE);
    pair.sender.on_answer(pair.now, &cookie);
    let second = pair.sent();
    assert_eq!(second.len(), COPIES, "the same instant");
    // The other cookies hasten nothing.
    for hello in &first[1..] {
        let cookie = pair.answer(hello, HERE);
        pair.sender.on_answer(pair.now, &cookie);
    }
    assert_eq!(pair.sent().len(), 0);
    let opening = |datagram: &OwnedDatagram| HelloBody::decode(&datagram.body).unwrap().opening.to_vec();
    assert_eq!(opening(&second[0]), opening(&first[0]), "one handshake, whatever is lost");
    let answer = pair.answer(&second[0], HERE);
    pair.sender.on_answer(pair.now, &answer);
    assert_eq!(pair.sender.phase(), Phase::Offering);
    assert_eq!(pair.sender.courier().counters().acked, 4, "of the first three, and of one of the second");
    let offers = pair.sent();
    assert_eq!(offers.len(), COPIES);
    for offer in &offers {
        let report = pair.answer(offer, HERE);
        pair.sender.on_answer(pair.now, &report);
    }
    assert_eq!((pair.sender.phase(), pair.receiver.sessions()), (Phase::Sending, 1));
}

#[test]
fn hellos_that_are_answered_late_are_answered_and_begin_no_other_session() {
    let mut pair = Pair::new();
    let first = pair.sent();
    let cookie = pair.answer(&first[0], HERE);
    pair.sender.on_answer(pair.now, &cookie);
    let mut hellos = pair.sent();
    pair.wait(500);
    hellos.extend(pair.sent());
    assert_eq!(hellos.len(), 2 * COPIES);
    for hello in &hellos {
        let answer = pair.answer(hello, HERE);
        pair.sender.on_answer(pair.now, &answer);
    }
    let counters = *pair.sender.courier().counters();
    assert_eq!((counters.acked + counters.late, counters.unreadable, counters.forged), (2 * COPIES as u64 + 1, 0, 0));
    assert_eq!(pair.receiver.sessions(), 1);
}

/// A relay that swallows a hello can read its proof.
#[test]
fn only_a_hellos_reply_answers_a_hello() {
    let mut pair = Pair::new();
    let hello = pair.sent().remove(0);
    assert_eq!(pair.sent().len(), 0);
    let proof = HelloBody::decode(&hello.body).unwrap().proof;
    let mut forged = hello.clone();
    forged.packet.nonce = proof;
    for (what, body) in [
        (Type::Ack, vec![]),
        (Type::Report, vec![7; 40]),
        (Type::HelloReply, vec![]),
        (Type::HelloReply, [&[2][..], &[9; 48], &proof.to_be_bytes(), &[0; 24]].concat()),
        (Type::HelloReply, [&[1][..], &(proof ^ 1).to_be_bytes(), &[5; 16]].concat()),
    ] {
        (forged.what, forged.body) = (what, body);
        pair.sender.on_answer(pair.now, &forged);
        let counters = *pair.sender.courier().counters();
        assert_eq!((counters.acked, counters.late), (0, 0), "{what:?}");
    }
    assert_eq!((pair.sender.phase(), pair.sent().len()), (Phase::Greeting, 0));
    let counters = *pair.sender.courier().counters();
    assert_eq!((counters.unreadable, counters.forged), (4, 1));
}

/// A liar on the way gives out cookies of its own as often as it likes.
#[test]
fn false_cookies_neither_hasten_nor_prolong_a_greeting() {
    let mut pair = Pair::new();
    let (mut hellos, mut lies) = (pair.sent(), 0u8);
    let mut sent = 0;
    while pair.sender.outcome().is_none() {
        assert!(pair.now < Time::from_secs_f64(40.0), "the silence of the receiver has an end");
        sent += hellos.len();
        assert!(sent <= 2 * 61 * COPIES, "{sent} hellos until {}", pair.now);
        for mut hello in std::mem::take(&mut hellos) {
            let proof = HelloBody::decode(&hello.body).unwrap().proof;
            hello.what = Type::HelloReply;
            hello.body.clear();
            lies = lies.wrapping_add(1);
            HelloReply::Cookie { proof, cookie: [lies; 16] }.encode(&mut hello.body);
            pair.sender.on_answer(pair.now, &hello);
        }
        hellos = pair.sent();
        if hellos.is_empty() {
            pair.wait(100);
            hellos = pair.sent();
        }
    }
}

/// Each first relay may see a sender at another address, as behind a pool of a NAT's addresses.
#[test]
fn a_sender_that_is_seen_at_several_addresses_comes_in() {
    let mut pair = Pair::new();
    for _ in 0..40 {
        for hello in pair.sent() {
            let relay = hello.packet.route.nodes()[1];
            let answer = pair.answer(&hello, relay.ip());
            pair.sender.on_answer(pair.now, &answer);
        }
        if pair.sender.phase() != Phase::Greeting {
            return;
        }
        pair.wait(500);
    }
    panic!("it still greets");
}

#[test]
fn a_sender_for_which_there_is_no_place_waits_as_long_as_it_is_told_so_and_no_longer() {
    let mut pair = Pair::with(Limits { files: 0, ..Limits::default() });
    let mut waited = 0;
    while pair.now < Time::from_secs_f64(90.0) {
        for datagram in pair.sent() {
            let answer = pair.answer(&datagram, HERE);
            pair.sender.on_answer(pair.now, &answer);
        }
        waited += u32::from(pair.sender.place() == Some(1));
        pair.wait(250);
        pair.receiver.on_timer(pair.now);
    }
    assert!(waited > 300 && pair.sender.phase() == Phase::Offering, "{waited} of 360 times");
    for _ in 0..140 {
        pair.sent();
        pair.wait(250);
    }
    assert!(matches!(pair.sender.outcome(), Some(Err(TransferError::NoAnswer(Phase::Offering)))));
    assert_eq!(pair.sender.place(), None);
}

/// Over all but one of the paths nothing comes.
#[test]
fn a_greeting_and_an_offer_that_one_path_lets_through_are_answered_at_once() {
    let mut pair = Pair::new();
    for phase in [Phase::Greeting, Phase::Greeting, Phase::Offering] {
        assert_eq!(pair.sender.phase(), phase);
        let last = pair.sent().pop().unwrap();
        let answer = pair.answer(&last, HERE);
        pair.sender.on_answer(pair.now, &answer);
    }
    assert_eq!((pair.sender.phase(), pair.now), (Phase::Sending, Time::ZERO));
}

/// The file that is sent, and what has come of it.
#[derive(Clone, Debug, Default)]
struct Files([u8; 10]);

impl Source for Files {
    fn read(&mut self, offset: u64, bytes: &mut [u8]) -> std::io::Result<()> {
        bytes.fill(7);
        assert!(offset as usize + bytes.len() <= 10);
        Ok(())
    }
}

impl Store for Files {
    fn create(&mut self, _: SessionId, _: &Offer) -> Result<(), StoreError> {
        Ok(())
    }

    fn write(&mut self, _: SessionId, offset: u64, bytes: &[u8]) -> Result<(), StoreError> {
        self.0[offset as usize..][..bytes.len()].copy_from_slice(bytes);
        Ok(())
    }

    fn read(&mut self, _: SessionId, offset: u64, bytes: &mut [u8]) -> Result<(), StoreError> {
        bytes.copy_from_slice(&self.0[offset as usize..][..bytes.len()]);
        Ok(())
    }

    fn publish(&mut self, _: SessionId, offer: &Offer) -> Result<String, StoreError> {
        Ok(offer.name.to_string())
    }

    fn discard(&mut self, _: SessionId) {}
}

/// The blocks have arrived, their ACKs have not; the receiver may take its time to check the file.
#[test]
fn a_receiver_is_asked_for_its_file_before_the_last_acks_and_ever_more_seldom_while_it_checks() {
    let mut pair = Pair::new();
    pair.sender.offer.hash = *blake3::hash(&[7; 10]).as_bytes();
    let (mut own, mut theirs) = (Files::default(), Files::default());
    let (mut questions, mut check) = (Vec::new(), None);
    while pair.sender.outcome().is_none() {
        for datagram in pair.sent() {
            let phase = pair.sender.phase();
            let answer = pair.answer(&datagram, HERE);
            match answer.what {
                Type::Ack => assert_eq!(phase, Phase::Sending, "a block"),
                _ => pair.sender.on_answer(pair.now, &answer),
            }
            if phase == Phase::Finishing {
                questions.push(pair.now);
            }
        }
        while let Some(job) = pair.sender.next_job() {
            pair.sender.on_done(pair.now, job.work(&mut theirs, &mut own));
        }
        while let Some(job) = pair.receiver.next_job() {
            match job.task {
                FileTask::Check(_) => check = Some(job),
                _ => pair.receiver.on_done(job.work(&mut theirs, &mut own)),
            }
        }
        if pair.now == Time::from_secs_f64(20.0) {
            let check = check.take().expect("all has arrived");
            pair.receiver.on_done(check.work(&mut theirs, &mut own));
        }
        assert!(pair.now <= Time::from_secs_f64(21.0), "{:?}", pair.sender);
        pair.wait(5);
    }
    assert_eq!(theirs.0, [7; 10]);
    assert!(questions[0] < Time::from_secs_f64(0.2), "{questions:?}");
    // Every 125 ms at first, for no round trip was measured; then twice a second.
    assert!((40..60).contains(&questions.len()), "{questions:?}");
}
