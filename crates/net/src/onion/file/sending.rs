//! The sender's half.

use std::collections::VecDeque;
use std::ops::Range;

use anabranch_onion::session::{Reason, StreamId};
use anabranch_proto::overlay::message::{Code, Message, Offer, Report};
use anabranch_proto::printable::printable;
use anabranch_proto::transfer::{Source, TransferError, block_ranges};

use super::super::streams::End;
use super::{PIECE, frame, read, take_message, write};

/// How far it is.
#[derive(Clone, Debug)]
pub enum SendingState {
    /// The receiver has not said yet whether it wants the file.
    Offered,
    /// Bytes leave.
    Sending,
    /// The receiver keeps it under this name.
    Done(String),
    /// It does not.
    Failed(TransferError),
}

/// A file that is sent.
pub struct Sending<S> {
    offer: Offer,
    source: S,
    state: SendingState,
    out: Vec<u8>,
    heard: Vec<u8>,
    parts: VecDeque<Range<u64>>,
    left: u64,
    resumed: u64,
    first_resumed: Option<u64>,
}

impl<S: Source> Sending<S> {
    /// The file of `offer`, which `source` reads.
    pub fn new(offer: Offer, source: S) -> Sending<S> {
        Sending {
            offer,
            source,
            state: SendingState::Offered,
            out: Vec::new(),
            heard: Vec::new(),
            parts: VecDeque::new(),
            left: 0,
            resumed: 0,
            first_resumed: None,
        }
    }

    /// It is offered over a new stream.
    pub fn begin(&mut self) {
        if self.is_over() {
            return;
        }
        let mut message = Vec::new();
        Message::Offer(self.offer.clone()).encode(0, &mut message);
        self.out.clear();
        frame(&message, &mut self.out);
        self.heard.clear();
        self.parts.clear();
        (self.left, self.resumed, self.state) = (0, 0, SendingState::Offered);
    }

    /// How far it is.
    pub fn state(&self) -> &SendingState {
        &self.state
    }

    /// Whether nothing more will happen.
    pub fn is_over(&self) -> bool {
        matches!(self.state, SendingState::Done(_) | SendingState::Failed(_))
    }

    /// It is known otherwise that it will not be kept.
    pub fn fail(&mut self, why: TransferError) {
        if !self.is_over() {
            self.state = SendingState::Failed(why);
        }
    }

    /// Bytes of the file.
    pub fn length(&self) -> u64 {
        self.offer.length
    }

    /// Bytes that were handed to the session, or were there before.
    pub fn done(&self) -> u64 {
        match self.state {
            SendingState::Offered => 0,
            _ => self.offer.length - self.left,
        }
    }

    /// Bytes that the receiver had before the first stream.
    pub fn resumed(&self) -> u64 {
        self.first_resumed.unwrap_or(0)
    }

    /// The stream can be read or written.
    pub fn drive(&mut self, end: &mut impl End, stream: StreamId) {
        if self.is_over() {
            return;
        }
        if let Err(why) = self.carry(end, stream) {
            self.state = SendingState::Failed(why);
            end.reset(stream, Reason::Stopped);
        } else if self.is_over() {
            end.finish(stream);
        }
    }

    fn carry(&mut self, end: &mut impl End, stream: StreamId) -> Result<(), TransferError> {
        // The receiver's end shows when nothing more comes: a session that ends says so by itself.
        read(end, stream, 4096, &mut self.heard);
        while let Some(message) = take_message(&mut self.heard).map_err(TransferError::Malformed)? {
            self.on_report(&message)?;
        }
        loop {
            if !write(end, stream, &mut self.out) {
                return Ok(());
            }
            let Some(part) = self.parts.front_mut() else { return Ok(()) };
            let length = (part.end - part.start).min(u64::from(PIECE));
            let mut piece = vec![0; length as usize];
            self.source.read(part.start, &mut piece).map_err(TransferError::unreadable)?;
            part.start += length;
            if part.is_empty() {
                self.parts.pop_front();
            }
            self.left -= length;
            self.out = piece;
        }
    }

    fn on_report(&mut self, message: &[u8]) -> Result<(), TransferError> {
        let report = Report::decode(message).map_err(|_| TransferError::Malformed("a report that cannot be read"))?;
        match (report.code, &self.state) {
            (Code::Accepted, SendingState::Offered) => {
                self.send(report.text);
                self.first_resumed.get_or_insert(self.resumed);
            }
            // What was there from before had another hash.
            (Code::Accepted, SendingState::Sending) if self.resumed > 0 && self.left == 0 => {
                self.send("");
                self.first_resumed = Some(0);
            }
            (Code::Complete, SendingState::Sending) if self.left == 0 => {
                self.state = SendingState::Done(printable(report.text));
            }
            _ => {
                let error = TransferError::reported(&report);
                return Err(error.unwrap_or(TransferError::Malformed("a report out of turn")));
            }
        }
        Ok(())
    }

    /// What is not `there`, as the receiver has reported it.
    fn send(&mut self, there: &str) {
        let parts = block_ranges::missing(&self.offer, there);
        self.left = block_ranges::bytes(&parts);
        self.resumed = self.offer.length - self.left;
        self.parts = parts.into();
        self.state = SendingState::Sending;
    }
}
