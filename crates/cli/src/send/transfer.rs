//! One transfer over relays: from what is asked for to what became of it.

use std::net::SocketAddr;
use std::time::Instant;

use anabranch_control::path::Slot;
use anabranch_control::rng::Rng;
use anabranch_control::time::{Duration, Time};
use anabranch_net::packet_size::{self, LEAST, SizeError};
use anabranch_net::runtime::Runtime;
use anabranch_net::setup::{self, PACKET, SenderSetup};
use anabranch_proto::overlay::courier::SendCounters;
use anabranch_proto::overlay::message::Offer;
use anabranch_proto::overlay::peer::{Peer, Sender};
use anabranch_proto::overlay::relay_node::RelayNode;
use anabranch_proto::seal::{Identity, PublicKey};
use anabranch_proto::transfer::{self, FileSender, Phase, TransferError};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;

use super::parcel::{Parcel, ParcelSource};
use super::{Args, HOPS};
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::network::{self, Amount};
use crate::printer::print_line;
use crate::stderr::eprint_line;
use crate::transfer_bar::BYTES;

/// So long a sender tries to take leave: the next burst is at most a second away.
const LEAVE: Duration = Duration::from_millis(1_500);

/// The sender of a transfer, checked before anybody hears of it.
pub struct Plan<'a> {
    args: &'a Args,
    relays: Vec<SocketAddr>,
    /// With those of the other family, over which it may be instead.
    either: Vec<SocketAddr>,
    hops: usize,
    parameters: toml::Table,
}

/// The same, with a file that was read once.
pub struct Prepared<'a> {
    plan: Plan<'a>,
    /// As long as the longest that it may travel over.
    route: Vec<SocketAddr>,
    offer: Offer,
    source: ParcelSource,
}

/// How an attempt has ended, if not by an error.
enum Ended {
    Done(Done),
    BlackHole,
}

/// What a transfer was like.
#[derive(Debug)]
pub struct Done {
    /// Its name at the receiver.
    name: String,
    /// Since the first packet of any kind left.
    took: Duration,
    /// Bytes that the receiver had before.
    resumed: u64,
    counters: SendCounters,
    rtt: Option<Duration>,
}

impl<'a> Plan<'a> {
    /// Over `known` relays to `to`, or to somebody of whom only the family is known yet.
    ///
    /// # Errors
    ///
    /// When there can't be such a sender.
    pub fn new(args: &'a Args, known: &[SocketAddr], to: SocketAddr) -> Result<Plan<'a>, Failure> {
        // A receiver may be a relay for others, but not on the way to itself.
        let relays: Vec<SocketAddr> = known.iter().copied().filter(|&relay| relay != to).collect();
        let hops = args.hops.unwrap_or(HOPS.min(relays.len()).max(1));
        let parameters = network::parameters(args.controller.name, &args.set)?;
        let plan = Plan { args, either: relays.clone(), relays, hops, parameters };
        plan.setup(to, PACKET).build()?;
        Ok(plan)
    }

    /// The same, but a packet shall fit over `others`, too, of which there are as many.
    pub fn or_over(mut self, others: &[SocketAddr]) -> Plan<'a> {
        self.either.extend(others);
        self
    }

    fn setup(&self, to: SocketAddr, packet: usize) -> SenderSetup {
        let mut peers = self.relays.clone();
        peers.push(to);
        SenderSetup {
            peers,
            hops: self.hops,
            controller: self.args.controller,
            parameters: self.parameters.clone(),
            pacing: self.args.pacing.into(),
            upload: self.args.upload,
            packet,
            start: Time::ZERO,
            rng: Rng::stream(setup::random_seed(), "sender"),
        }
    }

    /// Reads `parcel` once, for its hash.
    pub fn prepare(self, parcel: &Parcel, interrupt: &Interrupt) -> Result<Prepared<'a>, Failure> {
        // The receiver is of the relays' family, so that its address is as long as the longest of theirs.
        let longest = self.either.iter().find(|relay| relay.is_ipv6()).or(self.either.first());
        let longest = *longest.ok_or_else(|| Failure::new("no relay is known"))?;
        let route = setup::longest_route(&self.either, self.hops, longest);
        let (offer, source) = parcel.offer(block(&route, self.args.packet.unwrap_or(PACKET))?, interrupt)?;
        Ok(Prepared { plan: self, route, offer, source })
    }
}

/// Bytes of a file that a packet carries over `route`.
fn block(route: &[SocketAddr], packet: usize) -> Result<u16, Failure> {
    transfer::block_size(route, packet).ok_or_else(|| Failure::new("the route leaves no room for data in a packet"))
}

impl Prepared<'_> {
    /// The same over `relays`, of the receiver's family.
    pub fn over(mut self, relays: &[SocketAddr]) -> Self {
        self.plan.relays = relays.to_vec();
        self
    }

    /// Bytes that travel.
    pub fn length(&self) -> u64 {
        self.offer.length
    }

    /// Sends it to `to`, who must hold the secret of `key` if one is given, and waits until it is checked.
    pub fn carry(
        mut self,
        parcel: &Parcel,
        to: SocketAddr,
        key: Option<PublicKey>,
        identity: Option<&Identity>,
        interrupt: &Interrupt,
    ) -> Result<Done, Failure> {
        let began = Instant::now();
        self.plan.relays.retain(|&relay| relay != to);
        let Plan { args, relays, hops, .. } = &self.plan;
        let (from, given_up) = (network::any_address(to), || interrupt.is_raised());
        let packet = packet_size::choose(args.packet, from, relays, *hops, to, args.upload, given_up);
        let mut packet = packet.map_err(|error| match error {
            SizeError::GivenUp => Failure::interrupted(parcel.not_sent()),
            error => Failure::new(error.to_string()),
        })?;
        if args.packet.is_none() && packet < PACKET {
            let line = format!("packets of {packet} bytes: the paths carry no longer ones, or nobody has answered");
            network::say(args.json, &line);
        }
        loop {
            let before = Duration::from_nanos(began.elapsed().as_nanos() as u64);
            match self.attempt(packet, parcel, to, key, identity, interrupt)? {
                // It takes as long as whoever sends it waits: with the search for a size, and in vain.
                Ended::Done(done) => return Ok(Done { took: before + done.took, ..done }),
                // What the paths carried at first is lost now: what they all carry may pass.
                Ended::BlackHole if self.plan.args.packet.is_none() && packet > LEAST => {
                    eprint_line!("anabranch: packets of {packet} bytes are lost on the way: going on with {LEAST}");
                    packet = LEAST;
                }
                Ended::BlackHole => {
                    let error = TransferError::BlackHole;
                    return Err(Failure::new(format!("{}: {error}", parcel.not_sent())));
                }
            }
        }
    }

    /// The same in packets of `packet` bytes, as long as those get through.
    fn attempt(
        &self,
        packet: usize,
        parcel: &Parcel,
        to: SocketAddr,
        key: Option<PublicKey>,
        identity: Option<&Identity>,
        interrupt: &Interrupt,
    ) -> Result<Ended, Failure> {
        let Prepared { plan, route, offer, source } = self;
        let offer = Offer { block: block(route, packet)?, ..offer.clone() };
        let courier = plan.setup(to, packet).build()?;
        let length = offer.length;
        let mut runtime = Runtime::new(source.clone())?;
        let destination = Slot(plan.relays.len() as u16);
        let mut sender = FileSender::new(runtime.now(), courier, destination, key, offer);
        if let Some(identity) = identity {
            sender = sender.with_identity(identity);
        }
        let socket = network::bind(network::any_address(to))?;
        let peer = Peer::new(RelayNode::end(), None, Some(Sender::File(Box::new(sender))));
        let number = runtime.add_gathering(socket, peer)?;

        let style = ProgressStyle::with_template(&format!("{{msg:10}} {BYTES}"));
        let display = ProgressBar::new(length).with_style(style.expect("the template is valid"));
        let (mut leave_until, mut said_place) = (None, None);
        loop {
            let until = runtime.now() + network::TICK;
            let now = runtime.now();
            runtime.turn(until)?;
            let Some(sender) = runtime.machine_mut(number).file_sender_mut() else { break };
            display.set_position(sender.arrived_bytes());
            match sender.place() {
                Some(place) => display.set_message(format!("waiting, place {place}")),
                None => display.set_message(name_of(sender.phase())),
            }
            // Where no bar is shown, it is said once.
            if let (None, Some(place)) = (said_place, sender.place()) {
                said_place = Some(place);
                display.suspend(|| network::say(plan.args.json, &network::waiting(place)));
            }
            if interrupt.is_raised() {
                sender.cancel();
            }
            if sender.outcome().is_some() {
                let until = *leave_until.get_or_insert(now + LEAVE);
                if sender.is_over() || now >= until {
                    break;
                }
            }
        }
        display.finish_and_clear();
        let not_sent = parcel.not_sent();
        let Some(sender) = runtime.machine_mut(number).file_sender_mut() else {
            return Err(Failure::new("the transfer has no sender"));
        };
        match sender.outcome() {
            Some(Ok(done)) => Ok(Ended::Done(Done {
                name: done.name.clone(),
                took: done.took,
                resumed: done.resumed,
                counters: *sender.courier().counters(),
                rtt: sender.courier().smoothed_rtt(),
            })),
            Some(Err(TransferError::BlackHole)) => Ok(Ended::BlackHole),
            Some(Err(TransferError::Cancelled)) => Err(Failure::interrupted(not_sent)),
            Some(Err(error @ TransferError::NoAnswer(_))) => {
                Err(Failure::new(format!("{not_sent}: {error}{}", all_have_to_run(&plan.relays, plan.hops))))
            }
            Some(Err(error)) => Err(Failure::new(format!("{not_sent}: {error}"))),
            None => Err(Failure::new("the transfer has no outcome")),
        }
    }
}

impl Done {
    /// Says what became of `parcel`.
    pub fn report(&self, json: bool, parcel: &Parcel, to: SocketAddr) -> Result<(), Failure> {
        let Done { name, took, resumed, counters, rtt } = self;
        let (travelled, seconds) = (parcel.travelling(), took.as_secs_f64());
        let rate = travelled.saturating_sub(*resumed) as f64 / seconds.max(1e-9);
        if json {
            let summary = json!({
                "outcome": "sent",
                "names": parcel.names,
                "files": parcel.files,
                "bytes": parcel.bytes,
                "travelled_bytes": travelled,
                "resumed_bytes": resumed,
                "name": name,
                "to": to.to_string(),
                "seconds": seconds,
                "bytes_per_second": rate,
                "packets": counters.sent,
                "acknowledged_packets": counters.acked,
                "late_packets": counters.late,
                "lost_packets": counters.lost,
                "forged_acks": counters.forged,
                "round_trip_ms": rtt.map(Duration::as_millis_f64),
            });
            print_line!("{summary}")?;
            return Ok(());
        }
        print_line!(
            "sent {} to {to} as {name}: {travelled} bytes in {seconds:.1} s, {}/s",
            parcel.title,
            Amount(rate)
        )?;
        if *resumed > 0 {
            print_line!("{resumed} bytes of it had come before")?;
        }
        print_line!(
            "{} packets: {} acknowledged in time, {} late, {} lost; {} forged ACKs{}",
            counters.sent,
            counters.acked,
            counters.late,
            counters.lost,
            counters.forged,
            rtt.map(|rtt| format!("; round trip {:.1} ms", rtt.as_millis_f64())).unwrap_or_default()
        )?;
        Ok(())
    }
}

/// What else to look at where nobody answers and each packet passes all of `relays`; nothing where some paths pass by one
/// that is dead, or where it is one that was asked about anyway.
fn all_have_to_run(relays: &[SocketAddr], hops: usize) -> String {
    let count = relays.len();
    if count < 2 || hops < count {
        return String::new();
    }
    let relays: Vec<String> = relays.iter().map(SocketAddr::to_string).collect();
    format!(
        "; every packet passes all {count} relays, so each of them has to run: {}. With --hops 1 the others are used where \
         one is dead",
        relays.join(", ")
    )
}

fn name_of(phase: Phase) -> &'static str {
    match phase {
        Phase::Greeting => "greeting",
        Phase::Offering => "offering",
        Phase::Sending => "sending",
        Phase::Finishing => "checking",
        Phase::Over => "done",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_every_packet_passes_every_relay_it_is_said_that_each_has_to_run() {
        let relays = ["127.0.0.1:4001", "127.0.0.1:4002"].map(|text| text.parse().unwrap());
        let said = all_have_to_run(&relays, 2);
        for part in ["all 2 relays", "127.0.0.1:4001, 127.0.0.1:4002", "--hops 1"] {
            assert!(said.contains(part), "{said}");
        }
        assert_eq!(all_have_to_run(&relays, 1), "");
        assert_eq!(all_have_to_run(&relays[..1], 1), "");
    }
}
