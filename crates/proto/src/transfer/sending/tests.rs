use std::net::IpAddr;

use anabranch_control::path::registry::{self, Pacing, Setup};
use anabranch_control::rng::Rng;
use anabranch_control::rtt::RttConfig;
use anabranch_control::units::Bytes;

use super::*;
use crate::overlay::hello::{Cookie, HelloBody, HelloReply};
use crate::overlay::message::FileName;
use crate::overlay::path_sender::{PathSender, SenderConfig};
use crate::seal::{Identity, SessionId};
use crate::transfer::sending::blocks::SPARE_PART;
use crate::transfer::{Limits, Receiver, ReceiverCounters, Reply, Source, Store, StoreError};

const PACKET: Bytes = Bytes::new(600);
const PEERS: u8 = 6;
/// Five relays, two for each packet.
const COPIES: usize = 3;

/// A sender, and a receiver that it reaches as often as a test wants.
struct Pair {
    sender: FileSender,
    receiver: Receiver,
    now: Time,
    file: FileOfZeros,
}

impl Pair {
    fn new() -> Pair {
        Pair::with(Limits::default())
    }

    /// The receiver wants to see a cookie from everybody.
    fn with_cookies() -> Pair {
        Pair::with(Limits { half_open: 0, ..Limits::default() })
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
        Pair {
            sender,
            receiver: Receiver::new(identity, limits),
            now: Time::ZERO,
            file: FileOfZeros { has_changed: false, stands_still: false },
        }
    }

    /// The same with a file of this many blocks of 5 bytes, all of them zeros.
    fn of_blocks(blocks: u64) -> Pair {
        let Pair { sender, receiver, now, file } = Pair::new();
        let hash = *blake3::hash(&vec![0; 5 * blocks as usize]).as_bytes();
        let offer = Offer { length: 5 * blocks, hash, ..sender.offer.clone() };
        let sender = FileSender::new(now, sender.courier.clone(), sender.destination, sender.key, offer);
        Pair { sender, receiver, now, file }
    }

    /// All that leaves arrives and is answered, for so long; what a receiver's disk and a sender's file
    /// are asked for is done. Reports pass `change`, which may change them.
    fn go_on(&mut self, millis: u64, mut change: impl FnMut(&mut Code, &mut String)) {
        let until = self.now + Duration::from_millis(millis);
        while self.now < until && !self.sender.is_over() {
            for datagram in self.sent_at_most(20) {
                let Some(answer) = self.answer_if_any(&datagram, HERE) else { continue };
                let answer = if answer.what == Type::Report { self.changed(answer, &mut change) } else { answer };
                self.sender.on_answer(self.now, &answer);
            }
            self.read();
            self.disk();
            self.wait(10);
            self.receiver.on_timer(self.now);
        }
    }

    /// The same, until all blocks have left and been answered.
    fn go_on_to_the_end(&mut self, mut change: impl FnMut(&mut Code, &mut String)) {
        while self.sender.phase() != Phase::Finishing {
            self.go_on(10, &mut change);
        }
    }

    fn read(&mut self) {
        while !self.file.stands_still
            && let Some(job) = self.sender.next_job()
        {
            assert!(job.task.is_of_sender());
            self.sender.on_done(self.now, job.work(&mut Zeros, &mut self.file));
        }
    }

    fn disk(&mut self) {
        while let Some(job) = self.receiver.next_job() {
            self.receiver.on_done(job.work(&mut Zeros, &mut NoSource));
        }
    }

    /// The report, opened, changed and sealed again: this receiver lies.
    fn changed(&mut self, report: OwnedDatagram, change: &mut impl FnMut(&mut Code, &mut String)) -> OwnedDatagram {
        // The sender's session opens what its receiver's has sealed; a copy of the window, or it would
        // not open again.
        let (mut opened, mut session) = (Vec::new(), self.sender.session.clone().expect("they have agreed"));
        session.open(&report.body, &mut opened).expect("it is the receiver's");
        let Report { proof, code, text } = Report::decode(&opened).unwrap();
        let (mut code, mut text) = (code, text.to_owned());
        change(&mut code, &mut text);
        let report_of = Report { proof, code, text: &text };
        let mut out = OwnedDatagram { body: Vec::new(), ..report };
        let mut plain = Vec::new();
        report_of.encode(&mut plain);
        self.receiver.seal_as(session.id(), &plain, &mut out.body);
        out
    }

    /// What leaves now.
    fn sent(&mut self) -> Vec<OwnedDatagram> {
        self.sent_at_most(usize::MAX)
    }

    fn sent_at_most(&mut self, most: usize) -> Vec<OwnedDatagram> {
        let (mut all, mut out) = (Vec::new(), OwnedDatagram::default());
        while all.len() < most && self.sender.poll(self.now, &mut out).is_some() {
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
        self.answer_if_any(datagram, source).expect("an answer")
    }

    fn answer_if_any(&mut self, datagram: &OwnedDatagram, source: IpAddr) -> Option<OwnedDatagram> {
        let mut answer = datagram.clone();
        answer.body.clear();
        let Pair { receiver, now, .. } = self;
        answer.what = match datagram.what {
            Type::Hello => {
                receiver.on_hello(*now, source, &datagram.body, &mut answer.body).then_some(Type::HelloReply)?
            }
            _ => match receiver.on_data(*now, &datagram.body, &mut answer.body)? {
                Reply::Ack(proof) => {
                    answer.packet.nonce = proof;
                    Type::Ack
                }
                Reply::Report => Type::Report,
            },
        };
        Some(answer)
    }
}

/// A disk that has room for everything, and all that is read there is zero.
#[derive(Clone)]
struct Zeros;

impl Store for Zeros {
    fn create(&mut self, _: SessionId, _: &Offer) -> Result<(), StoreError> {
        Ok(())
    }

    fn write(&mut self, _: SessionId, _: u64, bytes: &[u8]) -> Result<(), StoreError> {
        assert!(bytes.iter().all(|&byte| byte == 0));
        Ok(())
    }

    fn read(&mut self, _: SessionId, _: u64, bytes: &mut [u8]) -> Result<(), StoreError> {
        bytes.fill(0);
        Ok(())
    }

    fn publish(&mut self, _: SessionId, offer: &Offer) -> Result<String, StoreError> {
        Ok(offer.name.to_string())
    }

    fn discard(&mut self, _: SessionId) {}
}

/// A receiver reads nothing.
#[derive(Clone)]
struct NoSource;

impl Source for NoSource {
    fn read(&mut self, _: u64, _: &mut [u8]) -> std::io::Result<()> {
        unreachable!("a receiver reads nothing")
    }
}

/// What a sender reads.
#[derive(Clone)]
struct FileOfZeros {
    has_changed: bool,
    /// Nothing that is asked for is done.
    stands_still: bool,
}

impl Source for FileOfZeros {
    fn read(&mut self, _: u64, bytes: &mut [u8]) -> std::io::Result<()> {
        bytes.fill(u8::from(self.has_changed));
        Ok(())
    }
}

const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));

fn cookie_of(datagram: &OwnedDatagram) -> Cookie {
    HelloBody::decode(&datagram.body).unwrap().cookie
}

#[test]
fn a_cookie_is_repeated_at_once_and_the_answer_opens_the_offer() {
    let mut pair = Pair::with_cookies();
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
    let mut pair = Pair::with_cookies();
    let first = pair.sent();
    let cookie = pair.answer(&first[0], HERE);
    pair.sender.on_answer(pair.now, &cookie);
    let mut hellos = pair.sent();
    pair.wait(500);
    hellos.extend(pair.sent());
    // The second attempt after an answer goes over each of five relays.
    assert_eq!(hellos.len(), COPIES + 5);
    for hello in &hellos {
        let answer = pair.answer(hello, HERE);
        pair.sender.on_answer(pair.now, &answer);
    }
    let counters = *pair.sender.courier().counters();
    assert_eq!((counters.acked + counters.late, counters.unreadable, counters.forged), (COPIES as u64 + 5 + 1, 0, 0));
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
fn a_sender_for_which_there_is_no_place_waits_as_long_as_the_receiver_says_so_and_no_longer() {
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

#[test]
fn what_a_receiver_says_to_have_does_not_leave_and_leaves_after_all_if_it_was_not_true() {
    let mut pair = Pair::of_blocks(100);
    pair.go_on(10_000, |code, text| {
        if *code == Code::Accepted {
            *text = "0+40 60+20".into();
        }
    });
    let outcome = pair.sender.outcome();
    assert!(matches!(outcome, Some(Ok(done)) if done.resumed == 0), "{outcome:?}");
    let counters = pair.receiver.counters();
    assert_eq!(counters.blocks, 100);
    // 40 left at first. Of all of them the last twenty need not leave again: with block 79 all have come.
    assert!((20..40).contains(&counters.duplicates), "{counters:?}");
}

/// It has them all, it says, and again that it lacks some.
#[test]
fn a_receiver_that_lies_about_what_it_has_costs_the_file_twice_and_no_more() {
    let mut pair = Pair::of_blocks(50);
    pair.go_on(60_000, |code, text| match code {
        Code::Accepted | Code::Incomplete => *text = "0+50".into(),
        Code::Checking | Code::Complete => *code = Code::Incomplete,
        _ => {}
    });
    let reason = match pair.sender.outcome() {
        Some(Err(TransferError::Failed(reason))) => reason.clone(),
        other => panic!("{other:?}"),
    };
    assert!(reason.contains("missing there"), "{reason}");
    let sent = pair.sender.courier().counters().sent;
    assert!(sent < 2 * 50 + 40, "{sent}");
}

#[test]
fn nonsense_about_what_a_receiver_has_is_nothing() {
    for nonsense in ["0+51", "49+2", "-1+3", "4294967295+1", "0+18446744073709551615", "\u{1b}[2J", "0+0 1+1"] {
        let mut pair = Pair::of_blocks(50);
        pair.go_on(10_000, |code, text| {
            if *code == Code::Accepted {
                *text = nonsense.into();
            }
        });
        let outcome = pair.sender.outcome();
        assert!(matches!(outcome, Some(Ok(done)) if done.resumed == 0), "{nonsense}: {outcome:?}");
    }
}

#[test]
fn a_receiver_that_forgets_everything_is_greeted_anew_before_it_is_given_up() {
    let mut pair = Pair::of_blocks(2000);
    pair.go_on(60, |_, _| ());
    assert_eq!(pair.sender.phase(), Phase::Sending);
    let (before, arrived) = (pair.sender.session.as_ref().unwrap().id(), pair.sender.arrived_bytes());
    assert!(arrived > 0 && arrived < 10_000, "{arrived}");
    pair.receiver = Receiver::new(pair.receiver.identity(), Limits::default());
    let forgotten = pair.now;
    while pair.sender.phase() == Phase::Sending {
        // It does not answer what it can't open.
        pair.sent_at_most(2);
        pair.wait(10);
    }
    assert_eq!((pair.sender.phase(), pair.sender.arrived_bytes()), (Phase::Greeting, 0));
    assert!(pair.now.since(forgotten) <= RENEWAL + Duration::from_millis(20), "{}", pair.now);
    pair.go_on(60_000, |_, _| ());
    assert!(matches!(pair.sender.outcome(), Some(Ok(_))), "{:?}", pair.sender.outcome());
    assert_ne!(pair.sender.session.as_ref().unwrap().id(), before);
}

#[test]
fn a_receiver_that_stays_silent_is_given_up_as_soon_as_before_and_not_notified() {
    let mut pair = Pair::of_blocks(2000);
    pair.go_on(60, |_, _| ());
    let silent = pair.now;
    while pair.sender.outcome().is_none() {
        pair.sent_at_most(2);
        pair.wait(10);
    }
    assert!(pair.now.since(silent) <= PATIENCE + Duration::from_millis(20), "{}", pair.now);
    let outcome = pair.sender.outcome();
    assert!(matches!(outcome, Some(Err(TransferError::NoAnswer(Phase::Sending)))), "{outcome:?}");
    assert!(pair.sender.is_over(), "who takes leave gives up what has come");
}

/// A soak found it: the second of two sessions had wrong bytes from before as the first had.
#[test]
fn in_each_session_that_is_begun_anew_all_may_be_sent_again_once() {
    let mut pair = Pair::of_blocks(2000);
    // A part that is there from before, and when all has come its hash is wrong.
    let (mut lies, mut sessions) = (0, 0);
    let mut lie = |code: &mut Code, text: &mut String| match code {
        Code::Accepted if text.is_empty() && lies == sessions => {
            *text = "0+1990".into();
            sessions += 1;
        }
        Code::Incomplete if lies < sessions => {
            *code = Code::Accepted;
            lies += 1;
        }
        _ => {}
    };
    pair.go_on_to_the_end(&mut lie);
    while pair.sender.phase() != Phase::Sending {
        pair.go_on(10, &mut lie);
    }
    pair.receiver = Receiver::new(pair.receiver.identity(), Limits::default());
    while pair.sender.phase() == Phase::Sending {
        pair.sent_at_most(2);
        pair.wait(10);
    }
    pair.go_on(60_000, &mut lie);
    assert!(matches!(pair.sender.outcome(), Some(Ok(_))), "{:?}", pair.sender.outcome());
    assert_eq!((lies, sessions), (2, 2));
}

/// What a receiver says that has a part from before, and finds the wrong hash once all has come.
fn wrong_with_a_part() -> impl FnMut(&mut Code, &mut String) {
    let (mut claimed, mut lied) = (false, false);
    move |code, text| match code {
        Code::Accepted | Code::Waiting if !claimed => (*code, *text, claimed) = (Code::Accepted, "0+10".into(), true),
        Code::Incomplete | Code::Checking | Code::Complete if !lied => (*code, lied) = (Code::Accepted, true),
        _ => {}
    }
}

/// A soak found it: over a path with long silences a file was sent in one session after the other.
#[test]
fn a_file_whose_hash_is_wrong_in_session_after_session_is_given_up() {
    let mut pair = Pair::of_blocks(50);
    for round in 0..=MOST_ANEW {
        assert!(pair.sender.outcome().is_none(), "{round}: {:?}", pair.sender.outcome());
        let mut lie = wrong_with_a_part();
        pair.go_on_to_the_end(&mut lie);
        while pair.sender.phase() == Phase::Finishing {
            pair.go_on(10, &mut lie);
        }
        // It falls silent, and knows nothing when it is back.
        pair.receiver = Receiver::new(pair.receiver.identity(), Limits::default());
        while pair.sender.phase() == Phase::Sending {
            pair.sent_at_most(2);
            pair.wait(10);
        }
    }
    let outcome = pair.sender.outcome();
    assert!(matches!(outcome, Some(Err(TransferError::WrongHash))), "{outcome:?}");
}

/// A soak found it: at a packet a second a sender took nine hours to learn that its file had changed.
#[test]
fn a_file_that_has_changed_is_not_sent_again() {
    let mut pair = Pair::of_blocks(50);
    let mut lie = wrong_with_a_part();
    pair.go_on_to_the_end(&mut lie);
    pair.file.has_changed = true;
    let sent = pair.sender.courier().counters().sent;
    pair.go_on(60_000, &mut lie);
    let outcome = pair.sender.outcome();
    assert!(matches!(outcome, Some(Err(TransferError::Changed))), "{outcome:?}");
    let more = pair.sender.courier().counters().sent - sent;
    assert!(more < 40, "{more} more packets, though a file of 40 blocks was not to be sent again");
}

#[test]
fn a_receiver_that_falls_silent_whenever_the_file_is_hashed_again_is_given_up() {
    let mut pair = Pair::of_blocks(50);
    for round in 0..=MOST_ANEW {
        assert!(pair.sender.outcome().is_none(), "{round}: {:?}", pair.sender.outcome());
        let mut lie = wrong_with_a_part();
        pair.go_on_to_the_end(&mut lie);
        pair.file.stands_still = true;
        while pair.sender.recheck.is_none() && pair.sender.outcome().is_none() {
            pair.go_on(10, &mut lie);
        }
        pair.receiver = Receiver::new(pair.receiver.identity(), Limits::default());
        while pair.sender.phase() == Phase::Finishing {
            pair.sent_at_most(2);
            pair.wait(10);
        }
        // It is hashed, and is what it was, while the receiver is greeted anew.
        pair.file.stands_still = false;
        pair.read();
    }
    let outcome = pair.sender.outcome();
    assert!(matches!(outcome, Some(Err(TransferError::WrongHash))), "{outcome:?}");
}

/// What is short passes, and what is long does not.
#[test]
fn a_path_that_carries_no_blocks_is_said_to_and_nobody_waits_for_ever() {
    let mut pair = Pair::of_blocks(50);
    while pair.sender.outcome().is_none() {
        assert!(pair.now < Time::from_secs_f64(35.0), "{:?}", pair.sender);
        for datagram in pair.sent_at_most(2) {
            let what = pair.sender.carried(datagram.packet.id);
            if let Some(Carried::Block(_)) = what {
                continue;
            }
            if let Some(answer) = pair.answer_if_any(&datagram, HERE) {
                pair.sender.on_answer(pair.now, &answer);
            }
        }
        pair.read();
        pair.disk();
        pair.wait(10);
    }
    let error = pair.sender.outcome().unwrap().as_ref().unwrap_err();
    assert!(matches!(error, TransferError::BlackHole) && error.to_string().contains("--packet"), "{error}");
}

/// A pair whose sender has just been told that it may offer `blocks` blocks of 600 bytes.
fn offering(limits: Limits, blocks: u64) -> Pair {
    let mut pair = Pair::with(limits);
    let offer = Offer { length: 600 * blocks, block: 600, ..pair.sender.offer.clone() };
    pair.sender =
        FileSender::new(pair.now, pair.sender.courier.clone(), pair.sender.destination, pair.sender.key, offer);
    while pair.sender.phase() == Phase::Greeting {
        let last = pair.sent().pop().unwrap();
        pair.wait(10);
        let answer = pair.answer(&last, HERE);
        pair.sender.on_answer(pair.now, &answer);
    }
    pair
}

/// A receiver that refuses, or has somebody wait, gets the first blocks and no more of them.
#[test]
fn the_first_blocks_follow_the_offer_soon_and_the_others_wait_for_its_answer() {
    for limits in
        [Limits::default(), Limits { files: 0, ..Limits::default() }, Limits { blocks: 1, ..Limits::default() }]
    {
        let blocks = 200_u64;
        let mut pair = offering(limits, blocks);
        let read = |pair: &mut Pair| {
            pair.read();
        };
        let mut first = pair.sent();
        assert_eq!(first.len(), COPIES, "nothing overtakes the offer");
        assert_eq!(pair.sender.timer(pair.now), pair.now + Duration::from_millis(25));
        pair.now += Duration::from_millis(25);
        first.extend(pair.sent());
        read(&mut pair);
        first.extend(pair.sent());
        let early = EARLY.div_ceil(600);
        let carried: Vec<_> = first.iter().map(|datagram| pair.sender.carried(datagram.packet.id).unwrap()).collect();
        assert_eq!(carried[..COPIES], [Carried::Other; COPIES], "the offer is ahead");
        assert!(carried[COPIES..].iter().copied().eq((0..early as u32).map(Carried::Block)), "{carried:?}");
        assert!(pair.sent().is_empty(), "what follows waits for an answer");
        let answers: Vec<_> = first.iter().filter_map(|datagram| pair.answer_if_any(datagram, HERE)).collect();
        for answer in &answers {
            pair.sender.on_answer(pair.now, answer);
        }
        if limits == Limits::default() {
            assert_eq!(pair.sender.arrived_bytes(), 600 * early as u64, "they need not leave again");
            pair.go_on(10_000, |_, _| ());
            let ReceiverCounters { blocks: come, duplicates, .. } = *pair.receiver.counters();
            assert!(come == blocks && duplicates <= blocks / SPARE_PART, "{come} blocks, {duplicates} twice");
            return;
        }
        assert_eq!(answers.len(), if limits.files == 0 { COPIES } else { first.len() });
        pair.wait(600);
        read(&mut pair);
        let again = pair.sent();
        assert!(again.iter().all(|datagram| pair.sender.carried(datagram.packet.id) == Some(Carried::Other)));
        assert_eq!((pair.sender.arrived_bytes(), pair.receiver.unwritten()), (0, 0));
    }
}

/// Those of the first blocks that the receiver had are acknowledged, and that may be known before what it had.
#[test]
fn what_was_there_counts_as_that_also_where_it_was_acknowledged_before_the_offers_answer() {
    let mut pair = offering(Limits::default(), 200);
    let mut first = pair.sent();
    pair.now += Duration::from_millis(25);
    first.extend(pair.sent());
    pair.read();
    first.extend(pair.sent());
    let answers: Vec<_> = first.iter().filter_map(|datagram| pair.answer_if_any(datagram, HERE)).collect();
    let (reports, acks): (Vec<_>, Vec<_>) = answers.into_iter().partition(|answer| answer.what == Type::Report);
    acks.iter().for_each(|ack| pair.sender.on_answer(pair.now, ack));
    assert!(pair.sender.arrived_bytes() > 0 && pair.sender.phase() == Phase::Offering);
    let report = pair.changed(reports[0].clone(), &mut |code, text| {
        (*code, *text) = (Code::Accepted, "0+150".into());
    });
    pair.sender.on_answer(pair.now, &report);
    assert_eq!((pair.sender.phase(), pair.sender.resumed_bytes()), (Phase::Sending, 150 * 600));
}

/// Of those that left last it is known last whether they have come: none of them waits for a deadline.
#[test]
fn the_last_blocks_leave_twice_and_what_is_overdue_again_and_no_others() {
    const BLOCKS: u64 = 640;
    let mut pair = Pair::of_blocks(BLOCKS);
    let mut left = vec![0; BLOCKS as usize];
    let last_is_lost = |block: u32, times: u32| u64::from(block) == BLOCKS - 1 && times <= 2;
    let mut waiting: VecDeque<(Time, OwnedDatagram)> = VecDeque::new();
    let round_trip = Duration::from_millis(100);
    while pair.sender.outcome().is_none() {
        assert!(pair.now < Time::from_secs_f64(20.0), "{:?}", pair.sender);
        for datagram in pair.sent_at_most(20) {
            if let Some(Carried::Block(block)) = pair.sender.carried(datagram.packet.id) {
                left[block as usize] += 1;
                if last_is_lost(block, left[block as usize]) {
                    continue;
                }
            }
            if let Some(answer) = pair.answer_if_any(&datagram, HERE) {
                waiting.push_back((pair.now + round_trip, answer));
            }
        }
        while waiting.front().is_some_and(|(at, _)| *at <= pair.now) {
            let (_, answer) = waiting.pop_front().expect("there is a first one");
            pair.sender.on_answer(pair.now, &answer);
        }
        pair.read();
        pair.disk();
        pair.wait(5);
        pair.receiver.on_timer(pair.now);
    }
    let twice = (BLOCKS / SPARE_PART) as usize;
    let (first, last) = left.split_at(BLOCKS as usize - twice);
    assert!(first.iter().all(|&times| times == 1), "{left:?}");
    assert_eq!(last[..twice - 1], vec![2; twice - 1]);
    // Twice lost, and overdue after one and a quarter round trips, or when a deadline passes that is sooner.
    assert!((3..=4).contains(&last[twice - 1]), "{left:?}");
}

/// Of the last blocks, which leave twice whether they are lost or not, there are many.
#[test]
fn a_block_that_is_overdue_does_not_wait_for_copies_of_those_that_may_arrive() {
    const BLOCKS: u32 = 1_280;
    // Overdue when some copies have left, which would go on for 100 ms.
    const LOST: u32 = BLOCKS - 20;
    let mut pair = Pair::of_blocks(BLOCKS.into());
    let mut left: Vec<(Time, u32)> = Vec::new();
    let mut waiting: VecDeque<(Time, OwnedDatagram)> = VecDeque::new();
    let round_trip = Duration::from_millis(100);
    while pair.sender.outcome().is_none() {
        assert!(pair.now < Time::from_secs_f64(20.0), "{:?}", pair.sender);
        for datagram in pair.sent_at_most(1) {
            if let Some(Carried::Block(block)) = pair.sender.carried(datagram.packet.id) {
                left.push((pair.now, block));
                if block == LOST && left.iter().filter(|&&(_, other)| other == LOST).count() == 1 {
                    continue;
                }
            }
            if let Some(answer) = pair.answer_if_any(&datagram, HERE) {
                waiting.push_back((pair.now + round_trip, answer));
            }
        }
        while waiting.front().is_some_and(|(at, _)| *at <= pair.now) {
            let (_, answer) = waiting.pop_front().expect("there is a first one");
            pair.sender.on_answer(pair.now, &answer);
        }
        pair.read();
        pair.disk();
        pair.wait(5);
        pair.receiver.on_timer(pair.now);
    }
    let of_lost: Vec<Time> = left.iter().filter(|&&(_, block)| block == LOST).map(|&(at, _)| at).collect();
    let copies = left
        .iter()
        .enumerate()
        .filter(|&(place, &(_, block))| block > LOST && left[..place].iter().any(|&(_, other)| other == block));
    let last_copy = copies.map(|(_, &(at, _))| at).max().expect("the last blocks leave twice");
    let again = *of_lost.get(1).expect("it is sent again");
    assert!(again < last_copy, "{again}, and the last copy at {last_copy}");
    // Unless its deadline is sooner. The reordering window of RFC 8985, 6.2 is a quarter of a round trip.
    let overdue = of_lost[0] + round_trip * 5 / 4;
    assert!(again <= overdue + Duration::from_millis(10), "{again}, overdue at {overdue}");
}

/// Over all but one of the paths nothing comes.
#[test]
fn a_greeting_and_an_offer_that_one_path_lets_through_are_answered_at_once() {
    let with_cookie = [Phase::Greeting, Phase::Greeting, Phase::Offering];
    // Without one a round trip less.
    for (mut pair, phases) in [(Pair::with_cookies(), &with_cookie[..]), (Pair::new(), &with_cookie[1..])] {
        for &phase in phases {
            assert_eq!(pair.sender.phase(), phase);
            let last = pair.sent().pop().unwrap();
            let answer = pair.answer(&last, HERE);
            pair.sender.on_answer(pair.now, &answer);
        }
        assert_eq!((pair.sender.phase(), pair.now), (Phase::Sending, Time::ZERO));
    }
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

/// The blocks have arrived, their answers have not; the receiver may take its time to check the file.
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
            if !matches!(pair.sender.carried(datagram.packet.id), Some(Carried::Block(_))) {
                pair.sender.on_answer(pair.now, &answer);
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

/// Two soaks found it: the file had come, of the ACKs some came back and were lost among bursts that no relay had
/// room for, and the receiver had forgotten the session before the last of them.
#[test]
fn a_sender_learns_from_one_answer_to_a_block_that_all_blocks_have_come() {
    let mut pair = Pair::of_blocks(40);
    let mut learned = None;
    while pair.sender.outcome().is_none() {
        for datagram in pair.sent_at_most(20) {
            let Some(answer) = pair.answer_if_any(&datagram, HERE) else { continue };
            // All ACKs are lost, and of the reports all but those to hellos, offers and a block.
            let carried = pair.sender.carried(datagram.packet.id);
            if answer.what == Type::Ack || carried == Some(Carried::Question) {
                continue;
            }
            if let Some(Carried::Block(_)) = carried {
                assert_eq!((pair.sender.missing, pair.sender.phase()), (40, Phase::Sending));
                learned = Some(pair.now);
            }
            pair.sender.on_answer(pair.now, &answer);
            if learned == Some(pair.now) {
                assert_eq!((pair.sender.missing, pair.sender.phase()), (0, Phase::Finishing));
                break;
            }
        }
        pair.read();
        pair.disk();
        pair.wait(10);
        assert!(pair.now < Time::from_secs_f64(5.0), "{:?}", pair.sender);
    }
    assert!(learned.is_some());
    assert!(matches!(pair.sender.outcome(), Some(Ok(_))), "{:?}", pair.sender.outcome());
}

/// A soak found it: who was heard after a long silence had stood still for too long already.
#[test]
fn a_network_that_was_dead_for_long_is_no_black_hole_when_it_is_back() {
    for dead in [15, 29] {
        let mut pair = Pair::of_blocks(2000);
        pair.go_on(60, |_, _| ());
        while pair.now < Time::from_secs_f64(f64::from(dead)) {
            pair.sent_at_most(2);
            pair.wait(10);
            assert!(pair.sender.timer(pair.now) >= pair.now);
        }
        // It is back, and the receiver has been started again meanwhile.
        pair.receiver = Receiver::new(pair.receiver.identity(), Limits::default());
        while pair.sender.outcome().is_none() {
            pair.go_on(10, |_, _| ());
        }
        assert!(matches!(pair.sender.outcome(), Some(Ok(_))), "{:?}", pair.sender.outcome());
    }
}

/// The receiver has no time for its handshake and gives cookies alone, and each datagram comes again
/// and again: an answer is no question.
#[test]
fn hellos_and_cookies_that_come_many_times_have_no_more_hellos_leave() {
    let hellos = |copies: usize| {
        let mut pair = Pair::with(Limits { greetings_per_second: 0, half_open: 0, ..Limits::default() });
        let mut hellos = 0;
        for _ in 0..100 {
            for datagram in pair.sent() {
                assert_eq!(datagram.what, Type::Hello);
                hellos += 1;
                for _ in 0..copies {
                    let Some(answer) = pair.answer_if_any(&datagram, HERE) else { continue };
                    (0..copies).for_each(|_| pair.sender.on_answer(pair.now, &answer));
                }
            }
            pair.wait(100);
        }
        hellos
    };
    let once = hellos(1);
    assert!((20 * COPIES..=40 * COPIES).contains(&once), "{once} in ten seconds");
    assert_eq!(hellos(4), once);
}

#[test]
fn each_attempt_in_vain_is_followed_by_one_over_twice_as_many_paths() {
    let attempts = |disjoint, relays| (0..6).map(|attempts| copies(disjoint, relays, attempts)).collect::<Vec<_>>();
    assert_eq!(attempts(3, 8), [3, 6, 8, 8, 8, 8]);
    assert_eq!(attempts(7, 20), [7, 8, 8, 8, 8, 8]);
    assert_eq!(attempts(1, 3), [1, 2, 3, 3, 3, 3], "no more than there are relays");
    assert_eq!(attempts(100, 300), [8; 6]);
}
