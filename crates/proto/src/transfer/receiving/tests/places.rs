//! Who gets which of a receiver's places, and loses them.

use super::*;

#[test]
fn files_beyond_the_places_wait_in_their_order_and_begin_when_there_is_one() {
    let mut pair = Pair::new(1, Limits { files: 2, files_of_one: 2, waiting: 3, ..Limits::default() });
    let mut sessions: Vec<Session> = (0..6).map(|last| pair.join(at(last)).unwrap()).collect();
    let said: Vec<_> = sessions.iter_mut().map(|session| pair.offer_in(session).unwrap()).collect();
    let waiting = |place: u32| (Code::Waiting, place.to_string());
    let accepted = (Code::Accepted, String::new());
    assert_eq!(said[..5], [accepted.clone(), accepted.clone(), waiting(1), waiting(2), waiting(3)]);
    assert_eq!((said[5].0, pair.receiver.waiting()), (Code::Refused, 3));
    assert!(said[5].1.contains("3 files wait already"), "{}", said[5].1);
    let block = Message::Block { index: 0, bytes: &[0; BLOCK] };
    assert_eq!(pair.say_in(&mut sessions[3], &block), None, "not before its turn");
    // The second of those that wait gives up; the others move on.
    pair.say_in(&mut sessions[3], &Message::Close);
    assert_eq!(pair.offer_in(&mut sessions[4]), Some(waiting(2)));
    let mut first = sessions[0].clone();
    pair.send_all_in(&mut first);
    assert_eq!(pair.offer_in(&mut sessions[2]), Some(accepted), "its turn has come");
    assert_eq!(pair.offer_in(&mut sessions[4]), Some(waiting(1)));
}

#[test]
fn one_address_gets_its_share_of_the_places_and_others_pass_by_its_queue() {
    let mut pair = Pair::new(1, Limits { files: 3, files_of_one: 1, ..Limits::default() });
    let mut greedy: Vec<Session> = (0..3).map(|_| pair.join(at(1)).unwrap()).collect();
    let codes: Vec<Code> = greedy.iter_mut().map(|session| pair.offer_in(session).unwrap().0).collect();
    assert_eq!(codes, [Code::Accepted, Code::Waiting, Code::Waiting]);
    let mut other = pair.join(at(2)).unwrap();
    assert_eq!(pair.offer_in(&mut other).unwrap().0, Code::Accepted);
    pair.send_all_in(&mut greedy[0]);
    assert_eq!(pair.offer_in(&mut greedy[1]).unwrap().0, Code::Accepted, "one after the other");
    assert_eq!(pair.offer_in(&mut greedy[2]).unwrap(), (Code::Waiting, "1".into()));
}

#[test]
fn one_address_gets_its_share_of_sessions_and_of_handshakes_in_a_second() {
    let limits = Limits { sessions_of_one: 3, greetings_per_second_of_one: 5, ..Limits::default() };
    let mut pair = Pair::new(1, limits);
    let begun = |pair: &mut Pair, source: IpAddr| (0..20).filter(|_| pair.join(source).is_some()).count();
    assert_eq!((begun(&mut pair, at(1)), begun(&mut pair, at(2))), (5, 5));
    // Of those of each, three are left, and the one of this test.
    assert_eq!(pair.receiver.sessions(), 3 + 3 + 1);
    pair.wait(1);
    assert_eq!(begun(&mut pair, at(1)), 5, "in the next second");
    // Two addresses of one network are one, those of two networks are not.
    let network = |text: &str| text.parse().unwrap();
    assert_eq!(begun(&mut pair, network("2001:db8:0:1::1")), 5);
    assert_eq!(begun(&mut pair, network("2001:db8:0:1:ffff::9")), 0);
    assert_eq!(begun(&mut pair, network("2001:db8:0:2::1")), 5);
}

#[test]
fn who_uses_all_its_sessions_gets_no_more() {
    let mut pair = Pair::new(1, Limits { sessions_of_one: 2, ..Limits::default() });
    let mut sessions = [(); 2].map(|()| pair.join(at(1)).unwrap());
    sessions.iter_mut().for_each(|session| assert!(pair.offer_in(session).is_some()));
    assert!(pair.join(at(1)).is_none());
    assert!(pair.join(at(2)).is_some());
    pair.say_in(&mut sessions[0], &Message::Close);
    assert!(pair.join(at(1)).is_some());
}

#[test]
fn a_crowd_at_one_address_pushes_out_its_own_sessions_and_never_a_file_that_has_come() {
    let limits = Limits { greetings: 8, sessions_of_one: 100, greetings_per_second_of_one: 1000, ..Limits::default() };
    let mut pair = Pair::new(1, Limits { greetings_per_second: 1000, ..limits });
    // One file has come, its sender has not heard so yet; another sender has just greeted.
    let mut complete = pair.join(at(1)).unwrap();
    pair.offer_in(&mut complete);
    pair.send_all_in(&mut complete);
    let mut greeted = pair.join(at(2)).unwrap();
    for _ in 0..200 {
        pair.now += Duration::from_millis(10);
        let mut stranger = pair.join(at(3)).unwrap();
        pair.say_in(&mut stranger, &Message::Finish);
    }
    assert_eq!(pair.say_in(&mut complete, &Message::Finish).unwrap().unwrap().0, Code::Complete);
    assert_eq!(pair.offer_in(&mut greeted).unwrap().0, Code::Accepted);
    // Many addresses with a session each come and go: the oldest first, and what has come stays.
    for stranger in 0..200 {
        pair.now += Duration::from_millis(10);
        pair.join(IpAddr::from([203, 0, 113, stranger])).unwrap();
    }
    pair.now += Duration::from_millis(10);
    let mut last = pair.join(at(4)).unwrap();
    for stranger in 200..207 {
        pair.now += Duration::from_millis(10);
        pair.join(IpAddr::from([203, 0, 113, stranger])).unwrap();
    }
    assert!(pair.offer_in(&mut last).is_some(), "seven came after it, and eight have room");
    assert_eq!(pair.say_in(&mut complete, &Message::Finish).unwrap().unwrap().0, Code::Complete);
}

#[test]
fn files_that_have_come_are_bounded_and_forgotten_whatever_their_senders_ask() {
    let mut pair = Pair::new(1, Limits { complete: 2, ..Limits::default() });
    let mut sessions: Vec<Session> = (0..3).map(|last| pair.join(at(last)).unwrap()).collect();
    for session in &mut sessions[..2] {
        assert_eq!(pair.offer_in(session).unwrap().0, Code::Accepted);
        pair.send_all_in(session);
    }
    assert_eq!(pair.offer_in(&mut sessions[2]).unwrap().0, Code::Waiting);
    for _ in 0..pair.receiver.limits.idle.as_secs_f64() as u64 {
        pair.wait(1);
        sessions[..2].iter_mut().for_each(|session| drop(pair.say_in(session, &Message::Finish)));
        pair.offer_in(&mut sessions[2]);
    }
    assert_eq!(pair.say_in(&mut sessions[0], &Message::Finish), None, "forgotten");
    assert_eq!(pair.offer_in(&mut sessions[2]).unwrap().0, Code::Accepted);
}

/// It says this and that, and the same block again and again.
#[test]
fn a_file_of_which_nothing_new_comes_loses_its_place_whatever_its_sender_says() {
    let mut pair = Pair::new(3, Limits { stalled: Duration::SECOND * 10, ..Limits::default() });
    pair.say(&Message::Offer(pair.offer()));
    // Its own disk's slowness is not the sender's.
    pair.wait(30);
    assert_eq!(pair.code(), Code::Accepted);
    pair.work();
    for index in 0..2 {
        pair.wait(8);
        assert!(pair.block(index), "something new");
        pair.work();
    }
    for _ in 0..11 {
        pair.wait(1);
        pair.say(&Message::Finish);
        pair.block(1);
    }
    let said = pair.say(&Message::Finish).unwrap().unwrap();
    assert_eq!(said, (Code::Failed, "nothing of the file has come for 10 s".to_owned()));
    assert_eq!(pair.tasks(), ["suspend"], "its sender may go on with it");
    pair.work();
    assert_eq!(pair.receiver.files(), 0);
}
