//! A relay's mailboxes.

#[path = "../../../../fuzz/onion_mailbox_checks.rs"]
mod checks;

use crate::numbered;
use crate::short_run::Target;
use anabranch_onion::directory::SecretKey;
use anabranch_onion::hidden::body::{Answer, MailboxState, Open, Request, label_of, write_onward};
use anabranch_onion::hidden::descriptor::{PARTS, Part, SALT};
use anabranch_onion::hidden::{Descriptor, HIDDEN_CELL, MailboxAt, ReceiverSecret};
use anabranch_onion::packet::BODY;
use anabranch_onion::reply::ReplyBlock;
use anabranch_onion::session::ServiceSecret;
use anabranch_onion::{RelayIndex, hidden};
use checks::{EPOCH, HERE};

fn block(number: u8) -> ReplyBlock {
    let mut bytes = [number; ReplyBlock::BYTES];
    bytes[..2].fill(0);
    ReplyBlock::from_bytes(&bytes).expect("relay 0")
}

/// The parts of a receiver's descriptor.
fn parts(epoch: u64, version: u64) -> [Part; PARTS] {
    let secret = ReceiverSecret::from_seed(&[3; 32]);
    let mailbox = MailboxAt { relay: RelayIndex(2), label: hidden::MAILBOX };
    let descriptor = Descriptor { keys: ServiceSecret::from_seed(&[4; 32]).keys(), mailboxes: vec![mailbox] };
    descriptor.seal(&secret.address(), &secret.blinded(epoch), epoch, version, [6; SALT])
}

fn opening(owner: u8, epoch: u64) -> Request {
    let key = SecretKey::from_seed(&[owner; 32]);
    Request::Open(Open::new(&key, &HERE, epoch, [1; 16], (0..4).map(block).collect()))
}

fn filling(owner: u8, first: u8) -> Request {
    let label = label_of(&SecretKey::from_seed(&[owner; 32]).public());
    Request::Fill { label, secret: [1; 16], asks: true, anew: false, blocks: (first..first + 5).map(block).collect() }
}

fn requests() -> Vec<Request> {
    let [first, second] = parts(EPOCH, 1);
    let key = first.key;
    vec![
        opening(1, EPOCH),
        filling(1, 10),
        Request::Publish { part: Box::new(first), answer: block(20) },
        Request::Publish { part: Box::new(second), answer: block(21) },
        Request::Fetch { key, answers: Box::new([block(22), block(23)]) },
        opening(2, EPOCH + 1),
        filling(2, 30),
    ]
}

/// Without the zeros at its end.
fn written(write: impl FnOnce(&mut [u8; BODY])) -> Vec<u8> {
    let mut body = [0; BODY];
    write(&mut body);
    let length = body.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    body[..length].to_vec()
}

fn command(what: u8, bytes: &[u8]) -> Vec<u8> {
    [&[what][..], &(bytes.len() as u16).to_be_bytes(), bytes].concat()
}

pub fn targets() -> [Target; 2] {
    let onward = written(|body| write_onward(&block(9), &[8; HIDDEN_CELL], body));
    let [part, _] = parts(EPOCH, 2);
    let state = Answer::Mailbox { label: hidden::ONWARD, state: MailboxState::Full, held: 513, dry: 70_000 };
    let answers = [state, Answer::Stored, Answer::NotStored, Answer::NotKnown, Answer::Part(Box::new(part))];
    let mut bodies: Vec<Vec<u8>> = requests().iter().map(|request| written(|body| request.write(body))).collect();
    bodies.extend(answers.iter().map(|answer| written(|body| answer.write(body))));
    bodies.push(onward.clone());
    let said = |requests: &[Request]| -> Vec<u8> {
        requests.iter().flat_map(|request| command(2, &written(|body| request.write(body)))).collect()
    };
    let all = requests();
    let epoch = command(0, &[0; 30]);
    let use_it = command(5, &[7; 100]);
    let scripts = vec![
        [said(&all[..2]), use_it.clone(), use_it.clone(), command(4, &onward)].concat(),
        [said(&all[..5]), epoch.clone(), said(&all[..7]), use_it.clone(), command(1, &[0; 31]), use_it].concat(),
        [said(&all[..5]), epoch.clone(), epoch.clone(), said(&all[4..]), command(1, &[0; 200])].concat(),
    ];
    [
        Target { name: "onion_mailbox", check: checks::onion_mailbox, cost: 1, own: numbered(bodies) },
        Target { name: "onion_mailboxes", check: checks::onion_mailboxes, cost: 20, own: numbered(scripts) },
    ]
}

/// A script that goes wrong at its beginning says nothing of what follows.
#[test]
fn the_corpus_opens_and_fills_mailboxes_of_two_epochs_and_keeps_descriptors() {
    use anabranch_control::time::{Duration, Time};
    use anabranch_onion::crypto::Transparent;
    let mut relay = anabranch_onion::hidden::Mailboxes::<Transparent>::new(HERE, EPOCH);
    let say = |relay: &mut anabranch_onion::hidden::Mailboxes<Transparent>, requests: &[Request]| {
        for request in requests {
            let mut body = [0; BODY];
            request.write(&mut body);
            assert!(relay.on_body(Time::ZERO, hidden::MAILBOX, &body));
        }
    };
    let all = requests();
    say(&mut relay, &all[..5]);
    relay.begin_epoch(Time::ZERO, EPOCH + 1, Duration::SECOND);
    say(&mut relay, &all[5..]);
    assert_eq!((relay.held(), relay.counts().stored, relay.counts().refused), ((2, 14), 2, 0));
}
