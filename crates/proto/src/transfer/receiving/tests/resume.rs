//! Files that go on in another session than they have begun in.

use super::*;

/// Does all jobs.
fn finish_jobs(pair: &mut Pair) {
    while !pair.jobs.is_empty() {
        pair.work();
    }
}

/// A session of the holder of `own`, or of nobody that is known.
fn session_of(pair: &mut Pair, own: Option<&Identity>) -> Session {
    let key = pair.receiver.identity.public();
    let waiting = Hello::new(Some(&key), own);
    let cookie = cookie_for(&mut pair.receiver, pair.now, HERE, &waiting);
    session_with(&mut pair.receiver, &waiting, &body(&waiting, cookie, 1))
}

/// What is said of `offer` in `session`, once the disk has done its work.
fn offered(pair: &mut Pair, session: &mut Session, offer: &Offer) -> (Code, String) {
    pair.say_in(session, &Message::Offer(offer.clone()));
    finish_jobs(pair);
    pair.say_in(session, &Message::Offer(offer.clone())).unwrap().unwrap()
}

fn send_block(pair: &mut Pair, session: &mut Session, index: usize) {
    let bytes = pair.file[index * BLOCK..][..BLOCK].to_vec();
    assert!(is_taken(pair.say_in(session, &Message::Block { index: index as u32, bytes: &bytes })));
    finish_jobs(pair);
}

/// As `Pair::new`, with the first two of four blocks there in a session of `own`, which is silent then.
fn begun(own: Option<&Identity>) -> (Pair, Session) {
    let mut pair = Pair::new(4, Limits::default());
    let mut session = session_of(&mut pair, own);
    let offer = pair.offer();
    assert_eq!(offered(&mut pair, &mut session, &offer), (Code::Accepted, String::new()));
    (0..2).for_each(|index| send_block(&mut pair, &mut session, index));
    (pair, session)
}

#[test]
fn the_holder_of_the_key_that_began_a_file_goes_on_with_it_at_once() {
    let own = Identity::generate();
    let (mut pair, mut before) = begun(Some(&own));
    let mut session = session_of(&mut pair, Some(&own));
    let offer = pair.offer();
    let said = pair.say_in(&mut session, &Message::Offer(offer.clone())).unwrap().unwrap();
    assert_eq!(said.0, Code::Waiting, "it is being put away");
    assert_eq!(offered(&mut pair, &mut session, &offer), (Code::Incomplete, "0+2".into()));
    let late = pair.say_in(&mut before, &Message::Finish).unwrap().unwrap();
    assert!(late.0 == Code::Failed && late.1.contains("has begun to send this file again"), "{late:?}");
    (2..4).for_each(|index| send_block(&mut pair, &mut session, index));
    assert_eq!(pair.say_in(&mut session, &Message::Finish).unwrap().unwrap(), (Code::Complete, "a".into()));
    assert_eq!(pair.store.published, [("a".to_owned(), pair.file.clone())]);
    let counters = *pair.receiver.counters();
    assert_eq!((counters.blocks, counters.resumed, pair.receiver.unwritten()), (4, 2, 0));
    let (before, session) = (before.id(), session.id());
    let events = pair.events();
    assert!(events.contains(&Event::Continued { session: before, by: session }), "{events:?}");
    assert!(!events.iter().any(|event| matches!(event, Event::Closed { .. } | Event::Failed { .. })), "{events:?}");
}

/// Neither what of it is there, nor its place, nor that there is such a file.
#[test]
fn nobody_else_gets_anything_of_a_file_that_a_key_has_begun() {
    let own = Identity::generate();
    let (mut pair, mut session) = begun(Some(&own));
    for stranger in [None, Some(Identity::generate())] {
        let mut other = session_of(&mut pair, stranger.as_ref());
        let offer = pair.offer();
        assert_eq!(offered(&mut pair, &mut other, &offer), (Code::Accepted, String::new()));
        pair.wait(10);
        assert_eq!(pair.say_in(&mut session, &Message::Finish).unwrap().unwrap().0, Code::Incomplete);
    }
    // Nor when its sender has gone.
    pair.wait(61);
    finish_jobs(&mut pair);
    assert_eq!((pair.receiver.sessions(), pair.store.kept.len()), (0, 1));
    let mut other = session_of(&mut pair, None);
    let offer = pair.offer();
    assert_eq!(offered(&mut pair, &mut other, &offer), (Code::Accepted, String::new()));
    let mut session = session_of(&mut pair, Some(&own));
    assert_eq!(offered(&mut pair, &mut session, &offer), (Code::Incomplete, "0+2".into()));
}

#[test]
fn a_sender_without_a_key_is_not_driven_out_while_it_is_there_and_goes_on_when_it_has_gone() {
    let (mut pair, mut before) = begun(None);
    let mut session = session_of(&mut pair, None);
    let offer = pair.offer();
    for _ in 0..20 {
        pair.wait(1);
        assert_eq!(offered(&mut pair, &mut session, &offer), (Code::Waiting, "1".into()));
        assert_eq!(pair.say_in(&mut before, &Message::Finish).unwrap().unwrap().0, Code::Incomplete);
    }
    pair.wait(4);
    finish_jobs(&mut pair);
    assert_eq!(offered(&mut pair, &mut session, &offer), (Code::Incomplete, "0+2".into()));
}

#[test]
fn what_has_come_is_kept_of_who_falls_silent_and_not_of_who_takes_leave() {
    for takes_leave in [true, false] {
        let (mut pair, mut session) = begun(None);
        if takes_leave {
            pair.say_in(&mut session, &Message::Close);
        } else {
            pair.receiver.close_all(pair.now, Duration::ZERO);
            pair.wait(0);
            pair.jobs.extend(std::iter::from_fn(|| pair.receiver.next_job()));
        }
        assert_eq!(pair.tasks(), [if takes_leave { "discard" } else { "suspend" }]);
        finish_jobs(&mut pair);
        assert_eq!((pair.store.kept.is_empty(), pair.receiver.closing()), (takes_leave, 0));
        let (mut session, offer) = (session_of(&mut pair, None), pair.offer());
        let answer = offered(&mut pair, &mut session, &offer);
        assert_eq!(answer, if takes_leave { (Code::Accepted, "".into()) } else { (Code::Incomplete, "0+2".into()) });
    }
}

/// A code brings each of them with a key of its own, to a receiver that takes from nobody else.
#[test]
fn whom_the_next_code_brings_goes_on_with_the_same_file_and_nobody_else_does() {
    let [first, second] = [(); 2].map(|()| Identity::generate());
    let by_code = |pair: &mut Pair, own: &Identity| pair.receiver = pair.receiver.clone().by_code(own.public());
    let mut pair = Pair::new(4, Limits::default());
    by_code(&mut pair, &first);
    let mut session = session_of(&mut pair, Some(&first));
    let offer = pair.offer();
    assert_eq!(offered(&mut pair, &mut session, &offer), (Code::Accepted, String::new()));
    (0..2).for_each(|index| send_block(&mut pair, &mut session, index));
    pair.wait(61);
    finish_jobs(&mut pair);
    // It is none of those of senders at an address, with a key or without.
    for stranger in [None, Some(&first)] {
        let mut other = Pair { store: pair.store.clone(), ..Pair::new(4, Limits::default()) };
        other.receiver = other.receiver.clone().with_kept(pair.store.kept.keys().copied());
        let mut session = session_of(&mut other, stranger);
        assert_eq!(offered(&mut other, &mut session, &offer), (Code::Accepted, String::new()), "{stranger:?}");
    }
    by_code(&mut pair, &second);
    let mut late = session_of(&mut pair, Some(&first));
    let said = offered(&mut pair, &mut late, &offer);
    assert!(said.0 == Code::Refused, "the code before is good for nobody now: {said:?}");
    let mut session = session_of(&mut pair, Some(&second));
    assert_eq!(offered(&mut pair, &mut session, &offer), (Code::Incomplete, "0+2".into()));
}

/// Who interrupts a transfer that goes on well wants nothing of it; who ends one that hangs may want it.
#[test]
fn with_all_sessions_what_is_still_coming_is_discarded_and_what_has_stopped_coming_is_kept() {
    for silent in [2, 3] {
        let (mut pair, _) = begun(None);
        pair.wait(silent);
        pair.receiver.close_all(pair.now, Duration::SECOND * 3);
        pair.jobs.extend(std::iter::from_fn(|| pair.receiver.next_job()));
        assert_eq!(pair.tasks(), [if silent == 3 { "suspend" } else { "discard" }]);
        finish_jobs(&mut pair);
        assert_eq!((pair.store.kept.len(), pair.store.files.len()), (usize::from(silent == 3), 0));
    }
}

/// No other receiver will have the key that its sender was given; at an address, one that is started again has it.
#[test]
fn whom_a_code_has_brought_is_told_that_its_receiver_was_interrupted() {
    for is_by_code in [true, false] {
        let sender = Identity::generate();
        let mut pair = Pair::new(4, Limits::default());
        if is_by_code {
            pair.receiver = pair.receiver.clone().by_code(sender.public());
        }
        let mut session = session_of(&mut pair, Some(&sender));
        let offer = pair.offer();
        assert_eq!(offered(&mut pair, &mut session, &offer), (Code::Accepted, String::new()));
        send_block(&mut pair, &mut session, 0);
        pair.receiver.close_all(pair.now, Duration::SECOND * 3);
        pair.jobs.extend(std::iter::from_fn(|| pair.receiver.next_job()));
        assert_eq!(pair.receiver.sessions(), usize::from(is_by_code));
        let said = pair.say_in(&mut session, &Message::Finish);
        let told = (Code::Refused, "it was interrupted".to_owned());
        assert_eq!(said.flatten(), is_by_code.then_some(told));
        pair.say_in(&mut session, &Message::Close);
        finish_jobs(&mut pair);
        assert_eq!((pair.receiver.sessions(), pair.receiver.files(), pair.store.kept.len()), (0, 0, 0));
    }
}

#[test]
fn a_receiver_that_was_started_again_reports_what_its_store_has_before_blocks_come() {
    let (pair, _) = begun(None);
    let offer = pair.offer();
    let id = Partial::of(Owner::Anybody, &offer).id;
    let mut again = Pair::new(4, Limits::default());
    again.store.kept.insert(id, (pair.file[..2 * BLOCK].to_vec(), std::iter::once(0..15).collect()));
    again.receiver = again.receiver.clone().with_kept([id]);
    let said = again.say(&Message::Offer(offer.clone())).unwrap().unwrap();
    assert_eq!(said, (Code::Waiting, String::new()), "it looks");
    again.work();
    let said = again.say(&Message::Offer(offer)).unwrap().unwrap();
    assert_eq!(said, (Code::Incomplete, "0+1".into()), "half a block is none");
}

#[test]
fn another_size_of_blocks_goes_on_with_the_same_bytes() {
    let (mut pair, _) = begun(None);
    pair.wait(61);
    finish_jobs(&mut pair);
    let (mut session, offer) = (session_of(&mut pair, None), Offer { block: 7, ..pair.offer() });
    // 20 of 40 bytes in blocks of 7.
    assert_eq!(offered(&mut pair, &mut session, &offer), (Code::Incomplete, "0+2".into()));
    let file = pair.file.clone();
    for (index, bytes) in (2..).zip(file[14..].chunks(7)) {
        assert!(is_taken(pair.say_in(&mut session, &Message::Block { index, bytes })));
    }
    finish_jobs(&mut pair);
    assert_eq!(pair.say_in(&mut session, &Message::Finish).unwrap().unwrap().0, Code::Complete);
    assert_eq!(pair.store.published, [("a".to_owned(), file)]);
}

#[test]
fn a_part_with_wrong_bytes_makes_all_of_it_come_again_and_that_once() {
    let (mut pair, _) = begun(None);
    pair.wait(61);
    finish_jobs(&mut pair);
    pair.store.kept.values_mut().for_each(|(file, _)| file[3] ^= 1);
    let (mut session, offer) = (session_of(&mut pair, None), pair.offer());
    assert_eq!(offered(&mut pair, &mut session, &offer), (Code::Incomplete, "0+2".into()));
    (2..4).for_each(|index| send_block(&mut pair, &mut session, index));
    assert_eq!(pair.say_in(&mut session, &Message::Finish).unwrap().unwrap(), (Code::Accepted, String::new()));
    (0..3).for_each(|index| send_block(&mut pair, &mut session, index));
    // The last one is wrong too: that is its sender's.
    let wrong = Message::Block { index: 3, bytes: &[0; BLOCK] };
    pair.say_in(&mut session, &wrong);
    finish_jobs(&mut pair);
    let said = pair.say_in(&mut session, &Message::Finish).unwrap().unwrap();
    assert!(said.0 == Code::Failed && said.1.contains("the hash is wrong"), "{said:?}");
    assert!(pair.store.files.is_empty() && pair.store.kept.is_empty() && pair.store.published.is_empty());
}

/// Killed just before it was told: it learns the name, and the file does not come twice.
#[test]
fn a_sender_that_has_not_heard_that_its_file_has_come_learns_it_when_it_asks_again() {
    let (mut pair, mut before) = begun(None);
    (2..4).for_each(|index| send_block(&mut pair, &mut before, index));
    let (mut session, offer) = (session_of(&mut pair, None), pair.offer());
    assert_eq!(offered(&mut pair, &mut session, &offer), (Code::Complete, "a".into()));
    assert_eq!(pair.say_in(&mut before, &Message::Finish).unwrap().unwrap(), (Code::Complete, "a".into()));
    pair.say_in(&mut session, &Message::Close);
    assert_eq!((pair.store.published.len(), pair.receiver.files()), (1, 0));
    // Who has taken leave and offers it again means it.
    let mut session = session_of(&mut pair, None);
    assert_eq!(offered(&mut pair, &mut session, &offer).0, Code::Accepted);
}

/// While a job is under way: what it writes is kept too, and one session alone has the file.
#[test]
fn a_file_is_taken_over_once_what_is_being_done_with_it_is_done() {
    let own = Identity::generate();
    let (mut pair, mut before) = begun(Some(&own));
    let bytes = pair.file[2 * BLOCK..][..BLOCK].to_vec();
    pair.say_in(&mut before, &Message::Block { index: 2, bytes: &bytes });
    assert_eq!(pair.tasks(), ["write"]);
    let (mut session, offer) = (session_of(&mut pair, Some(&own)), pair.offer());
    pair.say_in(&mut session, &Message::Offer(offer.clone()));
    let mut steps = Vec::new();
    while let [task] = pair.tasks()[..] {
        steps.push(task);
        pair.work();
    }
    assert_eq!(steps, ["write", "suspend", "create"]);
    assert_eq!(offered(&mut pair, &mut session, &offer), (Code::Incomplete, "0+3".into()));
    assert_eq!((pair.receiver.unwritten(), pair.receiver.files()), (0, 1));
}
