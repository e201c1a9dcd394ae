//! `anabranch send` by code: the other person types what is printed here.

use std::net::SocketAddr;
use std::sync::mpsc;
use std::thread;

use anabranch_proto::overlay::wire;
use anabranch_proto::seal::{Identity, PublicKey};
use anabranch_rendezvous::agreement::{Answer, Offer};
use anabranch_rendezvous::client::MeetError;
use anabranch_rendezvous::code::Code;
use anabranch_rendezvous::frame::Side;
use tokio::sync::watch;

use super::Args;
use super::parcel::Parcel;
use super::transfer::{Plan, Prepared};
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::meeting;
use crate::network;
use crate::relays::Named;

/// New codes after wrong guesses, before it is given up: somebody is guessing.
const MOST_BURNT: u32 = 3;

/// Prints a code, waits for who has it, and sends.
pub fn run(args: &Args, interrupt: &Interrupt) -> Result<(), Failure> {
    let named = args.relays.load()?;
    let known = named.relays.preferred();
    // Of the receiver nothing is known yet, and its family only perhaps.
    let others = named.relays.other();
    let plan = Plan::new(args, known, wire::unknown_source(known[0]))?.or_over(others);
    let parcel = Parcel::gather(&args.files, args.name.as_deref(), interrupt)?;
    // Nobody need know who we are but the one who has the code; a key that is named is shown.
    let identity = if args.identity.is_named() { args.identity.load()? } else { None };
    let identity = identity.unwrap_or_else(Identity::generate);
    let numbers = [parcel.files, parcel.bytes, parcel.travelling()];
    let offer = Offer::new(identity.public(), parcel.packing(), numbers, &parcel.names, &[known, others].concat());
    let given_up = interrupt.of_part();
    let (begin, begins) = mpsc::channel();
    let (end, has_ended) = watch::channel(None);
    // The code can be said on the telephone while the file is read for its hash.
    let (met, prepared) = thread::scope(|scope| {
        let (content, given_up) = (&parcel, &given_up);
        let hashing = scope.spawn(move || {
            let prepared = match begins.recv() {
                Ok(()) => plan.prepare(content, given_up),
                Err(_) => Err(Failure::interrupted("nothing was read")),
            };
            end.send_replace(Some(prepared.as_ref().ok().map(Prepared::length)));
            prepared
        });
        let met = agree(args, &named, &offer, &parcel, &begin, &has_ended, interrupt);
        drop(begin);
        if met.is_err() {
            given_up.raise();
        }
        (met, hashing.join().expect("what hashes does not panic"))
    });
    let (key, to) = match met {
        Ok(Some(met)) => met,
        // Why it can't be read.
        Ok(None) => return Err(prepared.err().unwrap_or_else(|| Failure::new("nothing was sent"))),
        Err(failure) => return Err(failure),
    };
    let prepared = prepared?;
    if let Some(problem) = wire::problem_of_address(to) {
        return Err(Failure::new(format!("{}: the receiver says it is at {to}, {problem}", parcel.not_sent())));
    }
    let Some(relays) = named.relays.like(to) else {
        return Err(Failure::new(format!(
            "{}: the receiver is at {to}, and the relays of {} are of the other family",
            parcel.not_sent(),
            named.by
        )));
    };
    let done = prepared.over(relays).carry(&parcel, to, Some(key), Some(&identity), interrupt)?;
    done.report(args.json, &parcel, to)
}

/// Codes until somebody has one: who the receiver is and where; none if what is sent can't be read, which its hash needs.
fn agree(
    args: &Args,
    named: &Named,
    offer: &Offer,
    parcel: &Parcel,
    begin: &mpsc::Sender<()>,
    has_ended: &watch::Receiver<Option<Option<u64>>>,
    interrupt: &Interrupt,
) -> Result<Option<(PublicKey, SocketAddr)>, Failure> {
    let mut burnt = 0;
    loop {
        let hashed = Hashed { begin, has_ended: has_ended.clone() };
        match meet(args, named, offer, hashed, interrupt)? {
            Ok(None) => return Ok(None),
            Ok(Some(Answer::Yes { key, address })) => return Ok(Some((key, wire::canonical(address)))),
            Ok(Some(Answer::No { reason })) => {
                let reason = anabranch_proto::printable::printable(&reason);
                return Err(Failure::new(format!("{}: the receiver says no: {reason}", parcel.not_sent())));
            }
            Err(MeetError::WrongCode) if args.code.is_none() && burnt < MOST_BURNT => {
                burnt += 1;
                network::say(args.json, "somebody came with other words; that code is burnt, here is a new one");
            }
            Err(error) => return Err(Failure::new(format!("{}: {error}", parcel.not_sent()))),
        }
    }
}

/// What is sent, which is read for its hash from when the code is printed on.
struct Hashed<'a> {
    begin: &'a mpsc::Sender<()>,
    /// Once that is known, how many bytes travel; none if they can't be read.
    has_ended: watch::Receiver<Option<Option<u64>>>,
}

impl Hashed<'_> {
    /// Has it read, and says how many bytes travel; none if they can't be read.
    async fn length(mut self) -> Option<u64> {
        // Of several codes the first begins it.
        let _ = self.begin.send(());
        let ended = self.has_ended.wait_for(Option::is_some).await;
        ended.ok().and_then(|ended| ended.flatten())
    }
}

/// One code: the other side's answer, or why there is none; neither if what is sent can't be read.
fn meet(
    args: &Args,
    named: &Named,
    offer: &Offer,
    hashed: Hashed<'_>,
    interrupt: &Interrupt,
) -> Result<Result<Option<Answer>, MeetError>, Failure> {
    let number = args.code.as_ref().map(|code| code.number);
    let work = async {
        let found = meeting::first_that_answers(named.relays.preferred(), Side::Sender, number, meeting::any_socket);
        let (mut mailbox, rendezvous) = match found.await {
            Ok((mailbox, rendezvous, _)) => (mailbox, rendezvous),
            Err(error) => return Err(error),
        };
        let code = args.code.clone().unwrap_or_else(|| Code::draw(mailbox.number()));
        print_code(args.json, &code, named, rendezvous);
        // A receiver that has agreed waits less long than a long file takes.
        let answer = match hashed.length().await {
            Some(travelling) => {
                let mut offer = offer.clone();
                offer.travelling = travelling;
                mailbox.offer(&code, &offer).await.map(Some)
            }
            None => Ok(None),
        };
        mailbox.leave().await;
        answer
    };
    meeting::run(interrupt, "nothing was sent", work)
}

/// What the other person is to type.
fn print_code(json: bool, code: &Code, named: &Named, rendezvous: SocketAddr) {
    let relays = if named.by_option { format!(" --relays {rendezvous}") } else { String::new() };
    network::say(json, &format!("code: {code}"));
    network::say(json, &format!("on the other machine: anabranch receive {code}{relays}"));
}
