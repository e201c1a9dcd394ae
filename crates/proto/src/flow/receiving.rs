//! A receiving end of a flow as a machine: it takes the connections of one sender, one after the
//! other, and answers.

use core::convert::Infallible;
use core::fmt::Debug;

use anabranch_control::time::Time;

use super::message::{FlowBody, FlowEvent, FlowMessage, WireSizes};
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
    receiver: FlowReceiver,
}

impl<A: Copy + Eq + Debug> ReceivingEnd<A> {
    /// Receiver `number` of the flow from `sender`.
    pub fn new(sizes: WireSizes, policy: AckPolicy, sender: A, number: u16) -> ReceivingEnd<A> {
        ReceivingEnd { sizes, policy, sender, number, connection: 0, receiver: FlowReceiver::new(policy) }
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

    /// Takes a message and answers it, if an answer is due.
    #[inline]
    pub fn hear<M>(&mut self, now: Time, arrival: Arrival<A>, message: &FlowMessage, out: &mut impl Out<M>)
    where
        M: Machine<Address = A, Message = FlowMessage, Event: From<FlowEvent>>,
    {
        if arrival.from != self.sender || message.receiver != self.number {
            return;
        }
        match &message.body {
            FlowBody::Data(data) => self.on_data(now, message.connection, data, arrival.marked, out),
            FlowBody::Syn(handshake) => {
                self.begin(message.connection);
                if message.connection == self.connection {
                    let answer = FlowMessage { body: FlowBody::SynAck(*handshake), ..*message };
                    out.send(Departure::now(self.sender, self.sizes.control), &answer);
                }
            }
            FlowBody::Ack(_) | FlowBody::SynAck(_) | FlowBody::Datagram => {}
        }
    }

    /// A connection that it has not heard of ends the one before.
    #[inline]
    fn begin(&mut self, connection: u32) {
        if connection > self.connection {
            self.connection = connection;
            self.receiver = FlowReceiver::new(self.policy);
        }
    }

    #[inline]
    fn on_data<M>(&mut self, now: Time, connection: u32, data: &Data, marked: bool, out: &mut impl Out<M>)
    where
        M: Machine<Address = A, Message = FlowMessage, Event: From<FlowEvent>>,
    {
        let bytes = data.length;
        if connection != self.connection {
            if connection < self.connection {
                out.event(FlowEvent::Stale { bytes }.into());
                return;
            }
            self.begin(connection);
        }
        let received = self.receiver.on_data(now, data, marked);
        let (new_bytes, completed) = (received.new_bytes, received.completed);
        out.event(FlowEvent::Received { connection, bytes, new_bytes, completed }.into());
        self.answer(now, out);
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
        let data = Data { number, offset: number * 100, length: 100, fin: false };
        FlowMessage { connection, receiver: 2, ack_number: 0, body: FlowBody::Data(data) }
    }

    fn hear(end: &mut ReceivingEnd<u32>, from: u32, message: &FlowMessage, seen: &mut Seen) {
        end.hear(Time::ZERO, Arrival { from, marked: false }, message, seen);
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
    fn what_strangers_or_other_receivers_are_sent_is_not_heard() {
        let (mut end, mut seen) = (ReceivingEnd::new(SIZES, AckPolicy::default(), SENDER, 2), Seen::default());
        hear(&mut end, SENDER + 1, &packet(0, 0), &mut seen);
        hear(&mut end, SENDER, &FlowMessage { receiver: 1, ..packet(0, 0) }, &mut seen);
        assert_eq!((end.receiver().contiguous(), seen.events.len(), seen.left.len()), (0, 0, 0));
    }
}
