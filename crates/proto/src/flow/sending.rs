//! The sending end of a flow as a machine: its connections, one after the other, each perhaps with
//! a handshake first.

use core::convert::Infallible;
use core::fmt::Debug;

use anabranch_control::flow::{Bounds, PeerId};
use anabranch_control::time::{Duration, Time};

use super::message::{FlowBody, FlowEvent, FlowMessage, WireSizes};
use super::wire::{Handshake, Nonce};
use super::{FlowSender, Transmit};
use crate::machine::{Arrival, Departure, Machine, Out};

/// The first wait for the answer to a connection's first packet (RFC 6298, 2.1).
pub const HANDSHAKE_TIMEOUT: Duration = Duration::SECOND;

/// A receiver as its sender knows it.
#[derive(Clone, Debug)]
struct Remote<A> {
    address: A,
    /// A first packet that waits for its answer.
    unanswered: Option<Syn>,
}

/// A connection's first packet.
#[derive(Clone, Copy, Debug)]
struct Syn {
    attempt: u8,
    sent: Time,
    wait: Duration,
}

/// The sending end of a flow.
#[derive(Clone, Debug)]
pub struct SendingEnd<A> {
    sizes: WireSizes,
    /// The number of the present connection, or else of the next.
    connection: u32,
    /// What answers to the first packet must repeat.
    nonce: Nonce,
    sender: Option<FlowSender>,
    remotes: Vec<Remote<A>>,
    /// Receivers that have not answered the first packet yet.
    unanswered: usize,
    /// Data may leave from the next call of `on_due` on, which is due at once.
    is_fresh: bool,
    /// Answers that no honest receiver gives.
    untrue: u64,
}

/// What a message meant to a sending end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// Nothing that concerns it.
    Nothing,
    /// Packets were acknowledged: more may leave.
    Acked,
    /// The last receiver has answered the connection's first packet.
    Established,
}

impl<A: Copy + Eq + Debug> SendingEnd<A> {
    /// Without a connection yet, to the receivers at `receivers`.
    pub fn new(sizes: WireSizes, receivers: impl IntoIterator<Item = A>) -> SendingEnd<A> {
        let remote = |address| Remote { address, unanswered: None };
        SendingEnd {
            sizes,
            connection: 0,
            nonce: Nonce::default(),
            sender: None,
            remotes: receivers.into_iter().map(remote).collect(),
            unanswered: 0,
            is_fresh: false,
            untrue: 0,
        }
    }

    /// The same, whose next connection has the number `connection`, and whose handshakes have the
    /// secret `nonce`, so that nobody can answer who has not seen the first packet.
    pub fn numbered(self, connection: u32, nonce: Nonce) -> SendingEnd<A> {
        SendingEnd { connection, nonce, ..self }
    }

    /// Opens a connection of `sender`, which serves all receivers; with a handshake, the first
    /// packet is due at once, and data leaves when each receiver has answered it. An earlier
    /// connection must be closed.
    ///
    /// # Panics
    ///
    /// When `sender` serves another number of receivers, or a connection is open.
    pub fn open(&mut self, now: Time, sender: FlowSender, handshake: bool) {
        assert!(self.sender.is_none(), "one connection at a time");
        assert_eq!(sender.receivers(), self.remotes.len(), "a sender serves every receiver");
        self.sender = Some(sender);
        self.is_fresh = false;
        if handshake {
            let syn = Syn { attempt: 0, sent: now, wait: Duration::ZERO };
            self.remotes.iter_mut().for_each(|remote| remote.unanswered = Some(syn));
            self.unanswered = self.remotes.len();
        }
    }

    /// Ends the connection; what is on its way is not waited for. Its sender, if one was open.
    pub fn close(&mut self) -> Option<FlowSender> {
        let sender = self.sender.take()?;
        self.connection = self.connection.wrapping_add(1);
        self.unanswered = 0;
        Some(sender)
    }

    /// The number of the present connection, or else of the next.
    pub fn connection(&self) -> u32 {
        self.connection
    }

    /// The present connection's sender.
    pub fn sender(&self) -> Option<&FlowSender> {
        self.sender.as_ref()
    }

    /// The present connection's sender, to hand over data.
    pub fn sender_mut(&mut self) -> Option<&mut FlowSender> {
        self.sender.as_mut()
    }

    /// Whether a first packet waits for its answer.
    pub fn is_shaking_hands(&self) -> bool {
        self.unanswered > 0
    }

    /// Bounds that hold for the present connection's window from now on.
    pub fn set_bounds(&mut self, bounds: Bounds) {
        if let Some(sender) = &mut self.sender {
            sender.set_bounds(bounds);
        }
    }

    /// Answers that no honest receiver gives.
    pub fn untrue(&self) -> u64 {
        self.untrue
    }

    /// Learns from a message; what may leave then leaves with [`SendingEnd::pump`], unless the
    /// connection was just established.
    #[inline]
    pub fn hear<M>(&mut self, now: Time, from: A, message: &FlowMessage, out: &mut impl Out<M>) -> Heard
    where
        M: Machine<Address = A, Message = FlowMessage, Event: From<FlowEvent>>,
    {
        let Some(sender) = self.sender.as_mut().filter(|_| message.connection == self.connection) else {
            return Heard::Nothing;
        };
        let Some(remote) = self.remotes.get_mut(usize::from(message.receiver)) else { return Heard::Nothing };
        if remote.address != from {
            return Heard::Nothing;
        }
        let peer = PeerId(u32::from(message.receiver));
        match &message.body {
            FlowBody::Ack(ack) => {
                if sender.on_ack(now, peer, ack).is_err() {
                    self.untrue += 1;
                    return Heard::Nothing;
                }
                report_losses(sender, out);
                Heard::Acked
            }
            FlowBody::SynAck(handshake) if handshake.nonce == self.nonce => {
                let Some(syn) = remote.unanswered.take() else { return Heard::Nothing };
                // An answer to an earlier attempt is one too, but says nothing of the round trip.
                if handshake.attempt == syn.attempt {
                    sender.on_handshake(peer, now.since(syn.sent));
                }
                self.unanswered -= 1;
                if self.unanswered > 0 {
                    return Heard::Nothing;
                }
                self.is_fresh = true;
                out.event(FlowEvent::Established.into());
                Heard::Established
            }
            FlowBody::SynAck(_) => {
                self.untrue += 1;
                Heard::Nothing
            }
            FlowBody::Data(_) | FlowBody::Syn(_) | FlowBody::Datagram => Heard::Nothing,
        }
    }

    /// The next packet that may leave now, and where it goes.
    #[inline(always)]
    pub fn poll(&mut self, now: Time) -> Option<(Departure<A>, FlowMessage)> {
        self.poll_refilled(now, &mut |_| {})
    }

    /// The same; `refill` is called first for more data.
    #[inline(always)]
    fn poll_refilled(
        &mut self,
        now: Time,
        refill: &mut impl FnMut(&mut FlowSender),
    ) -> Option<(Departure<A>, FlowMessage)> {
        let sender = self.sender.as_mut()?;
        refill(sender);
        // Before the handshake's end the timer is the first packet's, which would not leave again.
        if self.unanswered > 0 || self.is_fresh {
            return None;
        }
        let Transmit { to, data, ecn_capable } = sender.poll(now)?;
        let size = data.length + self.sizes.header;
        let address = self.remotes[to.0 as usize].address;
        let (connection, receiver) = (self.connection, to.0 as u16);
        let message = FlowMessage { connection, receiver, ack_number: 0, body: FlowBody::Data(data) };
        Some((Departure { ecn_capable, ..Departure::now(address, size) }, message))
    }

    /// Sends all that may leave now; `refill` is called before each packet for more data.
    #[inline]
    pub fn pump<M>(&mut self, now: Time, mut refill: impl FnMut(&mut FlowSender), out: &mut impl Out<M>)
    where
        M: Machine<Address = A, Message = FlowMessage, Event: From<FlowEvent>>,
    {
        while let Some((departure, message)) = self.poll_refilled(now, &mut refill) {
            out.send(departure, &message);
        }
        if let Some(fault) = self.sender.as_ref().and_then(FlowSender::fault) {
            out.event(FlowEvent::Stopped(fault).into());
        }
    }

    /// The time of [`SendingEnd::due`] has come, or a later one; what may leave then leaves with
    /// [`SendingEnd::pump`].
    pub fn on_due<M>(&mut self, now: Time, out: &mut impl Out<M>)
    where
        M: Machine<Address = A, Message = FlowMessage, Event: From<FlowEvent>>,
    {
        if self.unanswered > 0 {
            return self.shake_hands(now, out);
        }
        self.is_fresh = false;
        if let Some(sender) = &mut self.sender {
            // What is not due yet is not done.
            sender.on_timer(now);
            report_losses(sender, out);
        }
    }

    /// When to call [`SendingEnd::on_due`].
    #[inline(always)]
    pub fn due(&self, now: Time) -> Time {
        if self.is_fresh {
            return now;
        }
        if self.unanswered > 0 {
            let due = |remote: &Remote<A>| remote.unanswered.map(|syn| syn.sent + syn.wait);
            return self.remotes.iter().filter_map(due).min().unwrap_or(Time::MAX);
        }
        // A probe may be overdue once an ACK has ended the backoff or shortened the round trip: it is due at once
        // (RFC 9002, A.8).
        self.sender.as_ref().and_then(FlowSender::timer).map_or(Time::MAX, |due| due.max(now))
    }

    /// Sends the first packet to each receiver whose answer is overdue; the wait for it doubles.
    fn shake_hands<M>(&mut self, now: Time, out: &mut impl Out<M>)
    where
        M: Machine<Address = A, Message = FlowMessage>,
    {
        for (receiver, remote) in (0..).zip(&mut self.remotes) {
            let Some(syn) = remote.unanswered.as_mut().filter(|syn| syn.sent + syn.wait <= now) else { continue };
            let is_first = syn.wait == Duration::ZERO;
            syn.attempt = if is_first { 0 } else { syn.attempt.wrapping_add(1) };
            syn.wait = if is_first { HANDSHAKE_TIMEOUT } else { syn.wait * 2 };
            syn.sent = now;
            let body = FlowBody::Syn(Handshake { attempt: syn.attempt, nonce: self.nonce });
            let message = FlowMessage { connection: self.connection, receiver, ack_number: 0, body };
            out.send(Departure::now(remote.address, self.sizes.control), &message);
        }
    }
}

/// Reports which packets the sender has just declared lost.
#[inline]
fn report_losses<M>(sender: &FlowSender, out: &mut impl Out<M>)
where
    M: Machine<Event: From<FlowEvent>>,
{
    for &(to, number, cause) in sender.newly_lost() {
        out.event(FlowEvent::Lost { to, number, cause }.into());
    }
}

impl<A: Copy + Eq + Debug> Machine for SendingEnd<A> {
    type Address = A;
    type Message = FlowMessage;
    type Event = FlowEvent;
    type Job = Infallible;
    type Done = Infallible;

    fn on_message(&mut self, now: Time, arrival: Arrival<A>, message: &mut FlowMessage, out: &mut impl Out<Self>) {
        if self.hear(now, arrival.from, message, out) == Heard::Acked {
            self.pump(now, |_| {}, out);
        }
    }

    fn on_timer(&mut self, now: Time, out: &mut impl Out<Self>) {
        self.on_due(now, out);
        self.pump(now, |_| {}, out);
    }

    fn on_done(&mut self, _: Time, done: Infallible, _: &mut impl Out<Self>) {
        match done {}
    }

    fn timer(&self, now: Time) -> Time {
        self.due(now)
    }
}

#[cfg(test)]
mod tests {
    use anabranch_control::flow::registry::{Setup, find};
    use anabranch_control::rng::Rng;
    use anabranch_control::units::Bytes;

    use super::*;
    use crate::flow::{LossRecovery, SenderConfig, TcpOptions};

    const SIZES: WireSizes = WireSizes { header: 40, control: 40 };
    const RECEIVER: u32 = 7;
    const NONCE: Nonce = [9; 16];

    /// What has left, and the events.
    #[derive(Default)]
    struct Seen {
        left: Vec<FlowBody>,
        events: Vec<FlowEvent>,
    }

    impl Out<SendingEnd<u32>> for Seen {
        fn send(&mut self, departure: Departure<u32>, message: &FlowMessage) {
            assert_eq!((departure.to, message.connection), (RECEIVER, 3));
            self.left.push(message.body);
        }

        fn event(&mut self, event: FlowEvent) {
            self.events.push(event);
        }

        fn job(&mut self, job: Infallible) {
            match job {}
        }
    }

    fn sender() -> FlowSender {
        let packet = Bytes::new(1000);
        let controller = find("reno").unwrap().make(&Setup::new(packet, Time::ZERO), &toml::Table::new()).unwrap();
        let (max_ack_delay, recovery) = (Duration::ZERO, LossRecovery::Rack);
        let config =
            SenderConfig { packet, max_ack_delay, paced: false, ecn: false, recovery, tcp: TcpOptions::default() };
        let mut sender = FlowSender::new(config, controller, 1, Rng::stream(1, "test"));
        sender.write(PeerId(0), 1_000_000, true);
        sender
    }

    fn open() -> SendingEnd<u32> {
        let mut end = SendingEnd::new(SIZES, [RECEIVER]).numbered(3, NONCE);
        end.open(Time::ZERO, sender(), true);
        end
    }

    fn at(seconds: u64) -> Time {
        Time::ZERO + Duration::SECOND * seconds
    }

    fn answer(attempt: u8, nonce: Nonce) -> FlowMessage {
        FlowMessage { connection: 3, body: FlowBody::SynAck(Handshake { attempt, nonce }), ..FlowMessage::default() }
    }

    #[test]
    fn a_first_packet_is_repeated_after_doubled_waits() {
        let (mut end, mut seen) = (open(), Seen::default());
        let mut due = Vec::new();
        for _ in 0..4 {
            let now = end.timer(Time::ZERO);
            due.push(now);
            end.on_timer(now, &mut seen);
        }
        assert_eq!(due, [at(0), at(1), at(3), at(7)]);
        let attempts = [0, 1, 2, 3].map(|attempt| FlowBody::Syn(Handshake { attempt, nonce: NONCE }));
        assert_eq!(seen.left, attempts);
    }

    #[test]
    fn data_leaves_with_the_timer_that_is_due_at_once_after_the_answer() {
        let (mut end, mut seen) = (open(), Seen::default());
        end.on_timer(at(0), &mut seen);
        let now = Time::ZERO + Duration::from_millis(80);
        assert_eq!(end.hear(now, RECEIVER, &answer(0, NONCE), &mut seen), Heard::Established);
        assert_eq!(seen.events, [FlowEvent::Established]);
        assert_eq!(end.sender().unwrap().min_rtt(PeerId(0)), Some(Duration::from_millis(80)));
        end.pump(now, |_| {}, &mut seen);
        assert_eq!(seen.left.len(), 1, "whoever steers has not seen it yet");
        assert_eq!(end.timer(now), now);
        end.on_timer(now, &mut seen);
        assert!(matches!(seen.left[1..], [FlowBody::Data(_), FlowBody::Data(_), ..]), "{:?}", seen.left);
        // A second answer tells nothing new.
        assert_eq!(end.hear(now, RECEIVER, &answer(0, NONCE), &mut seen), Heard::Nothing);
        assert_eq!(end.untrue(), 0);
    }

    #[test]
    fn an_answer_to_an_earlier_attempt_opens_but_says_nothing_of_the_round_trip() {
        let (mut end, mut seen) = (open(), Seen::default());
        end.on_timer(at(0), &mut seen);
        end.on_timer(at(1), &mut seen);
        assert_eq!(end.hear(at(2), RECEIVER, &answer(0, NONCE), &mut seen), Heard::Established);
        assert_eq!(end.sender().unwrap().min_rtt(PeerId(0)), None);
    }

    #[test]
    fn what_a_stranger_or_an_earlier_connection_says_opens_nothing() {
        let (mut end, mut seen) = (open(), Seen::default());
        end.on_timer(at(0), &mut seen);
        assert_eq!(end.hear(at(0), RECEIVER + 1, &answer(0, NONCE), &mut seen), Heard::Nothing);
        let earlier = FlowMessage { connection: 2, ..answer(0, NONCE) };
        assert_eq!(end.hear(at(0), RECEIVER, &earlier, &mut seen), Heard::Nothing);
        assert_eq!(end.untrue(), 0);
        assert_eq!(end.hear(at(0), RECEIVER, &answer(0, [0; 16]), &mut seen), Heard::Nothing);
        assert_eq!((end.untrue(), end.is_shaking_hands(), seen.events.len()), (1, true, 0));
    }

    #[test]
    fn a_closed_end_is_silent_until_it_opens_again_under_the_next_number() {
        let (mut end, mut seen) = (open(), Seen::default());
        end.on_timer(at(0), &mut seen);
        assert!(end.close().is_some() && end.close().is_none());
        assert_eq!((end.connection(), end.timer(at(1))), (4, Time::MAX));
        end.on_timer(at(1), &mut seen);
        assert_eq!(end.hear(at(1), RECEIVER, &answer(0, NONCE), &mut seen), Heard::Nothing);
        assert_eq!(seen.left.len(), 1);
    }
}
