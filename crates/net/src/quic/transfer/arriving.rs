//! A file on its way over QUIC: what is there of it, what is still to come, and what stays of it.

use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};

use anabranch_proto::message::{Code, Offer};
use anabranch_proto::seal::SessionId;
use anabranch_proto::transfer::{Event, Extents, FileCheck, Store, StoreError, TransferError, block_ranges};
use noq::{ConnectionError, ReadError, SendStream, UnorderedRecvStream, VarInt};
use tokio::sync::mpsc;

use super::claim::Claim;
use super::shared::Shared;
use super::throttle::Throttle;
use super::{MOST_UNACKNOWLEDGED, PIECE, lost, missing, report};
use crate::disk::DiskStore;

/// A file that is being written. What is not whole is kept or goes away with this value.
pub struct Arriving {
    shared: Arc<Shared>,
    store: DiskStore,
    session: SessionId,
    /// What was missing, in its order.
    parts: Vec<Part>,
    /// Bytes of it that are still to come.
    left: u64,
    /// Bytes that were there from before.
    resumed: u64,
    /// As far as the file has come in its order; the rest is hashed when all of it is there.
    check: FileCheck,
    /// Bytes that are shown as done.
    shown: u64,
    /// Whether what has come is kept, once that is known.
    keeps: Option<bool>,
    /// Let go after all else.
    claim: Option<Claim>,
}

/// A part of the file, and where it is in what the sender sends.
struct Part {
    sent: u64,
    place: Range<u64>,
}

/// What became of what came over a stream.
enum Kept {
    Whole(String),
    /// All of it is there, with another hash than it should have; a part was there from before.
    Wrong,
}

impl Arriving {
    /// It blocks.
    pub fn begin(
        shared: Arc<Shared>,
        session: SessionId,
        offer: Offer,
        claim: Option<Claim>,
    ) -> Result<Arriving, StoreError> {
        let store = shared.store.clone();
        shared.progress.total.fetch_add(offer.length, Ordering::Relaxed);
        let check = FileCheck::new(offer);
        let (parts, keeps) = (Vec::new(), Some(false));
        let mut arriving =
            Arriving { shared, store, session, parts, left: 0, resumed: 0, check, shown: 0, keeps, claim };
        arriving.look_up()?;
        Ok(arriving)
    }

    /// Makes room for it, or finds what is there of it from before. It blocks.
    fn look_up(&mut self) -> Result<(), StoreError> {
        let offer = self.check.offer().clone();
        let extents = match &self.claim {
            Some(claim) => self.store.resume(self.session, &offer, &claim.partial)?,
            None => self.store.create(self.session, &offer).map(|()| Extents::default())?,
        };
        // What is not reported comes again.
        let reported = block_ranges::read(
            &block_ranges::write(&block_ranges::whole_blocks(&offer, &extents), block_ranges::MOST_BLOCK_RANGES),
            offer.blocks(),
        );
        let reported = reported.into_iter().map(|blocks| u64::from(blocks.start)..u64::from(blocks.end));
        self.left = 0;
        self.parts.clear();
        for place in missing(&offer, reported) {
            let sent = self.left;
            self.left += place.end - place.start;
            self.parts.push(Part { sent, place });
        }
        self.resumed = offer.length - self.left;
        self.check = FileCheck::new(offer);
        self.show(self.resumed);
        self.keeps = None;
        Ok(())
    }

    /// What its sender need not send.
    fn reported_blocks(&mut self) -> String {
        let offer = self.check.offer();
        let block = u64::from(offer.block.max(1));
        let (mut from, mut there) = (0, Vec::new());
        for Part { place, .. } in &self.parts {
            there.push(from..place.start / block);
            from = place.end.div_ceil(block);
        }
        there.push(from..offer.blocks());
        there.retain(|blocks| !blocks.is_empty());
        block_ranges::write(&there, block_ranges::MOST_BLOCK_RANGES)
    }

    /// This many bytes of it are done.
    fn show(&mut self, done: u64) {
        let progress = &self.shared.progress.done;
        progress.fetch_add(done, Ordering::Relaxed);
        progress.fetch_sub(self.shown, Ordering::Relaxed);
        self.shown = done;
    }

    /// The name under which the file is kept, once all of it has come over the stream from `offset` on.
    pub async fn whole(
        mut self,
        mut from: UnorderedRecvStream,
        mut offset: u64,
        to: &mut SendStream,
        connection: &noq::Connection,
        events: &mpsc::Sender<Event>,
    ) -> Result<String, TransferError> {
        let (granting, most) = (connection.clone(), self.shared.limits.file_writes);
        let throttle =
            Arc::new(Throttle::new(MOST_UNACKNOWLEDGED, most, move |window| granting.set_receive_window(window)));
        loop {
            let reported = if self.resumed > 0 { self.reported_blocks() } else { String::new() };
            report(to, Code::Accepted, &reported).await?;
            let wanted = self.left;
            let (kept, mut arriving) = self.rest(&mut from, offset, &throttle, events).await?;
            offset += wanted;
            match kept {
                Kept::Whole(name) => return Ok(name),
                Kept::Wrong => {
                    let anew = tokio::task::spawn_blocking(move || {
                        arriving.store.discard(arriving.session);
                        arriving.look_up().map(|()| arriving)
                    });
                    let anew = anew.await.unwrap_or_else(|error| Err(StoreError(error.to_string())));
                    self = anew.map_err(TransferError::Store)?;
                }
            }
        }
    }

    /// Takes what is missing. It is read as it comes, in any order, and waits for the disk here.
    async fn rest(
        self,
        from: &mut UnorderedRecvStream,
        offset: u64,
        throttle: &Arc<Throttle<impl Fn(VarInt) + Send + Sync + 'static>>,
        events: &mpsc::Sender<Event>,
    ) -> Result<(Kept, Arriving), TransferError> {
        // The stream has an end where nothing may be wanted after it.
        let mut wanted = if self.resumed > 0 { self.left } else { u64::MAX };
        let coming = self.claim.as_ref().map(|claim| Arc::clone(&claim.coming));
        let session = self.session;
        let heard = || coming.iter().for_each(|coming| coming.heard());
        let mut is_begun = self.resumed > 0;
        if is_begun {
            let _ = events.send(Event::Begun { session }).await;
        }
        heard();
        // Whether what has come is kept if not all does, where its end says so.
        let ending = Arc::new(OnceLock::new());
        // Not bounded in number, but in bytes, by `throttle`: `file_writes` of the limits and two windows. A stream that is not
        // read at once piles up out of order, and the library gives a connection up for too many gaps.
        let (pieces, waiting) = mpsc::unbounded_channel();
        let (ended, writing) = (Arc::clone(&ending), Arc::clone(throttle));
        let kept = tokio::task::spawn_blocking(move || self.keep(waiting, &writing, &ended));
        let read = async {
            while wanted > 0 {
                let piece = match from.read_chunk(usize::from(PIECE).min(wanted as usize)).await {
                    Ok(Some(piece)) => piece,
                    Ok(None) => break,
                    Err(error) => {
                        let keeps = match error {
                            // Who takes leave gives up the file.
                            ReadError::Reset(_) | ReadError::ConnectionLost(ConnectionError::ApplicationClosed(_)) => {
                                Some(false)
                            }
                            ReadError::ConnectionLost(ConnectionError::LocallyClosed) => None,
                            _ => Some(true),
                        };
                        if let Some(keeps) = keeps {
                            // Nothing else has said so.
                            let _ = ending.set(keeps);
                        }
                        return Err(lost(error));
                    }
                };
                heard();
                wanted = wanted.saturating_sub(piece.bytes.len() as u64);
                if !std::mem::replace(&mut is_begun, true) {
                    let _ = events.send(Event::Begun { session }).await;
                }
                let place = piece.offset.saturating_sub(offset);
                throttle.on_read(piece.bytes.len());
                if pieces.send((place, piece.bytes)).is_err() {
                    break;
                }
            }
            Ok::<(), TransferError>(())
        };
        let read = read.await;
        drop(pieces);
        let kept = kept.await.unwrap_or_else(|error| Err(StoreError(error.to_string()).into()));
        match (kept, read) {
            // All of it is there, whether its end was heard or not.
            (Ok((Kept::Whole(name), arriving)), _) => Ok((Kept::Whole(name), arriving)),
            (Ok(wrong), Ok(())) => Ok(wrong),
            // That the sender has gone says more than that its file is not whole.
            (_, Err(why)) => Err(why),
            (Err(why), Ok(())) => Err(why),
        }
    }

    /// Keeps what comes by `pieces` until there is no more. It blocks.
    fn keep(
        mut self,
        mut pieces: mpsc::UnboundedReceiver<(u64, impl AsRef<[u8]>)>,
        throttle: &Throttle<impl Fn(VarInt)>,
        ending: &OnceLock<bool>,
    ) -> Result<(Kept, Arriving), TransferError> {
        let mut next = pieces.blocking_recv();
        while let Some((sent, piece)) = next {
            let mut bytes = piece.as_ref().to_vec();
            // What is as short as a packet is written together, where it belongs together.
            next = loop {
                match pieces.try_recv() {
                    Ok((place, more)) if place == sent + bytes.len() as u64 && bytes.len() < usize::from(PIECE) => {
                        bytes.extend_from_slice(more.as_ref());
                    }
                    other => break other.ok(),
                }
            };
            self.take(sent, &bytes).inspect_err(|_| self.keeps = Some(false))?;
            throttle.on_written(bytes.len());
            next = next.or_else(|| pieces.blocking_recv());
        }
        if self.left > 0 {
            self.keeps = ending.get().copied();
            return Err(TransferError::Malformed("less than it has offered"));
        }
        // Only what is whole is published: its length and its hash must be right.
        self.keeps = Some(false);
        while self.check.left() > 0 {
            self.check.update_from(&mut self.store, self.session)?;
        }
        match self.check.publish(&mut self.store, self.session) {
            Ok(name) => Ok((Kept::Whole(name), self)),
            Err(TransferError::WrongHash) if self.resumed > 0 => Ok((Kept::Wrong, self)),
            Err(error) => Err(error),
        }
    }

    /// Some of the bytes that were missing: those from `sent` on, as the sender sends them.
    fn take(&mut self, mut sent: u64, mut piece: &[u8]) -> Result<(), TransferError> {
        let mut next = self.parts.partition_point(|part| part.sent <= sent).saturating_sub(1);
        while !piece.is_empty() {
            let part = self.parts.get(next).ok_or(TransferError::Malformed("more than it has offered"))?;
            let offset = part.place.start + (sent - part.sent);
            let room = part.place.end.saturating_sub(offset).min(piece.len() as u64) as usize;
            let (here, behind) = piece.split_at(room);
            if !here.is_empty() {
                if offset == self.check.hashed() {
                    self.check.update(here)?;
                }
                self.store.write(self.session, offset, here)?;
                self.left -= here.len() as u64;
                self.show(self.shown + here.len() as u64);
            }
            (sent, piece, next) = (sent + here.len() as u64, behind, next + 1);
        }
        Ok(())
    }
}

impl Drop for Arriving {
    fn drop(&mut self) {
        // Who goes on with it has use for what has come.
        let is_orphan = || self.claim.as_ref().is_some_and(|claim| claim.coming.is_orphan());
        if self.keeps.unwrap_or_else(is_orphan) {
            self.store.suspend(self.session);
        } else {
            self.store.discard(self.session);
        }
        self.show(0);
        self.shared.progress.total.fetch_sub(self.check.offer().length, Ordering::Relaxed);
    }
}
