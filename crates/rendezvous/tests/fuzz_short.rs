//! A rendezvous and what its two sides say under a short fuzz run that any compiler can do, as that of
//! the network's decoders: each input of the corpus is mutated a fixed number of times by a seeded
//! generator.
//!
//! `UPDATE_CORPUS=1 cargo test -p anabranch-rendezvous --test fuzz_short` writes the corpus anew;
//! `FUZZ_ITERATIONS=1000000` makes the run longer, `FUZZ_SEED=2` another one.

#[path = "../../../fuzz/rendezvous_checks.rs"]
mod checks;
#[path = "../../../fuzz/short_run.rs"]
mod short_run;

use std::net::SocketAddr;

use anabranch_proto::seal::PublicKey;
use anabranch_rendezvous::agreement::{Answer, Offer, Packing};
use anabranch_rendezvous::frame::{Frame, Refusal, Side};
use short_run::Target;

fn targets() -> [Target; 3] {
    let target = |name, check, cost, own| Target { name, check, cost, own };
    [
        target("agreement", checks::agreement, 1, agreements()),
        // Who mistypes a word is told the nearest of all.
        target("code", checks::code, 100, codes()),
        target("rendezvous", checks::rendezvous, 1, conversations()),
    ]
}

/// Codes as they are typed.
fn codes() -> Vec<(String, Vec<u8>)> {
    let codes = [("printed", "7-crowfoot-orlando"), ("said", "12 Crowfoot ORLANDO crowfoot")];
    codes.map(|(name, code)| (name.to_owned(), code.into())).into()
}

/// Offers and answers as they are sealed.
fn agreements() -> Vec<(String, Vec<u8>)> {
    let key = PublicKey([7; 32]);
    let names = ["album".to_owned(), "\u{1}ä".to_owned()];
    let at: SocketAddr = "[2001:db8::1]:4000".parse().expect("it is an address");
    let offer = |packing, names: &[String]| Offer::new(key, packing, [3, 70_002, 74_240], names, &[at]).encode();
    vec![
        ("plain".into(), offer(Packing::Plain, &names[..1])),
        ("tar".into(), offer(Packing::Tar, &names)),
        ("yes".into(), Answer::Yes { key, address: at }.encode()),
        ("no".into(), Answer::No { reason: "it is not wanted".into() }.encode()),
    ]
}

/// What clients do at a rendezvous, each step as the check reads it.
fn conversations() -> Vec<(String, Vec<u8>)> {
    let says = |client: u8, frame: Frame| {
        let mut bytes = Vec::new();
        frame.encode(&mut bytes);
        let length = u8::try_from(bytes.len() - 2).expect("it is short");
        [&[27 + client, length], &bytes[2..]].concat()
    };
    let (open, claim) = (|side| Frame::Open(side), |side| Frame::Claim(side, 7));
    let put = |text: &str| Frame::Put(text.into());
    let leaves = |client: u8| vec![client];
    let (half_a_second, an_age) = (vec![9], vec![18]);
    let meeting = [
        says(1, claim(Side::Sender)),
        says(1, put("waits")),
        says(2, claim(Side::Receiver)),
        says(2, put("ask")),
        says(1, put("offer")),
        half_a_second,
        says(2, put("answer")),
        leaves(2),
        leaves(1),
    ];
    let late = [says(1, open(Side::Receiver)), an_age, says(1, put("anybody?")), says(2, claim(Side::Receiver))];
    let guess = [
        says(1, claim(Side::Sender)),
        says(2, claim(Side::Receiver)),
        leaves(2),
        says(3, claim(Side::Receiver)),
        says(4, claim(Side::Sender)),
    ];
    let crowd: Vec<u8> = (0..9).flat_map(|client| says(client, open(Side::Sender))).collect();
    let flood: Vec<u8> = [claim(Side::Sender), put("a"), put("a"), put("a"), put("a")]
        .into_iter()
        .flat_map(|frame| says(5, frame))
        .collect();
    let answers = [
        Frame::Placed { number: 7, seen: SocketAddr::from(([192, 0, 2, 1], 9)) },
        Frame::Got(b"got".to_vec()),
        Frame::Gone,
        Frame::Refused(Refusal::Unruly),
    ];
    let mut all = vec![
        ("meeting".to_owned(), meeting.concat()),
        ("late".to_owned(), late.concat()),
        ("guess".to_owned(), guess.concat()),
        ("crowd".to_owned(), crowd),
        ("flood".to_owned(), flood),
        ("answers".to_owned(), answers.iter().flat_map(|frame| says(0, frame.clone())).collect()),
    ];
    // Each alone, as a decoder sees it.
    all.extend(answers.iter().zip(["placed", "got", "gone", "refused"]).map(|(frame, name)| {
        let mut bytes = Vec::new();
        frame.encode(&mut bytes);
        (name.to_owned(), bytes.split_off(2))
    }));
    all
}

#[test]
fn the_corpus_is_what_the_formats_say() {
    targets().iter().for_each(Target::check_corpus);
}

#[test]
fn mutated_inputs_break_no_rule() {
    targets().iter().for_each(Target::run);
}
