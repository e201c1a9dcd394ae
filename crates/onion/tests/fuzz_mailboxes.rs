//! A short fuzz run of a relay's mailboxes that any compiler can do, and the corpus of its targets: see
//! `crates/net/tests/fuzz_short.rs`.

#[path = "../../../fuzz/onion_mailbox_checks.rs"]
mod checks;
#[path = "../../../fuzz/mutate.rs"]
mod mutate;

use std::fs;
use std::path::{Path, PathBuf};

use anabranch_onion::directory::SecretKey;
use anabranch_onion::hidden::body::{Answer, MailboxState, Open, Request, label_of, write_onward};
use anabranch_onion::hidden::descriptor::{PARTS, Part, SALT};
use anabranch_onion::hidden::{Descriptor, HIDDEN_CELL, MailboxAt, ReceiverSecret};
use anabranch_onion::packet::BODY;
use anabranch_onion::reply::ReplyBlock;
use anabranch_onion::session::ServiceSecret;
use anabranch_onion::{RelayIndex, hidden};
use checks::{EPOCH, HERE};
use mutate::{Run, mutate};

/// Mutations of each target's corpus in an ordinary test run.
const ITERATIONS: usize = 20_000;

fn folder(target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target)
}

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

type Target = (&'static str, fn(&[u8]), usize, Vec<Vec<u8>>);

/// Each target, what must hold, how many inputs cost as much as one of those that only decode, and its inputs.
fn corpus() -> [Target; 2] {
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
    [("onion_mailbox", checks::onion_mailbox, 1, bodies), ("onion_mailboxes", checks::onion_mailboxes, 20, scripts)]
}

#[test]
fn the_corpus_is_what_the_formats_say() {
    let update = std::env::var_os("UPDATE_CORPUS").is_some();
    for (target, _, _, inputs) in corpus() {
        for (number, bytes) in inputs.iter().enumerate() {
            let path = folder(target).join(number.to_string());
            if update {
                fs::create_dir_all(folder(target)).unwrap();
                fs::write(&path, bytes).unwrap();
            }
            let kept = fs::read(&path).unwrap_or_default();
            assert!(kept == *bytes, "fuzz/corpus/{target}/{number} is old: write it anew with UPDATE_CORPUS=1");
        }
    }
}

#[test]
fn mutated_inputs_break_no_rule() {
    let run = Run::asked_for(ITERATIONS);
    for (target, check, cost, mut inputs) in corpus() {
        // What a fuzzer has found before is tried again.
        for entry in fs::read_dir(folder(target)).unwrap() {
            inputs.push(fs::read(entry.unwrap().path()).unwrap());
        }
        run.of(target, cost, &inputs, check, mutate);
    }
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
