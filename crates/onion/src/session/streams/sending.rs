//! What leaves: which frames fill a cell, and what becomes of a cell's.

use super::super::cell::{DATA_HEADER, Frame, StreamId};
use super::super::limits::{SESSION_WINDOW, STREAM_BUFFER};
use super::super::sender::Carried;
use super::stream::{Kind, Stream};
use super::{Streams, most_buffered};

impl Streams {
    /// Whether there is something to send.
    pub fn has_work(&self) -> bool {
        !self.control.is_empty() || !self.flows.departing.is_empty() || self.has_bytes()
    }

    fn has_bytes(&self) -> bool {
        self.streams.values().any(|stream| stream.has_data(self.allowed - self.sent))
    }

    /// The next small frame that must leave, if it fits `room`, appended to `out`.
    pub fn next_control(&mut self, room: usize, out: &mut Vec<u8>) -> Option<Carried> {
        loop {
            let carried = *self.control.front()?;
            let Some(frame) = self.frame(&carried) else {
                self.control.pop_front();
                continue;
            };
            let start = out.len();
            frame.encode(out);
            if out.len() - start > room {
                out.truncate(start);
                return None;
            }
            self.control.pop_front();
            match carried {
                Carried::Credit(id) => {
                    if let Some(stream) = self.streams.get_mut(&id) {
                        stream.incoming.on_credit_sent();
                    }
                }
                Carried::SessionCredit => self.granted = self.consumed + SESSION_WINDOW,
                _ => {}
            }
            return Some(carried);
        }
    }

    /// What says `carried` now; nothing if it needs no saying any more.
    pub(super) fn frame(&self, carried: &Carried) -> Option<Frame<'static>> {
        let stream = |id| self.streams.get(&id);
        Some(match *carried {
            Carried::Open(id) => {
                let stream = stream(id).filter(|stream| stream.reset.is_none())?;
                let target = stream.target.clone()?;
                match stream.kind? {
                    Kind::Bytes => Frame::Open { stream: id, target },
                    Kind::Datagrams => Frame::OpenFlow { stream: id, target },
                }
            }
            Carried::Accepted(id) => stream(id).map(|_| Frame::Accepted { stream: id })?,
            Carried::Reset(id) => {
                let stream = stream(id)?;
                Frame::Reset { stream: id, reason: stream.reset?, end: stream.outgoing.sent() }
            }
            Carried::Credit(id) => {
                let limit = stream(id).filter(|stream| stream.reset.is_none())?.incoming.next_limit();
                Frame::Credit { stream: id, limit }
            }
            Carried::SessionCredit => Frame::SessionCredit { limit: self.consumed + SESSION_WINDOW },
            Carried::Data { .. } | Carried::Datagram(_) | Carried::Pace | Carried::Void | Carried::Blocks { .. } => {
                return None;
            }
        })
    }

    /// Fills a cell, in which `room` bytes are left of the `whole` that an empty one has: with datagrams and with bytes
    /// of streams, which of them first in turns, so that each has half where both have much.
    pub fn fill(&mut self, room: usize, whole: usize, out: &mut Vec<u8>, carried: &mut Vec<Carried>) {
        let end = out.len() + room;
        self.cell += 1;
        if !self.flows.departing.is_empty() {
            self.datagrams_first = !self.datagrams_first || !self.has_bytes();
        }
        if self.datagrams_first {
            self.fill_with_datagrams(end, whole, out, carried);
        }
        while let Some(room) = (end - out.len()).checked_sub(DATA_HEADER + 1) {
            let Some(data) = self.next_data(room + 1) else { break };
            if let Carried::Data { stream, start, end, is_end } = data {
                self.append_data(stream, start, end, is_end, out);
            }
            carried.push(data);
        }
        if !self.datagrams_first {
            self.fill_with_datagrams(end, whole, out, carried);
        }
    }

    fn fill_with_datagrams(&mut self, end: usize, whole: usize, out: &mut Vec<u8>, carried: &mut Vec<Carried>) {
        while let Some(piece) = self.flows.departing.next(end - out.len(), whole, out) {
            carried.push(piece);
        }
    }

    /// The next bytes that shall leave, up to `room` of them, in turns.
    pub(super) fn next_data(&mut self, room: usize) -> Option<Carried> {
        let left = self.allowed - self.sent;
        let ready = |(id, stream): (&StreamId, &Stream)| stream.has_data(left).then_some(*id);
        let after = self.streams.range(self.turn..).find_map(ready);
        let id = after.or_else(|| self.streams.range(..self.turn).find_map(ready))?;
        self.turn = StreamId(id.0.wrapping_add(1));
        let stream = self.streams.get_mut(&id)?;
        let piece = stream.outgoing.take(room, left, self.cell)?;
        self.sent += piece.fresh;
        Some(Carried::Data { stream: id, start: piece.start, end: piece.end, is_end: piece.is_end })
    }

    /// Appends a frame with bytes of a stream.
    fn append_data(&self, id: StreamId, start: u64, end: u64, is_end: bool, out: &mut Vec<u8>) {
        if let Some(stream) = self.streams.get(&id) {
            Frame::Data { stream: id, offset: start, is_end, bytes: &[] }.encode(out);
            let length = out.len() - 2;
            let said = u16::from_be_bytes([out[length], out[length + 1]]) | (end - start) as u16;
            out[length..].copy_from_slice(&said.to_be_bytes());
            stream.outgoing.append(start, end, out);
        }
    }

    /// What a cell carried has come.
    pub fn on_delivered(&mut self, carried: &Carried) {
        match *carried {
            Carried::Data { stream: id, start, end, is_end } => {
                let Some(stream) = self.streams.get_mut(&id).filter(|stream| stream.reset.is_none()) else { return };
                self.buffered -= stream.outgoing.on_delivered(start, end, is_end);
                let most = most_buffered(self.buffered);
                if stream.is_blocked && stream.outgoing.buffered() < most {
                    stream.is_blocked = false;
                    self.writable.insert(id);
                }
                // Where all are kept short, what one no longer holds is room for others.
                if most < STREAM_BUFFER {
                    self.wake_writers();
                }
                self.retire_if_over(id);
            }
            Carried::Reset(id) => {
                if let Some(stream) = self.streams.get_mut(&id) {
                    stream.reset_came = true;
                    self.retire_if_over(id);
                }
            }
            _ => {}
        }
    }

    /// What a cell carried is lost: it must leave again.
    pub fn on_lost(&mut self, carried: &Carried) {
        match *carried {
            Carried::Data { stream: id, start, end, is_end } => {
                if let Some(stream) = self.streams.get_mut(&id).filter(|stream| stream.reset.is_none()) {
                    stream.outgoing.on_lost(start, end, is_end);
                }
            }
            Carried::Datagram(_) | Carried::Pace | Carried::Void | Carried::Blocks { .. } => {}
            other => self.push(other),
        }
    }
}
