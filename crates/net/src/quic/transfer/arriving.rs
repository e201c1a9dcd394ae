//! A file on its way over QUIC: what is there of it, what is still to come, and what stays of it.

use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};

use anabranch_proto::overlay::message::{Code, Offer};
use anabranch_proto::seal::SessionId;
use anabranch_proto::transfer::{Event, Finished, Store, StoreError, Streamed, TransferError};
use noq::{ConnectionError, ReadError, SendStream, UnorderedRecvStream, VarInt};
use tokio::sync::mpsc;

use super::claim::Claim;
use super::shared::Shared;
use super::throttle::Throttle;
use super::{MOST_UNACKNOWLEDGED, PIECE, lost, report};
use crate::clock::std_duration;
use crate::disk::DiskStore;

/// A file that is being written. What is not whole is kept or goes away with this value.
pub struct Arriving {
    shared: Arc<Shared>,
    store: DiskStore,
    file: Streamed,
    /// Bytes that are shown as done.
    shown: u64,
    /// Whether what has come is kept, once that is known.
    keeps: Option<bool>,
    /// Let go after all else.
    claim: Option<Claim>,
}

/// What became of what came over a stream.
enum Kept {
    Whole(String),
    /// All of it is to come again.
    Nothing,
}

impl Arriving {
    /// Makes room for it, or finds what is there of it from before. It blocks.
    pub fn begin(
        shared: Arc<Shared>,
        session: SessionId,
        offer: Offer,
        claim: Option<Claim>,
    ) -> Result<Arriving, StoreError> {
        let mut store = shared.store.clone();
        let length = offer.length;
        let file = Streamed::begin(&mut store, session, offer, claim.as_ref().map(|claim| claim.partial))?;
        shared.progress.total.fetch_add(length, Ordering::Relaxed);
        let mut arriving = Arriving { shared, store, file, shown: 0, keeps: None, claim };
        arriving.show(arriving.file.done());
        Ok(arriving)
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
            report(to, Code::Accepted, self.file.reported()).await?;
            let wanted = self.file.wanted();
            let kept;
            (kept, self) = self.rest(&mut from, offset, &throttle, events).await?;
            if let Kept::Whole(name) = kept {
                return Ok(name);
            }
            offset += wanted;
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
        let is_resumed = self.file.resumed() > 0;
        let mut wanted = if is_resumed { self.file.left() } else { u64::MAX };
        let coming = self.claim.as_ref().map(|claim| Arc::clone(&claim.coming));
        let (session, stalled) = (self.file.session(), self.shared.limits.stalled);
        let heard = || coming.iter().for_each(|coming| coming.heard());
        let mut is_begun = is_resumed;
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
                let reading = from.read_chunk(usize::from(PIECE).min(wanted as usize));
                let Ok(read) = tokio::time::timeout(std_duration(stalled), reading).await else {
                    // A disk that is slow holds its sender back.
                    if throttle.is_waiting() {
                        continue;
                    }
                    let _ = ending.set(true);
                    return Err(TransferError::Stalled(stalled));
                };
                let piece = match read {
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
            (Ok(nothing), Ok(())) => Ok(nothing),
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
            let taken = self.file.take(&mut self.store, sent, &bytes);
            taken.inspect_err(|_| self.keeps = Some(false))?;
            self.show(self.file.done());
            throttle.on_written(bytes.len());
            next = next.or_else(|| pieces.blocking_recv());
        }
        // Of what is not whole its end says whether it is kept; what is whole and has another hash is not.
        self.keeps = if self.file.left() > 0 { ending.get().copied() } else { Some(false) };
        match self.file.finish(&mut self.store)? {
            Finished::Whole(name) => Ok((Kept::Whole(name), self)),
            Finished::Again => {
                self.keeps = None;
                self.show(self.file.done());
                Ok((Kept::Nothing, self))
            }
        }
    }
}

impl Drop for Arriving {
    fn drop(&mut self) {
        // Who goes on with it has use for what has come.
        let is_orphan = || self.claim.as_ref().is_some_and(|claim| claim.coming.is_orphan());
        if self.keeps.unwrap_or_else(is_orphan) {
            self.store.suspend(self.file.session());
        } else {
            self.store.discard(self.file.session());
        }
        self.show(0);
        self.shared.progress.total.fetch_sub(self.file.offer().length, Ordering::Relaxed);
    }
}
