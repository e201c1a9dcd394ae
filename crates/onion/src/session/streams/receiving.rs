//! What comes: frames about streams, and what breaks the rules.

use super::super::cell::{Frame, StreamId, Target};
use super::super::limits::{MAX_EARLY, MAX_KNOWN, Violation};
use super::stream::{Kind, Stream};
use super::{StreamEvent, Streams};

impl Streams {
    /// A frame about streams came.
    ///
    /// # Errors
    ///
    /// When the other end breaks the rules.
    pub fn on_frame(&mut self, frame: Frame<'_>) -> Result<(), Violation> {
        match frame {
            Frame::Open { stream: id, target } => self.on_open(id, Kind::Bytes, target)?,
            Frame::OpenFlow { stream: id, target } => self.on_open(id, Kind::Datagrams, target)?,
            Frame::Datagram { stream: id, number, length, offset, bytes } => {
                let Some(stream) = self.known(id)? else { return Ok(()) };
                let (kind, is_dropped) = (stream.kind, stream.reset.is_some() || stream.was_reset);
                if kind == Some(Kind::Bytes) {
                    return Err(Violation::Stream);
                }
                if is_dropped {
                    return Ok(());
                }
                let flow = (id, kind.is_some());
                let whole = self.flows.on_piece(flow, number, length.into(), offset.into(), bytes);
                self.events.extend(whole.map(|bytes| StreamEvent::Datagram(id, bytes)));
            }
            Frame::Accepted { stream: id } => {
                if !self.opens {
                    return Err(Violation::Role);
                }
                if let Some(stream) = self.known(id)?
                    && !stream.is_accepted
                {
                    stream.is_accepted = true;
                    if stream.reset.is_none() {
                        self.events.push_back(StreamEvent::Accepted(id));
                    }
                }
            }
            Frame::Data { stream: id, offset, is_end, bytes } => {
                let Some(stream) = self.known(id)? else { return Ok(()) };
                if stream.kind == Some(Kind::Datagrams) {
                    return Err(Violation::Stream);
                }
                let (is_dropped, is_opened) = (stream.reset.is_some(), stream.is_opened);
                let taken = stream.incoming.on_data(offset, bytes, is_end, is_dropped)?;
                if !self.opens && !is_opened && self.early_memory() > MAX_EARLY {
                    return Err(Violation::Credit);
                }
                self.count(taken.more)?;
                self.consume(taken.dropped);
                if taken.is_readable {
                    self.readable.insert(id);
                }
                self.retire_if_over(id);
            }
            Frame::Reset { stream: id, reason, end } => {
                let Some(stream) = self.known(id)?.filter(|stream| !stream.was_reset) else { return Ok(()) };
                let taken = stream.incoming.on_reset(end)?;
                stream.was_reset = true;
                let is_news = stream.reset.is_none();
                let needs_answer = is_news && !stream.outgoing.is_over();
                self.count(taken.more)?;
                self.consume(taken.dropped);
                if is_news {
                    self.events.push_back(StreamEvent::Reset(id, reason));
                }
                if needs_answer {
                    // What was sent must be said, so that both count the same.
                    self.reset(id, reason);
                }
                self.retire_if_over(id);
            }
            Frame::Credit { stream: id, limit } => {
                if let Some(stream) = self.known(id)? {
                    stream.outgoing.on_credit(limit);
                }
            }
            Frame::SessionCredit { limit } => self.allowed = self.allowed.max(limit),
            _ => {}
        }
        Ok(())
    }

    fn on_open(&mut self, id: StreamId, kind: Kind, target: Target) -> Result<(), Violation> {
        if self.opens {
            return Err(Violation::Role);
        }
        let Some(stream) = self.known(id)? else { return Ok(()) };
        if stream.is_opened {
            return Ok(());
        }
        // What has overtaken this must have been of the same kind.
        let has_bytes = !stream.was_reset && stream.incoming.has_come();
        if kind == Kind::Datagrams && has_bytes {
            return Err(Violation::Stream);
        }
        (stream.is_opened, stream.kind) = (true, Some(kind));
        if stream.reset.is_some() {
            return Ok(());
        }
        let early = self.flows.take_early(id);
        match kind {
            Kind::Bytes if !early.is_empty() => return Err(Violation::Stream),
            Kind::Bytes => self.events.push_back(StreamEvent::Opened(id, target)),
            Kind::Datagrams => {
                self.events.push_back(StreamEvent::FlowOpened(id, target));
                self.events.extend(early.into_iter().map(|bytes| StreamEvent::Datagram(id, bytes)));
            }
        }
        Ok(())
    }

    /// Bytes of memory of streams that are not opened yet.
    fn early_memory(&self) -> usize {
        let early = self.streams.values().filter(|stream| !stream.is_opened);
        early.map(|stream| stream.incoming.memory()).sum()
    }

    /// The stream, which the other end may only now let us know of; nothing if it is over.
    fn known(&mut self, id: StreamId) -> Result<Option<&mut Stream>, Violation> {
        let number = u64::from(id.0);
        let behind = self.retired.pieces().partition_point(|(start, _)| *start <= number);
        let is_within = behind.checked_sub(1).is_some_and(|place| number < self.retired.pieces()[place].1);
        let is_retired = number < self.retired.contiguous() || is_within;
        if is_retired {
            return Ok(None);
        }
        if !self.streams.contains_key(&id) {
            if self.opens {
                return Err(Violation::Stream);
            }
            if self.streams.len() >= MAX_KNOWN {
                return Err(Violation::TooMany);
            }
            self.streams.insert(id, Stream::new(None, None));
        }
        Ok(self.streams.get_mut(&id))
    }

    fn count(&mut self, more: u64) -> Result<(), Violation> {
        self.counted += more;
        if self.counted > self.granted {
            return Err(Violation::Credit);
        }
        self.note_scarcity();
        Ok(())
    }
}
