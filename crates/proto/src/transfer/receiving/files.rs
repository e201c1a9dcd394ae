//! Files on their way through a receiver: the jobs on each, what comes of them, and how a file leaves.
//!
//! Of one file there is one job at a time. A session that ends while a job is under way leaves its name
//! behind until that is done and what was kept is discarded or put away.

use anabranch_control::time::{Duration, Time};

use super::entry::{Closing, Entry, Phase, Step};
use super::incoming::Incoming;
use super::{MAX_KEPT, Receiver};
use crate::overlay::message::Code;
use crate::seal::SessionId;
use crate::transfer::around::Event;
use crate::transfer::block_ranges;
use crate::transfer::check::FileCheck;
use crate::transfer::error::TransferError;
use crate::transfer::jobs::{FileDone, FileJob, FileResult, FileTask};
use crate::transfer::partial::PartialId;

/// What a sender is told whose file does not come any more because of the receiver's user.
const INTERRUPTED: &str = "it was interrupted";

impl Receiver {
    pub(super) fn hand_out(&mut self, session: SessionId, task: FileTask) {
        self.jobs.push_back(FileJob { session, task });
    }

    /// The next job, to be done elsewhere; [`Receiver::on_done`] gets the result.
    pub fn next_job(&mut self) -> Option<FileJob> {
        self.jobs.pop_front()
    }

    /// Has done next for the file of session `id` what is to be done, if nothing is being done.
    pub(super) fn go_on(&mut self, id: SessionId) {
        let Some(Entry { phase, .. }) = self.sessions.get_mut(&id) else { return };
        let Phase::Receiving(incoming) = phase else { return };
        if incoming.is_working {
            return;
        }
        if !incoming.waiting.is_empty() {
            let batch = std::mem::take(&mut incoming.waiting);
            (incoming.is_working, incoming.writing) = (true, incoming.unwritten);
            self.hand_out(id, FileTask::Write(batch));
        } else if incoming.missing == 0 {
            let check = FileCheck::new(incoming.offer.clone());
            self.go_on_checking(id, check);
        }
    }

    fn go_on_checking(&mut self, id: SessionId, check: FileCheck) {
        let Some(Entry { phase, .. }) = self.sessions.get_mut(&id) else { return };
        if check.left() > 0 {
            *phase = Phase::Checking(check.offer().clone());
            self.hand_out(id, FileTask::Check(check));
        } else {
            *phase = Phase::Publishing(check.offer().clone());
            self.hand_out(id, FileTask::Publish(check));
        }
    }

    /// A job is done.
    pub fn on_done(&mut self, done: FileDone) {
        self.take_result(done);
        self.admit();
    }

    fn take_result(&mut self, done: FileDone) {
        let FileDone { session: id, result } = done;
        if let Some(&closing) = self.closing.get(&id) {
            return self.on_closing_done(id, closing, result);
        }
        let Some(Entry { phase, reported, partial, .. }) = self.sessions.get_mut(&id) else { return };
        match (phase, result) {
            (Phase::Receiving(incoming), FileResult::Created(Ok(extents))) => {
                (incoming.is_working, incoming.is_looked_up) = (false, false);
                let blocks = incoming.resume(&extents);
                // An answer is no longer than a block's datagram: a path that carries that carries it too.
                *reported = block_ranges::write(&blocks, usize::from(incoming.offer.block));
                incoming.is_begun = !blocks.is_empty();
                self.counters.resumed += blocks.iter().map(|blocks| blocks.end - blocks.start).sum::<u64>();
                if let Some(partial) = partial {
                    self.kept.remove(partial);
                }
                let (offer, is_begun) = (incoming.offer.clone(), incoming.is_begun);
                self.note(Event::Offered { session: id, offer });
                if is_begun {
                    self.note(Event::Begun { session: id });
                }
                self.go_on(id);
            }
            (Phase::Receiving(incoming), FileResult::Written(Ok(()))) => {
                incoming.is_working = false;
                self.unwritten -= incoming.writing;
                incoming.unwritten -= std::mem::take(&mut incoming.writing);
                if !std::mem::replace(&mut incoming.is_begun, true) {
                    self.note(Event::Begun { session: id });
                }
                self.go_on(id);
            }
            (Phase::Checking(_), FileResult::Checked(Ok(check))) => self.go_on_checking(id, check),
            (phase @ Phase::Publishing(_), FileResult::Published(Ok(name))) => {
                if let Phase::Publishing(offer) = std::mem::replace(phase, Phase::Complete { name: name.clone() }) {
                    self.note(Event::Complete { session: id, name, length: offer.length });
                }
            }
            (Phase::Receiving(_), FileResult::Created(Err(error))) => self.fail(id, Code::Refused, error.0),
            (Phase::Receiving(_), FileResult::Written(Err(error))) => self.fail(id, Code::Failed, error.0),
            // What was there from before may have been another's, or damaged since.
            (Phase::Publishing(offer), FileResult::Published(Err(TransferError::WrongHash)))
                if !reported.is_empty() =>
            {
                let offer = offer.clone();
                self.begin_anew(id, offer);
            }
            (Phase::Checking(_), FileResult::Checked(Err(error)))
            | (Phase::Publishing(_), FileResult::Published(Err(error))) => {
                self.fail(id, Code::Failed, error.to_string());
            }
            // Nobody has asked for it.
            _ => {}
        }
    }

    /// A job is done for a file that nobody waits for.
    fn on_closing_done(&mut self, id: SessionId, closing: Closing, result: FileResult) {
        match (closing.step, result) {
            (Step::Leaving, FileResult::Suspended(Some(partial))) => {
                self.closing.remove(&id);
                if self.kept.len() < MAX_KEPT {
                    self.kept.insert(partial);
                }
            }
            (Step::Leaving, _) => _ = self.closing.remove(&id),
            (Step::Publishing { length }, FileResult::Published(Ok(name))) => {
                self.closing.remove(&id);
                self.note(Event::Complete { session: id, name, length });
                self.note(Event::Closed { session: id, complete: true });
            }
            (Step::Publishing { .. }, _) => {
                self.note(Event::Closed { session: id, complete: false });
                self.put_away(id, None);
            }
            (Step::Working { writing }, _) => {
                self.unwritten -= writing;
                self.put_away(id, closing.partial.filter(|_| closing.keeps));
            }
        }
    }

    /// The file of session `id`, of which no job is under way, will not come, and nothing of it is
    /// kept.
    fn fail(&mut self, id: SessionId, code: Code, reason: String) {
        let Some(entry) = self.sessions.get_mut(&id) else { return };
        let before = std::mem::replace(&mut entry.phase, Phase::Over { code, reason: reason.clone() });
        if let Phase::Receiving(incoming) = before {
            self.unwritten -= incoming.unwritten;
        }
        self.put_away(id, None);
        self.note(Event::Failed { session: id, reason });
    }

    /// The file of session `id` does not come in this session; its sender is told if it asks.
    pub(super) fn leave(&mut self, id: SessionId, code: Code, reason: String, keeps: bool) {
        let Some(entry) = self.sessions.get_mut(&id) else { return };
        let before = std::mem::replace(&mut entry.phase, Phase::Over { code, reason });
        let partial = entry.partial;
        self.release(id, before, partial, keeps);
    }

    /// Nobody waits any more for the file of session `id`, of which no job is under way: it is put away
    /// if it is one that may be gone on with, and discarded if not.
    fn put_away(&mut self, id: SessionId, partial: Option<PartialId>) {
        self.closing.insert(id, Closing { partial, keeps: partial.is_some(), step: Step::Leaving });
        self.hand_out(id, partial.map_or(FileTask::Discard, FileTask::Suspend));
    }

    /// Nobody waits any more for the file that session `id` had in this phase; whether it had come, if
    /// there was one and that is known.
    fn release(&mut self, id: SessionId, phase: Phase, partial: Option<PartialId>, keeps: bool) -> Option<bool> {
        let step = match phase {
            // Of what was refused or failed, everything has been said.
            Phase::Greeted | Phase::Load | Phase::Waiting(_) | Phase::Over { .. } => return None,
            Phase::Complete { .. } => return Some(true),
            Phase::Receiving(Incoming { is_working: false, unwritten, .. }) => {
                self.unwritten -= unwritten;
                self.put_away(id, partial.filter(|_| keeps));
                return Some(false);
            }
            Phase::Receiving(Incoming { unwritten, writing, .. }) => {
                self.unwritten -= unwritten - writing;
                Step::Working { writing }
            }
            Phase::Checking(_) => Step::Working { writing: 0 },
            Phase::Publishing(offer) => Step::Publishing { length: offer.length },
        };
        self.closing.insert(id, Closing { partial, keeps, step });
        // Whether it comes that is being put in its place is said when it is known.
        if let Step::Publishing { .. } = step { None } else { Some(false) }
    }

    /// The session is over.
    pub(super) fn close(&mut self, id: SessionId, keeps: bool) {
        let Some(Entry { phase, partial, .. }) = self.sessions.remove(&id) else { return };
        if let Some(complete) = self.release(id, phase, partial, keeps) {
            self.note(Event::Closed { session: id, complete });
        }
    }

    /// Gives up every session. What has arrived of an unfinished file is put away if nothing was heard of
    /// its sender for `silence`: it may go on with it later. What is still coming is discarded, and whom a code has
    /// brought is told if it says something more, or why its file has failed: no other receiver will have this key, to
    /// which it could begin anew.
    pub fn close_all(&mut self, now: Time, silence: Duration) {
        self.queue.clear();
        self.half_open.clear();
        let keeps = |entry: &Entry| now.since(entry.heard) >= silence;
        let all: Vec<(SessionId, bool)> = self.sessions.iter().map(|(id, entry)| (*id, keeps(entry))).collect();
        for (id, keeps) in all {
            let is_to_be_told =
                |entry: &Entry| matches!(entry.phase, Phase::Waiting(_) | Phase::Receiving(_) | Phase::Checking(_));
            let is_over = |entry: &Entry| matches!(entry.phase, Phase::Over { .. });
            if self.is_by_code && !keeps && self.sessions.get(&id).is_some_and(is_over) {
                // It is told why when it asks next.
            } else if self.is_by_code && !keeps && self.sessions.get(&id).is_some_and(is_to_be_told) {
                self.leave(id, Code::Refused, INTERRUPTED.to_owned(), false);
                self.note(Event::Closed { session: id, complete: false });
            } else {
                self.close(id, keeps);
            }
        }
    }
}
