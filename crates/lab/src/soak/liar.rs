//! Relays that do not do what they should.

use std::collections::VecDeque;
use std::net::SocketAddr;

use anabranch_control::path::{MAX_RELAYS, Stamp};
use anabranch_control::rng::Rng;
use anabranch_control::time::{Duration, Time};
use anabranch_proto::machine::{Arrival, Departure, Machine, Out};
use anabranch_proto::overlay::hello::{COOKIE, Cookie, HelloBody, HelloReply};
use anabranch_proto::overlay::message::{FileName, Message, Offer};
use anabranch_proto::overlay::packet::{Kind, Packet, PacketId, Route, Telemetry};
use anabranch_proto::overlay::peer::Peer;
use anabranch_proto::overlay::wire::{OwnedDatagram, Type};
use anabranch_proto::seal::{Hello, PublicKey, Session};
use serde::Serialize;

/// What is wrong with a relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Lie {
    /// It forwards nothing of what it should forward.
    DropsAll,
    /// It forwards answers and one in ten of the others.
    DropsMost,
    /// It answers in the receiver's name, and forwards.
    ForgesAnswers,
    /// It sends again what it has forwarded.
    Replays,
    /// It sends to anybody what it should forward.
    Misroutes,
    /// It sends garbage to everybody on its own.
    SendsGarbage,
    /// It greets the receiver again and again and makes offers that it does not keep.
    Greets,
}

/// All of them.
pub const LIES: [Lie; 7] =
    [Lie::DropsAll, Lie::DropsMost, Lie::ForgesAnswers, Lie::Replays, Lie::Misroutes, Lie::SendsGarbage, Lie::Greets];

/// Datagrams that a relay which replays keeps.
const KEPT: usize = 16;

/// Greetings that wait for an answer: those of a second at 25 ms, for a round trip may be longer than
/// the time from one to the next.
const GREETINGS: usize = 40;

/// Names what a liar sends as a source: no sender remembers this many packets. A greeting has its number besides.
const OWN: PacketId = PacketId { index: u32::MAX, generation: 0 };

/// The longest body of garbage.
const LONGEST: usize = 1200;

/// What a liar knows of the network.
#[derive(Clone, Debug)]
pub struct Surroundings {
    /// All nodes: relays, the receiver, the sender.
    pub nodes: Vec<SocketAddr>,
    /// The key of the receiver.
    pub key: PublicKey,
}

impl Surroundings {
    fn receiver(&self) -> SocketAddr {
        self.nodes[self.nodes.len() - 2]
    }

    fn sender(&self) -> SocketAddr {
        self.nodes[self.nodes.len() - 1]
    }
}

/// A hello that has no answer yet.
#[derive(Debug)]
struct Greeting {
    /// By which an answer is known as its.
    number: u32,
    /// Of the last time that it was said.
    proof: u64,
    hello: Hello,
    /// It was said again with the receiver's cookie: another cookie changes nothing. So a greeting is
    /// two hellos at most, however often answers come and whatever they answer.
    has_cookie: bool,
}

/// A relay that lies.
#[derive(Debug)]
pub struct Liar {
    relay: Peer,
    lie: Lie,
    own: SocketAddr,
    surroundings: Surroundings,
    rng: Rng,
    /// Between two things that it does on its own.
    interval: Duration,
    next: Time,
    kept: Vec<OwnedDatagram>,
    /// The last ones first.
    greetings: VecDeque<Greeting>,
    /// Greetings so far.
    greeted: u32,
    outbox: OwnedDatagram,
}

impl Liar {
    /// The relay `relay` at `own` tells `lie`, on its own every `interval` from `now` on.
    pub fn new(
        now: Time,
        relay: Peer,
        own: SocketAddr,
        (lie, interval): (Lie, Duration),
        surroundings: Surroundings,
        rng: Rng,
    ) -> Liar {
        let next = match lie {
            Lie::Replays | Lie::SendsGarbage | Lie::Greets => now + interval,
            _ => Time::MAX,
        };
        let outbox = OwnedDatagram::default();
        let (kept, greetings) = (Vec::new(), VecDeque::new());
        Liar { relay, lie, own, surroundings, rng, interval, next, kept, greetings, greeted: 0, outbox }
    }

    /// What it lies.
    pub fn lie(&self) -> Lie {
        self.lie
    }

    pub(super) fn on_message(
        &mut self,
        now: Time,
        arrival: Arrival<SocketAddr>,
        datagram: &mut OwnedDatagram,
        out: &mut impl Out<Peer>,
    ) {
        match self.lie {
            Lie::Greets if datagram.packet.id.index == OWN.index => return self.on_reply(datagram, out),
            Lie::DropsAll => return,
            Lie::DropsMost if datagram.packet.kind == Kind::Data && !self.rng.chance(0.1) => return,
            Lie::ForgesAnswers if datagram.packet.kind == Kind::Data => self.forge(now, arrival.from, datagram, out),
            Lie::Misroutes => {
                if datagram.packet.step().is_some() {
                    let anybody = self.surroundings.nodes[self.rng.below(self.surroundings.nodes.len())];
                    out.send(Departure::now(anybody, datagram.len() as u32), datagram);
                }
                return;
            }
            _ => {}
        }
        self.relay.on_message(now, arrival, datagram, out);
        if self.lie == Lie::Replays {
            // It was moved on by a hop, if it was forwarded.
            if self.kept.len() < KEPT {
                self.kept.push(datagram.clone());
            } else {
                let place = self.rng.below(KEPT);
                self.kept[place].clone_from(datagram);
            }
        }
    }

    /// An answer that only the receiver could give, with a proof that is guessed.
    fn forge(&mut self, now: Time, from: SocketAddr, datagram: &OwnedDatagram, out: &mut impl Out<Peer>) {
        let Liar { rng, outbox, .. } = self;
        outbox.packet = datagram.packet;
        if outbox.packet.route.position() == 1 {
            outbox.packet.route.set_source(from);
        }
        let nonce = rng.bits();
        outbox.what = [Type::Ack, Type::Report, Type::HelloReply][rng.below(3)];
        outbox.body.clear();
        if let Some(hello) = HelloBody::decode(&datagram.body).filter(|_| datagram.what == Type::Hello) {
            // Its proof can be read: an ACK that is none, or a cookie that is none.
            outbox.packet.nonce = hello.proof;
            let cookie = [rng.bits(), rng.bits()].map(u64::to_be_bytes).concat();
            if outbox.what != Type::Ack {
                let cookie = cookie.try_into().expect("two numbers are a cookie");
                HelloReply::Cookie { proof: hello.proof, cookie }.encode(&mut outbox.body);
                outbox.packet.nonce = 0;
            }
        } else if outbox.what != Type::Ack {
            let length = rng.below(80);
            outbox.body.extend((0..length).map(|_| rng.bits() as u8));
        }
        if let Some(to) = outbox.packet.turn_around(now) {
            outbox.packet.nonce = nonce;
            outbox.packet.telemetry = lies(rng);
            out.send(Departure::now(to, outbox.len() as u32), outbox);
        }
    }

    pub(super) fn on_timer(&mut self, now: Time, out: &mut impl Out<Peer>) {
        if now < self.next {
            return;
        }
        self.next = now + self.interval;
        match self.lie {
            Lie::Replays if !self.kept.is_empty() => {
                let datagram = &self.kept[self.rng.below(self.kept.len())];
                out.send(Departure::now(datagram.packet.route.at(), datagram.len() as u32), datagram);
            }
            Lie::SendsGarbage => self.send_garbage(out),
            Lie::Greets => self.greet(out),
            _ => {}
        }
    }

    /// A datagram to anybody, in which only the header makes sense.
    fn send_garbage(&mut self, out: &mut impl Out<Peer>) {
        let Liar { rng, outbox, surroundings, own, .. } = self;
        let what = [Type::Hello, Type::HelloReply, Type::Data, Type::Report, Type::Ack][rng.below(5)];
        let (kind, to, at) = match what.kind() {
            Kind::Data => (Kind::Data, surroundings.receiver(), 2),
            Kind::Ack => (Kind::Ack, surroundings.sender(), 0),
        };
        let nodes = [surroundings.sender(), *own, surroundings.receiver()];
        let Some(route) = Route::from_nodes(&nodes, at) else { return };
        // Small numbers: a packet that exists, if one can be hit.
        let id = PacketId { index: rng.below(50) as u32, generation: rng.below(20) as u32 };
        outbox.what = what;
        outbox.packet = Packet { id, nonce: rng.bits(), kind, route, telemetry: lies(rng) };
        outbox.body.clear();
        if what != Type::Ack {
            let length = rng.below(LONGEST);
            outbox.body.extend((0..length).map(|_| rng.bits() as u8));
        }
        out.send(Departure::now(to, outbox.len() as u32), outbox);
    }

    /// A datagram of its own straight to the receiver, in which it is both source and relay's
    /// neighbour: the shortest way has one relay, so a made-up source stands before it.
    fn address(&mut self, what: Type) -> SocketAddr {
        let to = self.surroundings.receiver();
        let source = self.surroundings.nodes[0];
        let source = if source == self.own { self.surroundings.nodes[1] } else { source };
        self.outbox.what = what;
        let route = Route::from_nodes(&[source, self.own, to], 2).expect("a route over one relay");
        self.outbox.packet = Packet::new(OWN, 0, Kind::Data, route);
        self.outbox.body.clear();
        to
    }

    fn greet(&mut self, out: &mut impl Out<Peer>) {
        let key = Some(&self.surroundings.key).filter(|_| self.rng.chance(0.5));
        let hello = Hello::new(key, None);
        let number = self.greeted;
        self.greeted = number.wrapping_add(1);
        let proof = self.say_hello(number, &hello, [0; COOKIE], out);
        self.greetings.push_front(Greeting { number, proof, hello, has_cookie: false });
        self.greetings.truncate(GREETINGS);
    }

    /// The proof that it has said.
    fn say_hello(&mut self, number: u32, hello: &Hello, cookie: Cookie, out: &mut impl Out<Peer>) -> u64 {
        let to = self.address(Type::Hello);
        self.outbox.packet.id.generation = number;
        let proof = self.rng.bits();
        HelloBody { cookie, proof, opening: hello.opening() }.encode(&mut self.outbox.body);
        out.send(Departure::now(to, self.outbox.len() as u32), &self.outbox);
        proof
    }

    /// The receiver has answered: at once or after its cookie a session, in which anything may be said.
    fn on_reply(&mut self, datagram: &OwnedDatagram, out: &mut impl Out<Peer>) {
        // Others find its name for what it sends, and may use it.
        let Some(reply) = HelloReply::decode(&datagram.body).filter(|_| datagram.what == Type::HelloReply) else {
            return;
        };
        match reply {
            HelloReply::Cookie { proof, cookie } => {
                let is_it = |greeting: &Greeting| greeting.proof == proof && !greeting.has_cookie;
                let Some(place) = self.greetings.iter().position(is_it) else { return };
                let Some(greeting) = self.greetings.get(place) else { return };
                let (number, hello) = (greeting.number, greeting.hello.clone());
                let proof = self.say_hello(number, &hello, cookie, out);
                self.greetings[place] = Greeting { number, proof, hello, has_cookie: true };
            }
            HelloReply::Answer { answer, .. } => {
                let number = datagram.packet.id.generation;
                let Some(place) = self.greetings.iter().position(|greeting| greeting.number == number) else { return };
                let Ok(session) = self.greetings[place].hello.complete(answer) else { return };
                self.greetings.remove(place);
                self.speak(session, out);
            }
        }
    }

    fn speak(&mut self, mut session: Session, out: &mut impl Out<Peer>) {
        let length = [0, 1000, 1 << 40][self.rng.below(3)];
        let hash = *blake3::hash(&[]).as_bytes();
        let offer = Offer { name: FileName::sanitised("stranger"), length, block: 100, hash };
        let mut message = Vec::new();
        for _ in 0..1 + self.rng.below(3) {
            let says = match self.rng.below(6) {
                0 => Message::Filler,
                1 => Message::Finish,
                2 => Message::Block { index: self.rng.bits() as u32 % 12, bytes: &[7; 100] },
                3 => Message::Close,
                _ => Message::Offer(offer.clone()),
            };
            says.encode(self.rng.bits(), &mut message);
            let to = self.address(Type::Data);
            session.seal_data(&message, &mut self.outbox.body);
            out.send(Departure::now(to, self.outbox.len() as u32), &self.outbox);
        }
    }

    pub(super) fn timer(&self) -> Time {
        self.next
    }
}

/// Claims about its way that no packet's way would make.
fn lies(rng: &mut Rng) -> Telemetry {
    let mut stamps = [Stamp::NONE; MAX_RELAYS];
    stamps.fill_with(|| Stamp::from_bits(rng.bits() as u32));
    Telemetry { round_trip_us: rng.bits() as u32, arrived_us: rng.bits() as u32, stamps }
}

#[cfg(test)]
mod tests {
    use anabranch_control::units::Rate;
    use anabranch_proto::limiter::LimitModel;
    use anabranch_proto::overlay::relay_node::RelayNode;
    use anabranch_proto::seal::Identity;
    use anabranch_proto::transfer::{FileJob, Limits, Receiver};

    use super::*;

    /// What leaves in one call.
    #[derive(Default)]
    struct Left(Vec<OwnedDatagram>);

    impl Out<Peer> for Left {
        fn send(&mut self, _: Departure<SocketAddr>, message: &OwnedDatagram) {
            self.0.push(message.clone());
        }

        fn event(&mut self, event: core::convert::Infallible) {
            match event {}
        }

        fn job(&mut self, _: FileJob) {}
    }

    /// A round trip is four intervals, and each datagram comes twice.
    #[test]
    fn a_greeting_is_two_hellos_however_often_and_late_answers_come() {
        const INTERVAL: Duration = Duration::from_millis(25);
        const GREETED: usize = 60;
        let node = |last: u8| SocketAddr::from(([10, 0, 0, last], 4000));
        let identity = Identity::generate();
        let surroundings = Surroundings { nodes: (1..=4).map(node).collect(), key: identity.public() };
        let limits =
            Limits { greetings_per_second: u32::MAX, greetings_per_second_of_one: u32::MAX, ..Limits::default() };
        let receiver = Receiver::new(identity, limits);
        let mut receiver = Peer::new(RelayNode::end(), Some(receiver), None);
        let relay = RelayNode::new(LimitModel::Window { phase: Duration::ZERO }, Rate::from_bytes_per_sec(1_000_000));
        let relay = Peer::new(relay, None, None);
        let rng = Rng::stream(1, "liar");
        let mut liar = Liar::new(Time::ZERO, relay, node(1), (Lie::Greets, INTERVAL), surroundings, rng);
        let (mut hellos, mut said, mut now) = (0, 0, Time::ZERO);
        // What comes at the next interval and those after it: to the receiver, and to the liar.
        let mut on_their_way: VecDeque<[Vec<OwnedDatagram>; 2]> = (0..4).map(|_| Default::default()).collect();
        for _ in 0..GREETED {
            now += INTERVAL;
            let [to_receiver, to_liar] = on_their_way.pop_front().expect("there are four");
            let (mut by_liar, mut by_receiver) = (Left::default(), Left::default());
            for mut datagram in to_receiver {
                receiver.on_message(now, Arrival::new(node(1)), &mut datagram, &mut by_receiver);
            }
            for mut datagram in to_liar {
                liar.on_message(now, Arrival::new(node(3)), &mut datagram, &mut by_liar);
            }
            liar.on_timer(now, &mut by_liar);
            hellos += by_liar.0.iter().filter(|datagram| datagram.what == Type::Hello).count();
            assert!(hellos <= 2 * GREETED, "{hellos} hellos at {now}");
            said += by_liar.0.iter().filter(|datagram| datagram.what == Type::Data).count();
            let twice = |left: Left| left.0.iter().flat_map(|datagram| [datagram.clone(), datagram.clone()]).collect();
            on_their_way[1][0] = twice(by_liar);
            on_their_way.push_back([Vec::new(), Vec::new()]);
            on_their_way[1][1] = twice(by_receiver);
        }
        assert!(hellos >= GREETED, "{hellos} hellos of {GREETED} greetings");
        assert!(said > GREETED / 4, "sessions begin all the same: {said} messages");
    }
}
