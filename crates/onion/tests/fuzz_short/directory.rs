//! What authorities and users are sent.

#[path = "../../../../fuzz/directory_checks.rs"]
mod checks;

use crate::short_run::Target;
use anabranch_onion::directory::lock::Lock;
use anabranch_onion::directory::message::Statement;
use anabranch_onion::directory::vote::{EndorsedVote, Seen, Vote};
use anabranch_onion::directory::{
    Ballot, Context, Descriptor, Document, DocumentHash, EpochKey, ExitPolicy, ExitRule, Family, Member, Message,
    Protocol, SecretKey, SignedDescriptor, SignedDocument, Terms, UnixTime,
};
use anabranch_proto::machine::Wire;

pub fn targets() -> [Target; 1] {
    // Signatures are checked.
    [Target { name: "directory", check: checks::directory, cost: 20, own: corpus() }]
}

fn relay(number: u8) -> SignedDescriptor {
    let key = SecretKey::from_seed(&[number; 32]);
    let family = SecretKey::from_seed(&[99; 32]);
    let net = Some("192.0.2.0/24".parse().expect("a network"));
    let rule = |protocol, ports| ExitRule { accept: true, protocol, net, ports };
    let rules = vec![rule(Protocol::Tcp, (80, 443)), rule(Protocol::Udp, (53, 53))];
    let descriptor = Descriptor {
        identity: key.public(),
        published: UnixTime(1_000),
        address: ([10, 0, number, 1], 4000).into(),
        bytes_per_s: 1_000_000,
        epoch_keys: (11..13).map(|epoch| EpochKey { epoch, key: [number; 32] }).collect(),
        family: (number == 2).then(|| Family::admit(&family, &key.public())),
        exit: ExitPolicy { rules: if number == 2 { rules } else { Vec::new() } },
        service: None,
    };
    descriptor.sign(&key).expect("it is its own")
}

fn document() -> SignedDocument {
    let key = SecretKey::from_seed(&checks::SEED);
    let mut members: Vec<Member> = (1..3)
        .map(|n| Member { descriptor: relay(n).descriptor, since: UnixTime(900), weight: 1_000_000, guard: true })
        .collect();
    members.sort_by_key(|member| member.descriptor.identity);
    let (valid_from, valid_until) = (UnixTime(1_100), UnixTime(1_400));
    let terms = Terms { epoch_s: 100, packets_per_key: 64 };
    let document = Document { epoch: 11, valid_from, valid_until, previous: DocumentHash::default(), terms, members };
    let signature = key.sign(Context::Document, &Ballot::first(11).signed_bytes(&document.hash()));
    SignedDocument::new(document, 0, vec![(key.public(), signature)])
}

fn corpus() -> Vec<(String, Vec<u8>)> {
    let key = SecretKey::from_seed(&checks::SEED);
    let message = |name: &str, message: &Message| {
        let mut bytes = Vec::new();
        message.write(&mut bytes);
        (name.to_owned(), bytes)
    };
    let mut relays: Vec<Seen> = (1..3).map(|n| Seen { relay: relay(n), since: UnixTime(900) }).collect();
    relays.sort();
    let trust = anabranch_onion::directory::Trust::new(&[key.public()], 1).expect("one");
    let (document_of_11, hash) = document().verify(&trust).expect("good");
    let statement = |context| Statement::new(context, Ballot::first(11), hash, &key);
    let prepared = statement(Context::Prepare);
    let lock = Lock { number: 0, document: document_of_11, prepared: vec![(prepared.signer, prepared.signature)] };
    let vote = Vote { author: key.public(), ballot: Ballot::first(11), previous: None, lock: None, relays };
    let later = Vote { ballot: Ballot { epoch: 11, number: 1 }, lock: Some(Box::new(lock)), ..vote.clone() };
    let [vote, later] = [vote, later].map(|vote| EndorsedVote::new(vote, &key));
    vec![
        ("descriptor".to_owned(), relay(1).encode()),
        ("document".to_owned(), document().encode()),
        message("fetch", &Message::Fetch { newer_than: 3 }),
        message("document-message", &Message::Document(document())),
        message("upload", &Message::Upload(Box::new(relay(1)))),
        message("vote", &Message::Vote(Box::new(vote))),
        message("vote-with-lock", &Message::Vote(Box::new(later))),
        message("prepared", &Message::Prepared(prepared)),
        message("signed", &Message::Signed(statement(Context::Document))),
    ]
}
