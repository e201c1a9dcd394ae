//! Cookies, handshakes, and who is known to whom.

use proptest::prelude::*;

use super::*;

#[test]
fn who_has_not_proved_to_be_heard_at_its_address_costs_nothing() {
    let mut receiver = Receiver::new(Identity::generate(), Limits { half_open: 0, ..Limits::default() });
    let mut reply = Vec::new();
    for stranger in 0..1000u32 {
        let source = IpAddr::from(stranger.to_be_bytes());
        let hello = Hello::new(None, None);
        // None, a guess, and that of another address.
        let stolen = cookie_for(&mut receiver, Time::ZERO, HERE, &hello);
        for cookie in [[0; COOKIE], [stranger as u8; COOKIE], stolen] {
            let body = body(&hello, cookie, 5);
            reply.clear();
            assert!(receiver.on_hello(Time::ZERO, source, &body, &mut reply));
            assert!(matches!(HelloReply::decode(&reply), Some(HelloReply::Cookie { proof: 5, .. })), "{reply:?}");
            assert!(reply.len() < body.len());
        }
    }
    let counters = *receiver.counters();
    assert_eq!((receiver.sessions(), counters.greetings, counters.cookies), (0, 0, 4000));
}

/// Their sources are spoofed, as those of the sender that comes after them and of many others.
#[test]
fn a_flood_of_hellos_holds_a_few_half_open_sessions_and_a_sender_gets_in_all_the_same() {
    let mut pair = Pair::new(1, Limits::default());
    let limits = pair.receiver.limits;
    let (mut answered, mut reply) = (0, Vec::new());
    for stranger in 0..1000u32 {
        let source = if stranger % 2 == 0 { HERE } else { IpAddr::from(stranger.to_be_bytes()) };
        let hello = body(&Hello::new(None, None), [0; COOKIE], 5);
        reply.clear();
        assert!(pair.receiver.on_hello(Time::ZERO, source, &hello, &mut reply) && reply.len() < hello.len());
        answered += usize::from(matches!(HelloReply::decode(&reply), Some(HelloReply::Answer { .. })));
    }
    assert_eq!((answered, pair.receiver.half_open()), (limits.half_open, limits.half_open));
    assert_eq!(pair.receiver.sessions(), limits.half_open + 1, "and that of the pair");
    assert_eq!(pair.receiver.counters().greetings, 1, "of who was heard at its address");
    // Its own share of sessions and of handshakes is hardly touched: with that of the pair it has them all.
    for _ in 0..limits.sessions_of_one - 1 {
        let mut session = pair.join(HERE).unwrap();
        assert!(pair.offer_in(&mut session).is_some());
    }
    assert_eq!(pair.receiver.half_open(), limits.half_open, "a flood pushes nobody out, and nobody it");
    pair.wait(PATIENCE.as_secs_f64() as u64 + 1);
    assert_eq!(pair.receiver.half_open(), 0, "forgotten");
}

/// Each is computed on a curve, and none is a handshake, so that it takes no place.
#[test]
fn hellos_that_are_made_up_take_no_handshake_from_who_proves_to_be_heard() {
    let mut pair = Pair::new(1, Limits::default());
    let (key, mut reply) = (pair.receiver.public_key(), Vec::new());
    for number in 0..1000u32 {
        let hello = body(&Hello::new(Some(&key), None), [0; COOKIE], 5);
        let mut damaged = hello.clone();
        // Behind the ephemeral key, in what the receiver's own key must open.
        damaged[COOKIE + 8 + 1 + 32 + 3] ^= 1 + (number % 200) as u8;
        let source = if number % 2 == 0 { HERE } else { IpAddr::from(number.to_be_bytes()) };
        reply.clear();
        pair.receiver.on_hello(Time::ZERO, source, &damaged, &mut reply);
    }
    let limits = pair.receiver.limits;
    assert_eq!((pair.receiver.half_open(), pair.receiver.unproved), (0, limits.unproved_greetings_per_second));
    for _ in 0..limits.sessions_of_one - 1 {
        let mut session = pair.join(HERE).unwrap();
        assert!(pair.offer_in(&mut session).is_some());
    }
}

#[test]
fn a_first_hello_is_answered_at_once_and_what_its_sender_seals_makes_it_a_session() {
    let mut pair = Pair::new(1, Limits::default());
    let waiting = Hello::new(Some(&pair.receiver.public_key()), None);
    let hello = body(&waiting, [0; COOKIE], 1);
    // Said again over another path, it is the same session.
    let mut session = session_with(&mut pair.receiver, &waiting, &hello);
    session_with(&mut pair.receiver, &waiting, &body(&waiting, [0; COOKIE], 2));
    assert_eq!((pair.receiver.half_open(), pair.receiver.counters().greetings), (1, 1));
    // A stranger who has seen its name can't seal anything in it.
    let mut forged = Vec::new();
    pair.session.seal_data(b"anything", &mut forged);
    forged[..8].copy_from_slice(&session.id().0.to_be_bytes());
    assert_eq!((pair.send(&forged), pair.receiver.half_open()), (None, 1));
    assert_eq!(pair.offer_in(&mut session).unwrap().0, Code::Accepted);
    assert_eq!((pair.receiver.half_open(), pair.receiver.counters().greetings), (0, 2));
    assert_eq!(pair.receiver.sessions(), 2);
}

#[test]
fn a_cookie_opens_a_half_open_session_too() {
    let mut pair = Pair::new(1, Limits::default());
    let waiting = Hello::new(Some(&pair.receiver.public_key()), None);
    let early = session_with(&mut pair.receiver, &waiting, &body(&waiting, [0; COOKIE], 1));
    let cookie = cookie_for(&mut pair.receiver, Time::ZERO, HERE, &waiting);
    let mut session = session_with(&mut pair.receiver, &waiting, &body(&waiting, cookie, 2));
    assert_eq!((session.id(), pair.receiver.half_open(), pair.receiver.sessions()), (early.id(), 0, 2));
    assert_eq!(pair.offer_in(&mut session).unwrap().0, Code::Accepted);
}

#[test]
fn who_has_all_its_sessions_gets_none_by_a_half_open_one() {
    let mut pair = Pair::new(1, Limits { sessions_of_one: 1, ..Limits::default() });
    assert_eq!(pair.say(&Message::Offer(pair.offer())).unwrap().unwrap().0, Code::Accepted);
    let waiting = Hello::new(None, None);
    let mut another = session_with(&mut pair.receiver, &waiting, &body(&waiting, [0; COOKIE], 1));
    assert_eq!(pair.offer_in(&mut another), None);
    assert_eq!((pair.receiver.half_open(), pair.receiver.sessions()), (0, 1));
}

/// It goes over every path, and its sender greets anew when it has tried them.
#[test]
fn a_hello_that_tries_a_path_gets_a_cookie_and_nothing_is_remembered() {
    let mut receiver = Receiver::new(Identity::generate(), Limits::default());
    let mut probe = body(&Hello::new(None, None), [0; COOKIE], 5);
    probe.resize(1300, 0);
    let mut reply = Vec::new();
    assert!(receiver.on_hello(Time::ZERO, HERE, &probe, &mut reply));
    assert!(matches!(HelloReply::decode(&reply), Some(HelloReply::Cookie { proof: 5, .. })));
    assert_eq!(receiver.sessions(), 0);
}

#[test]
fn a_hello_that_is_said_again_gets_the_same_session_and_a_proof_of_its_own() {
    let mut pair = Pair::new(1, Limits::default());
    let identity = pair.receiver.identity.clone();
    let waiting = Hello::new(Some(&identity.public()), None);
    let cookie = cookie_for(&mut pair.receiver, Time::ZERO, HERE, &waiting);
    let mut sessions =
        [6, 7, 6].map(|proof| session_with(&mut pair.receiver, &waiting, &body(&waiting, cookie, proof)));
    assert_eq!((pair.receiver.sessions(), pair.receiver.counters().greetings), (2, 2));
    let mut sealed = Vec::new();
    sessions[2].seal(b"message", &mut sealed);
    let entry = pair.receiver.sessions.get_mut(&sessions[0].id()).unwrap();
    assert_eq!(entry.noise.open(&sealed, &mut Vec::new()), Ok(()));
}

#[test]
fn a_datagram_that_comes_twice_gets_nothing_and_a_block_that_is_said_again_is_acknowledged() {
    let mut pair = Pair::new(3, Limits::default());
    let (mut plain, mut sealed) = (Vec::new(), Vec::new());
    Message::Offer(pair.offer()).encode(7, &mut plain);
    pair.session.seal_data(&plain, &mut sealed);
    assert_eq!(pair.send(&sealed), Some(Some((Code::Accepted, String::new()))));
    assert_eq!(pair.send(&sealed), None);
    assert!(pair.block(0) && pair.block(0), "its ACK was lost");
    let bytes = pair.file[BLOCK..2 * BLOCK].to_vec();
    Message::Block { index: 1, bytes: &bytes }.encode(7, &mut plain);
    sealed.clear();
    pair.session.seal_data(&plain, &mut sealed);
    assert_eq!((pair.send(&sealed), pair.send(&sealed), pair.send(&sealed)), (Some(None), None, None));
    let ReceiverCounters { blocks, duplicates, replayed, unreadable, .. } = *pair.receiver.counters();
    assert_eq!((blocks, duplicates, replayed, unreadable), (2, 1, 3, 0));
}

/// Whoever records a session's datagrams and sends them again and again keeps it from nothing.
#[test]
fn replays_keep_no_session_awake() {
    let mut pair = Pair::new(2, Limits::default());
    let (mut plain, mut sealed) = (Vec::new(), Vec::new());
    Message::Offer(pair.offer()).encode(7, &mut plain);
    pair.session.seal_data(&plain, &mut sealed);
    pair.send(&sealed);
    pair.work();
    let mut now = Time::ZERO;
    while now < Time::ZERO + pair.receiver.limits.idle {
        now += Duration::SECOND;
        pair.receiver.on_data(now, &sealed, &mut Vec::new());
        pair.receiver.on_timer(now);
    }
    assert_eq!(pair.receiver.sessions(), 0);
}

#[test]
fn only_those_whose_keys_are_known_may_send_where_they_are_asked_for() {
    let [friend, stranger] = [(); 2].map(|()| Identity::generate());
    let mut pair = Pair::new(1, Limits::default());
    let key = pair.receiver.public_key();
    pair.receiver = pair.receiver.only_from(Senders::Only(vec![Identity::generate().public(), friend.public()]));
    let mut said = |key: Option<&PublicKey>, own: Option<&Identity>| {
        let waiting = Hello::new(key, own);
        let cookie = cookie_for(&mut pair.receiver, Time::ZERO, HERE, &waiting);
        let mut session = session_with(&mut pair.receiver, &waiting, &body(&waiting, cookie, 1));
        pair.offer_in(&mut session).unwrap()
    };
    for (key, own, why) in [
        (None, None, "has shown none".to_owned()),
        (Some(&key), None, "has shown none".to_owned()),
        (None, Some(&friend), "has shown none".to_owned()),
        (Some(&key), Some(&stranger), format!("{} is not", stranger.public())),
    ] {
        let (code, text) = said(key, own);
        assert!(code == Code::Refused && text.contains(&why), "{code:?} {text}");
    }
    assert_eq!(said(Some(&key), Some(&friend)), (Code::Accepted, String::new()));
}

/// A relay has recorded it, and has proved its own address.
#[test]
fn a_known_senders_hello_gives_nobody_else_its_session() {
    let friend = Identity::generate();
    let mut pair = Pair::new(1, Limits::default());
    pair.receiver = pair.receiver.only_from(Senders::Only(vec![friend.public()]));
    let waiting = Hello::new(Some(&pair.receiver.public_key()), Some(&friend));
    let cookie = cookie_for(&mut pair.receiver, Time::ZERO, at(1), &waiting);
    let mut reply = Vec::new();
    assert!(pair.receiver.on_hello(Time::ZERO, at(1), &body(&waiting, cookie, 1), &mut reply));
    // The session of its own ephemeral key and the name of the other's is all that it has.
    let Some(HelloReply::Answer { answer, .. }) = HelloReply::decode(&reply) else { panic!("{reply:?}") };
    assert!(Hello::new(Some(&pair.receiver.public_key()), Some(&friend)).complete(answer).is_err());
    let mut sealed = Vec::new();
    pair.session.seal_data(b"anything", &mut sealed);
    sealed[..8].copy_from_slice(&waiting.complete(answer).unwrap().id().0.to_be_bytes());
    assert_eq!((pair.send(&sealed), pair.receiver.counters().unreadable), (None, 1));
    // And the sender itself comes in afterwards.
    let cookie = cookie_for(&mut pair.receiver, Time::ZERO, HERE, &waiting);
    let mut session = session_with(&mut pair.receiver, &waiting, &body(&waiting, cookie, 1));
    assert_eq!(pair.offer_in(&mut session).unwrap().0, Code::Accepted);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever comes before an address is proved, and after it too while greeting.
    #[test]
    fn no_answer_to_a_hello_is_longer_than_the_hello(
        mut bytes in prop_oneof![
            prop::collection::vec(any::<u8>(), 0..300),
            prop::collection::vec(any::<u8>(), HELLO),
        ],
        pattern in 0u8..4,
        has_cookie: bool,
        is_first: bool,
    ) {
        let mut receiver = Receiver::new(Identity::generate(), Limits::default());
        if let Some(byte) = bytes.get_mut(COOKIE + 8) {
            *byte = pattern;
            let end = COOKIE + 8 + seal::opening_len(pattern).unwrap_or(1);
            bytes.iter_mut().skip(end).for_each(|byte| *byte = 0);
        }
        if is_first && bytes.len() >= COOKIE {
            bytes[..COOKIE].fill(0);
        }
        let mut reply = Vec::new();
        receiver.on_hello(Time::ZERO, HERE, &bytes, &mut reply);
        prop_assert!(reply.len() <= bytes.len());
        // One that has no cookie yet may be answered at once.
        let is_answered = matches!(HelloReply::decode(&reply), Some(HelloReply::Answer { .. }));
        prop_assert_eq!(receiver.sessions(), usize::from(is_answered));
        prop_assert!(!is_answered || bytes[..COOKIE] == [0; COOKIE]);
        if let (true, Some(HelloReply::Cookie { cookie, .. })) = (has_cookie, HelloReply::decode(&reply)) {
            bytes[..COOKIE].copy_from_slice(&cookie);
            reply.clear();
            receiver.on_hello(Time::ZERO, HERE, &bytes, &mut reply);
            prop_assert!(reply.len() <= bytes.len() && receiver.sessions() <= 1);
        }
    }
}
