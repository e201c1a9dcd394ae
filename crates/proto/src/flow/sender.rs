//! The sending side of a flow: the stream that is handed over, in pieces, under a shared window.

use std::collections::VecDeque;

use anabranch_control::flow::{Bounds, FlowController, Limits, LossCause, PeerId};
use anabranch_control::rng::Rng;
use anabranch_control::time::{Duration, Time};
use anabranch_control::units::Bytes;

use super::answer::{AckError, Piece};
use super::config::SenderConfig;
use super::shared_window::{CatchUp, Fault, Metrics, SharedWindow};
use super::{Ack, Data};

/// A packet to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// To whom.
    pub to: PeerId,
    /// What.
    pub data: Data,
    /// Whether a queue may mark it in place of dropping it.
    pub ecn_capable: bool,
}

/// Data that the application has handed over.
#[derive(Clone, Copy, Debug)]
struct Write {
    to: PeerId,
    left: u64,
    last: bool,
}

/// Whence the next packet's data is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    /// Lost data of a receiver.
    Again,
    /// New data.
    Write,
}

/// Sends data to receivers.
#[derive(Clone, Debug)]
pub struct FlowSender {
    window: SharedWindow,
    /// What is sent now, if there is anything; mostly it is all.
    write: Option<Write>,
    /// What was handed over behind it.
    later: VecDeque<Write>,
    /// Whether the last of several packets that leave together is pushed.
    pushes: bool,
    /// When the last packet with new data left, and how many left then.
    together: (Time, u32),
    /// Probes that carried a copy of data in flight.
    copied: u64,
}

impl FlowSender {
    /// Sends under `controller`, which draws from `rng`, to `receivers` receivers.
    pub fn new(config: SenderConfig, controller: Box<dyn FlowController>, receivers: usize, rng: Rng) -> FlowSender {
        let window = SharedWindow::new(config, controller, receivers, rng);
        FlowSender { window, write: None, later: VecDeque::new(), pushes: false, together: (Time::ZERO, 0), copied: 0 }
    }

    /// Hands over `bytes` for `to`, behind all that was handed over before; `last` if the
    /// stream to `to` ends with them.
    pub fn write(&mut self, to: PeerId, bytes: u64, last: bool) {
        let write = Write { to, left: bytes, last };
        match self.write {
            None => self.write = Some(write),
            Some(_) => self.later.push_back(write),
        }
    }

    /// Learns the round trip to `to` before any data: from a handshake.
    pub fn on_handshake(&mut self, to: PeerId, rtt: Duration) {
        self.window.on_handshake(to, rtt);
    }

    /// Takes back what was handed over and has not left yet.
    pub fn take_back(&mut self) {
        self.write = None;
        self.later.clear();
    }

    /// Bounds that hold for the controller's window from now on.
    pub fn set_bounds(&mut self, bounds: Bounds) {
        self.window.set_bounds(bounds);
    }

    /// A driver that can't wake at each packet's instant makes up for what it missed, up to
    /// this, so that its lateness doesn't become a lower rate. None is made up for at first.
    pub fn set_catch_up(&mut self, catch_up: CatchUp) {
        self.window.set_catch_up(catch_up);
    }

    /// From now on the last of several packets with new data that leave at an instant is pushed: its
    /// receiver answers it at once, and does not wait for another one behind it. Linux's TCP does so
    /// with what it hands to its segmentation offload (`__tcp_transmit_skb`, net/ipv4/tcp_output.c).
    pub fn push_bursts(&mut self) {
        self.pushes = true;
    }

    /// Whether `piece`, which has just left for `to`, is the last of several with new data that leave
    /// now.
    #[cold]
    fn ends_burst(&mut self, now: Time, to: PeerId, piece: Piece) -> bool {
        if piece.offset + u64::from(piece.length) < self.window.space(to).offset {
            // It was sent before.
            return false;
        }
        let (at, before) = self.together;
        let together = if at == now { before + 1 } else { 1 };
        self.together = (now, together);
        let follows = match self.waiting() {
            Some((next, size, Source::Write)) => next == to && self.window.admits(now, to, size),
            Some((_, _, Source::Again)) | None => false,
        };
        together > 1 && !follows
    }

    /// The next packet that may leave now.
    #[inline(always)]
    pub fn poll(&mut self, now: Time) -> Option<Transmit> {
        let (to, piece) = self.choose(now)?;
        let Piece { offset, length, fin } = piece;
        let (number, ecn_capable) = self.window.send(now, to, piece, Bytes::new(u64::from(length)));
        let push = self.pushes && self.ends_burst(now, to, piece);
        Some(Transmit { to, data: Data { number, offset, length, fin, push }, ecn_capable })
    }

    /// What may leave now, and to whom.
    #[inline(always)]
    fn choose(&mut self, now: Time) -> Option<(PeerId, Piece)> {
        if let Some(to) = self.window.take_probe()
            && let Some(piece) = self.probe(to)
        {
            return Some((to, piece));
        }
        let (to, size, source) = self.upcoming()?;
        self.window.admits(now, to, size).then(|| (to, self.take(to, source)))
    }

    /// To whom the next data goes, how much, and whence it is; notes when there is none.
    #[inline(always)]
    fn upcoming(&mut self) -> Option<(PeerId, Bytes, Source)> {
        self.waiting().or_else(|| self.find_seldom())
    }

    /// The same of what was handed over or lost.
    #[inline(always)]
    fn waiting(&self) -> Option<(PeerId, Bytes, Source)> {
        for (receiver, space) in self.window.spaces().iter().enumerate() {
            if let Some(piece) = space.again.front() {
                return Some((PeerId(receiver as u32), Bytes::new(u64::from(piece.length)), Source::Again));
            }
        }
        let write = self.write.as_ref()?;
        Some((write.to, self.window.config().packet.min(Bytes::new(write.left)), Source::Write))
    }

    /// What TCP's recovery sends where there is no new data.
    #[cold]
    fn find_seldom(&mut self) -> Option<(PeerId, Bytes, Source)> {
        if self.window.config().recovery.is_tcp()
            && let Some((to, size)) = self.window.rescue()
        {
            return Some((to, size, Source::Again));
        }
        self.window.set_app_limited();
        None
    }

    /// Takes what `upcoming` saw.
    #[inline(always)]
    fn take(&mut self, to: PeerId, source: Source) -> Piece {
        let packet = self.window.config().packet.get();
        let space = self.window.space_mut(to);
        if source == Source::Again {
            return space.again.pop_front().expect("lost data waits");
        }
        let write = self.write.as_mut().expect("upcoming saw a write");
        let length = packet.min(write.left);
        if write.left != u64::MAX {
            write.left -= length;
        }
        let (left, last) = (write.left, write.last);
        let offset = space.offset;
        space.offset += length;
        if left == 0 {
            self.write = self.later.pop_front();
        }
        Piece { offset, length: length as u32, fin: last && left == 0 }
    }

    /// What a probe to `to` carries: lost data, new data, or the oldest in flight.
    fn probe(&mut self, to: PeerId) -> Option<Piece> {
        let space = self.window.space_mut(to);
        if !space.again.is_empty() {
            return Some(self.take(to, Source::Again));
        }
        if self.write.as_ref().is_none_or(|write| write.to != to) {
            let copy = space.copy_oldest();
            self.copied += u64::from(copy.is_some());
            return copy;
        }
        Some(self.take(to, Source::Write))
    }

    /// `from` answers.
    ///
    /// # Errors
    ///
    /// When the answer cannot be true; nothing has changed then.
    #[inline]
    pub fn on_ack(&mut self, now: Time, from: PeerId, ack: &Ack) -> Result<(), AckError> {
        self.window.on_ack(now, from, ack, |_| {})
    }

    /// Time has come to `timer`, or later.
    pub fn on_timer(&mut self, now: Time) {
        self.window.on_timer(now);
    }

    /// When `on_timer` must be called, or `poll` once more.
    #[inline(always)]
    pub fn timer(&self) -> Option<Time> {
        self.window.timer()
    }

    /// Why nothing will leave any more, if so.
    #[inline]
    pub fn fault(&self) -> Option<Fault> {
        self.window.fault()
    }

    /// Whether all that was handed over has been acknowledged.
    pub fn is_done(&self) -> bool {
        let is_idle = |space: &super::space::Space| space.again.is_empty() && !space.is_in_flight();
        self.write.is_none() && self.window.spaces().iter().all(is_idle)
    }

    /// Data bytes that wait to be sent for the first time.
    pub fn unsent(&self) -> u64 {
        self.write.iter().chain(&self.later).fold(0, |sum, write| sum.saturating_add(write.left))
    }

    /// Data in flight.
    pub fn in_flight(&self) -> Bytes {
        self.window.in_flight()
    }

    /// What holds now.
    pub fn limits(&self) -> Limits {
        self.window.limits()
    }

    /// The smoothed round-trip time to `to`, once there is a sample.
    pub fn smoothed_rtt(&self, to: PeerId) -> Option<Duration> {
        self.window.smoothed_rtt(to)
    }

    /// The least round-trip time to `to`, once there is a sample.
    pub fn min_rtt(&self, to: PeerId) -> Option<Duration> {
        self.window.min_rtt(to)
    }

    /// The packets that the last ACK or the last call of `on_timer` made the sender declare
    /// lost: to whom each went, its number, and how its loss was found.
    pub fn newly_lost(&self) -> &[(PeerId, u64, LossCause)] {
        self.window.newly_lost()
    }

    /// Where the sender stands towards `to`.
    pub fn metrics(&self, to: PeerId) -> Metrics {
        self.window.metrics(to)
    }

    /// Data in a full packet.
    pub fn packet(&self) -> Bytes {
        self.window.config().packet
    }

    /// How many receivers it serves.
    pub fn receivers(&self) -> usize {
        self.window.spaces().len()
    }

    /// Packets that have left.
    pub fn packets_sent(&self) -> u64 {
        self.window.packets_sent()
    }

    /// Packets declared lost, those that were only late among them.
    pub fn packets_lost(&self) -> u64 {
        self.window.packets_lost()
    }

    /// Probes that carried a copy of data in flight (RFC 9002, 6.2.4): it may come twice, though no packet was declared
    /// lost.
    pub fn packets_copied(&self) -> u64 {
        self.copied
    }

    /// Packets that were acknowledged after they had been declared lost: they were only late.
    pub fn spurious_losses(&self) -> u64 {
        self.window.spurious_losses()
    }

    /// Receivers whose counts of marks could not be true: packets to them may not be marked
    /// any more.
    pub fn ecn_failures(&self) -> u64 {
        self.window.ecn_failures()
    }

    /// Delivered data, all receivers together. What was sent again without need, and came twice, counts twice.
    pub fn delivered(&self) -> Bytes {
        self.window.delivered()
    }

    /// What its controller has to say.
    pub fn note(&self) -> Option<String> {
        self.window.note()
    }

    /// The controller's named values.
    pub fn trace(&self, record: &mut dyn FnMut(&'static str, f64)) {
        self.window.trace(record);
    }
}
