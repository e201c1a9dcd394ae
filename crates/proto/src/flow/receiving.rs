//! A receiving end of a flow as a machine: it takes the connections of one sender, one after the
//! other, and answers.

use core::convert::Infallible;
use core::fmt::Debug;

use anabranch_control::time::Time;

use super::message::{FlowBody, FlowEvent, FlowMessage, WireSizes};
use super::wire::{Handshake, Nonce};
use super::{AckPolicy, Data, FlowReceiver};
use crate::machine::{Arrival, Departure, Machine, Out};

/// A receiving end of a flow.
#[derive(Clone, Debug)]
pub struct ReceivingEnd<A> {
    sizes: WireSizes,
    policy: AckPolicy,
    sender: A,
    /// Which of its sender's receivers it is.
    number: u16,
    /// The newest connection that it has heard of.
    connection: u32,
    /// What its connection's first packet said, or zeros if data came first.
    nonce: Option<Nonce>,
    receiver: FlowReceiver,
    /// Messages that no honest sender gives.
    untrue: u64,
}

impl<A: Copy + Eq + Debug> ReceivingEnd<A> {
    /// Receiver `number` of the flow from `sender`.
    pub fn new(sizes: WireSizes, policy: AckPolicy, sender: A, number: u16) -> ReceivingEnd<A> {
        let receiver = FlowReceiver::new(policy);
        ReceivingEnd { sizes, policy, sender, number, connection: 0, nonce: None, receiver, untrue: 0 }
    }

    /// The same, whose first connection has the number `connection`.
    pub fn numbered(self, connection: u32) -> ReceivingEnd<A> {
        ReceivingEnd { connection, ..self }
    }

    /// What it has received of the newest connection.
    pub fn receiver(&self) -> &FlowReceiver {
        &self.receiver
    }

    /// The newest connection that it has heard of.
    pub fn connection(&self) -> u32 {
        self.connection
    }

    /// Which of its sender's receivers it is.
    pub fn number(&self) -> u16 {
        self.number
    }

    /// Messages that no honest sender gives.
    pub fn untrue(&self) -> u64 {
        self.untrue
    }

    /// Whether `nonce` is the one of its connection's first packet; any is before data has come.
    pub fn accepts(&mut self, nonce: Nonce) -> bool {
        *self.nonce.get_or_insert(nonce) == nonce
    }

    /// Takes a message and answers it, if an answer is due.
    #[inline]
    pub fn hear<M>(&mut self, now: Time, arrival: Arrival<A>, message: &FlowMessage, out: &mut impl Out<M>)
    where
        M: Machine<Address = A, Message = FlowMessage, Event: From<FlowEvent>>,
    {
        if self.take(now, arrival, message, out) {
            self.answer(now, out);
        }
    }

    /// Takes a message; whether data has come, which [`ReceivingEnd::answer`] answers: after each
    /// packet, or after all that came together (RFC 9000, 13.2.2).
    #[inline]
    pub fn take<M>(&mut self, now: Time, arrival: Arrival<A>, message: &FlowMessage, out: &mut impl Out<M>) -> bool
    where
        M: Machine<Address = A, Message = FlowMessage, Event: From<FlowEvent>>,
    {
        if arrival.from != self.sender || message.receiver != self.number {
            return false;
        }
        match &message.body {
            FlowBody::Data(data) => self.on_data(now, message.connection, data, arrival.marked, out),
            FlowBody::Syn(handshake) => {
                self.on_syn(message, handshake, out);
                false
            }
            FlowBody::Ack(_) | FlowBody::SynAck(_) | FlowBody::Datagram => false,
        }
    }

    fn on_syn<M>(&mut self, message: &FlowMessage, handshake: &Handshake, out: &mut impl Out<M>)
    where
        M: Machine<Address = A, Message = FlowMessage>,
    {
        self.begin(message.connection);
        if message.connection != self.connection {
            return;
        }
        if self.accepts(handshake.nonce) {
            let answer = FlowMessage { body: FlowBody::SynAck(*handshake), ..*message };
            out.send(Departure::now(self.sender, self.sizes.control), &answer);
        } else {
            self.untrue += 1;
        }
    }

    /// A connection that it has not heard of ends the one before.
    #[inline]
    fn begin(&mut self, connection: u32) {
        if connection > self.connection {
            self.connection = connection;
            self.nonce = None;
            self.receiver = FlowReceiver::new(self.policy);
        }
    }

    #[inline]
    fn on_data<M>(&mut self, now: Time, connection: u32, data: &Data, marked: bool, out: &mut impl Out<M>) -> bool
    where
        M: Machine<Address = A, Message = FlowMessage, Event: From<FlowEvent>>,
    {
        let bytes = data.length;
        if connection != self.connection {
            if connection < self.connection {
                out.event(FlowEvent::Stale { bytes }.into());
                return false;
            }
            self.begin(connection);
        }
        // Whoever needs no handshake has no secret to tell.
        self.nonce.get_or_insert_default();
        let received = self.receiver.on_data(now, data, marked);
        let (new_bytes, completed) = (received.new_bytes, received.completed);
        out.event(FlowEvent::Received { connection, bytes, new_bytes, completed }.into());
        true
    }

    /// Sends the ACK that is due, if one is.
    #[inline(always)]
    pub fn answer<M>(&mut self, now: Time, out: &mut impl Out<M>)
    where
        M: Machine<Address = A, Message = FlowMessage>,
    {
        // Half of all packets are not answered at once.
        if self.due() <= now {
            self.acknowledge(now, out);
        }
    }

    fn acknowledge<M>(&mut self, now: Time, out: &mut impl Out<M>)
    where
        M: Machine<Address = A, Message = FlowMessage>,
    {
        if let Some(ack) = self.receiver.poll_ack(now) {
            let message = FlowMessage {
                connection: self.connection,
                receiver: self.number,
                ack_number: (self.receiver.acks_sent() - 1) as u16,
                body: FlowBody::Ack(ack),
            };
            out.send(Departure::now(self.sender, self.sizes.control), &message);
        }
    }

    /// When to call [`ReceivingEnd::answer`].
    #[inline]
    pub fn due(&self) -> Time {
        self.receiver.timer().unwrap_or(Time::MAX)
    }
}

impl<A: Copy + Eq + Debug> Machine for ReceivingEnd<A> {
    type Address = A;
    type Message = FlowMessage;
    type Event = FlowEvent;
    type Job = Infallible;
    type Done = Infallible;

    fn on_message(&mut self, now: Time, arrival: Arrival<A>, message: &mut FlowMessage, out: &mut impl Out<Self>) {
        self.hear(now, arrival, message, out);
    }

    fn on_timer(&mut self, now: Time, out: &mut impl Out<Self>) {
        self.answer(now, out);
    }

    fn on_done(&mut self, _: Time, done: Infallible, _: &mut impl Out<Self>) {
        match done {}
    }

    fn timer(&self, _: Time) -> Time {
        self.due()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::wire::Handshake;

    const SIZES: WireSizes = WireSizes { header: 40, control: 40 };
    const SENDER: u32 = 5;

    #[derive(Default)]
    struct Seen {
        left: Vec<FlowMessage>,
        events: Vec<FlowEvent>,
    }

    impl Out<ReceivingEnd<u32>> for Seen {
        fn send(&mut self, departure: Departure<u32>, message: &FlowMessage) {
            assert_eq!((departure.to, message.receiver), (SENDER, 2));
            self.left.push(*message);
        }

        fn event(&mut self, event: FlowEvent) {
            self.events.push(event);
        }

        fn job(&mut self, job: Infallible) {
            match job {}
        }
    }

    fn packet(connection: u32, number: u64) -> FlowMessage {
        let data = Data { number, offset: number * 100, length: 100, ..Data::default() };
        FlowMessage { connection, receiver: 2, ack_number: 0, body: FlowBody::Data(data) }
    }

    fn hear(end: &mut ReceivingEnd<u32>, from: u32, message: &FlowMessage, seen: &mut Seen) {
        end.hear(Time::ZERO, Arrival::new(from), message, seen);
    }

    #[test]
    fn a_newer_connection_ends_the_one_before_and_stale_data_is_not_answered() {
        let (mut end, mut seen) = (ReceivingEnd::new(SIZES, AckPolicy::default(), SENDER, 2), Seen::default());
        for number in 0..4 {
            hear(&mut end, SENDER, &packet(0, number), &mut seen);
        }
        assert_eq!((end.receiver().contiguous(), seen.left.len()), (400, 2));
        assert_eq!(seen.left[1].ack_number, 1);
        hear(&mut end, SENDER, &packet(1, 0), &mut seen);
        assert_eq!((end.connection(), end.receiver().contiguous()), (1, 100));
        hear(&mut end, SENDER, &packet(0, 4), &mut seen);
        assert_eq!(seen.events.last(), Some(&FlowEvent::Stale { bytes: 100 }));
        assert_eq!((end.receiver().contiguous(), seen.left.len()), (100, 2));
        let late = Handshake { attempt: 1, nonce: [1; 16] };
        hear(&mut end, SENDER, &FlowMessage { body: FlowBody::Syn(late), ..packet(0, 0) }, &mut seen);
        assert_eq!(seen.left.len(), 2, "a late first packet opens no connection again");
        hear(&mut end, SENDER, &FlowMessage { body: FlowBody::Syn(late), ..packet(2, 0) }, &mut seen);
        assert_eq!((end.connection(), seen.left[2].body), (2, FlowBody::SynAck(late)));
    }

    #[test]
    fn a_connection_has_the_secret_of_its_first_packet_and_none_if_data_came_first() {
        let syn = |nonce| FlowMessage { body: FlowBody::Syn(Handshake { attempt: 0, nonce }), ..packet(4, 0) };
        let (mut end, mut seen) =
            (ReceivingEnd::new(SIZES, AckPolicy::default(), SENDER, 2).numbered(4), Seen::default());
        for (nonce, answers, untrue) in [([1; 16], 1, 0), ([2; 16], 1, 1), ([1; 16], 2, 1)] {
            hear(&mut end, SENDER, &syn(nonce), &mut seen);
            assert_eq!((seen.left.len(), end.untrue()), (answers, untrue));
        }
        assert!(end.accepts([1; 16]) && !end.accepts([0; 16]));
        let mut end = ReceivingEnd::new(SIZES, AckPolicy::default(), SENDER, 2).numbered(4);
        hear(&mut end, SENDER, &packet(4, 0), &mut seen);
        hear(&mut end, SENDER, &syn([1; 16]), &mut seen);
        assert_eq!((seen.left.len(), end.untrue(), end.accepts([0; 16])), (2, 1, true));
    }

    #[test]
    fn packets_that_came_together_may_be_answered_together() {
        let (mut end, mut seen) = (ReceivingEnd::new(SIZES, AckPolicy::default(), SENDER, 2), Seen::default());
        let arrival = Arrival::new(SENDER);
        for number in 0..6 {
            assert!(end.take(Time::ZERO, arrival, &packet(0, number), &mut seen));
        }
        assert_eq!(seen.left.len(), 0);
        end.answer(Time::ZERO, &mut seen);
        let [FlowMessage { body: FlowBody::Ack(ack), .. }] = &seen.left[..] else { panic!("{:?}", seen.left) };
        assert!(ack.ranges.iter().eq([(0, 5)]));
    }

    #[test]
    fn what_strangers_or_other_receivers_are_sent_is_not_heard() {
        let (mut end, mut seen) = (ReceivingEnd::new(SIZES, AckPolicy::default(), SENDER, 2), Seen::default());
        hear(&mut end, SENDER + 1, &packet(0, 0), &mut seen);
        hear(&mut end, SENDER, &FlowMessage { receiver: 1, ..packet(0, 0) }, &mut seen);
        assert_eq!((end.receiver().contiguous(), seen.events.len(), seen.left.len()), (0, 0, 0));
    }
}
