//! What a sender does when the receiver finds another hash than was offered, though a part was there from
//! before: that part may have been another file's, and then all is sent again. First its own file is hashed
//! again, for one that has changed would only come in vain.

use anabranch_control::time::Time;

use super::super::check::FileCheck;
use super::super::error::TransferError;
use super::super::phase::Phase;
use super::FileSender;

/// How often a file is hashed again, and then sent again, because its hash was wrong with what the receiver had from
/// before: what that had may be another's, once, and again after it was started again. Beyond, the receiver is at fault.
pub(super) const MOST_ANEW: u8 = 3;

impl FileSender {
    /// Has the file hashed again, unless it is already, or was too often: a receiver that falls silent meanwhile could
    /// have it hashed without end.
    pub(super) fn recheck_file(&mut self) {
        if self.is_rechecking {
            return;
        }
        let Some(left) = self.anew_left.checked_sub(1) else { return self.fail(TransferError::WrongHash) };
        self.anew_left = left;
        self.is_rechecking = true;
        self.recheck = Some(FileCheck::new(self.offer.clone()));
    }

    /// A part of the file was hashed again. One that has changed is of no use to anybody; one that has not is
    /// sent again, all of it.
    pub(super) fn on_rechecked(&mut self, now: Time, checked: Result<FileCheck, TransferError>) {
        match checked {
            _ if self.outcome.is_some() => {}
            Ok(check) if check.left() > 0 => self.recheck = Some(check),
            Ok(check) if check.has_its_hash() => {
                self.is_rechecking = false;
                // Meanwhile the receiver may have been greeted anew, and what it has is told anew too.
                if self.phase == Phase::Finishing {
                    self.send_all_anew(now);
                }
            }
            Ok(_) => self.fail(TransferError::Changed),
            Err(error) => self.fail(error),
        }
    }

    fn send_all_anew(&mut self, now: Time) {
        self.is_anew = true;
        self.forget_arrivals();
        self.progressed = Some(now);
        self.enter(now, Phase::Sending);
    }
}
