//! `anabranch send` by code: the other person types what is printed here.

use std::net::SocketAddr;

use anabranch_proto::overlay::wire;
use anabranch_proto::seal::Identity;
use anabranch_rendezvous::agreement::{Answer, Offer};
use anabranch_rendezvous::client::MeetError;
use anabranch_rendezvous::code::Code;
use anabranch_rendezvous::frame::Side;

use super::Args;
use super::parcel::Parcel;
use super::transfer::Plan;
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
    let prepared = plan.prepare(&parcel, interrupt)?;
    // Nobody need know who we are but the one who has the code; a key that is named is shown.
    let identity = if args.identity.is_named() { args.identity.load()? } else { None };
    let identity = identity.unwrap_or_else(Identity::generate);
    let numbers = [parcel.files, parcel.bytes, prepared.length()];
    let offer = Offer::new(identity.public(), parcel.packing(), numbers, &parcel.names, &[known, others].concat());
    let mut burnt = 0;
    let (key, to) = loop {
        match meet(args, &named, &offer, interrupt)? {
            Ok(Answer::Yes { key, address }) => break (key, wire::canonical(address)),
            Ok(Answer::No { reason }) => {
                let reason = anabranch_proto::printable::printable(&reason);
                return Err(Failure::new(format!("{} was not sent: the receiver says no: {reason}", parcel.title)));
            }
            Err(MeetError::WrongCode) if args.code.is_none() && burnt < MOST_BURNT => {
                burnt += 1;
                network::say(args.json, "somebody came with other words; that code is burnt, here is a new one");
            }
            Err(error) => return Err(Failure::new(format!("{} was not sent: {error}", parcel.title))),
        }
    };
    if let Some(problem) = wire::problem_of_address(to) {
        return Err(Failure::new(format!("{} was not sent: the receiver says it is at {to}, {problem}", parcel.title)));
    }
    let Some(relays) = named.relays.like(to) else {
        return Err(Failure::new(format!(
            "{} was not sent: the receiver is at {to}, and the relays of {} are of the other family",
            parcel.title, named.by
        )));
    };
    let done = prepared.over(relays).carry(&parcel, to, Some(key), Some(&identity), interrupt)?;
    done.report(args.json, &parcel, to)
}

/// One code: the other side's answer, or why there is none.
fn meet(
    args: &Args,
    named: &Named,
    offer: &Offer,
    interrupt: &Interrupt,
) -> Result<Result<Answer, MeetError>, Failure> {
    let number = args.code.as_ref().map(|code| code.number);
    let work = async {
        let found = meeting::first_that_answers(named.relays.preferred(), Side::Sender, number, meeting::any_socket);
        let (mut mailbox, rendezvous) = match found.await {
            Ok((mailbox, rendezvous, _)) => (mailbox, rendezvous),
            Err(error) => return Err(error),
        };
        let code = args.code.clone().unwrap_or_else(|| Code::draw(mailbox.number()));
        print_code(args.json, &code, named, rendezvous);
        let answer = mailbox.offer(&code, offer).await;
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
