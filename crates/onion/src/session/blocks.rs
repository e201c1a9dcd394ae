//! Reply blocks: who grants them, who holds them, and what became of each.
//!
//! The service sends nothing without a block of the client, and each block carries one cell: the
//! client's grants are what bounds a download. The service uses blocks in the order in which they came, so
//! the client knows that a block was used once one that came later brought a cell back, and by when
//! the cell should be here; what is not is lost, and its path learns that. Nobody acknowledges for it.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};

use anabranch_control::time::{Duration, Time};

use super::cell::MAX_BLOCK;
use super::sender::LeastOffset;

/// Blocks that a service holds of one client at most; of more, the oldest go.
pub const MAX_POOL: usize = 4096;

/// A block that was not used for so long is not used any more: its relays' keys are gone.
pub const BLOCK_LIFE: Duration = Duration::from_millis(300_000);

/// No cell counts as lost sooner after it is known that its block was used: two senders' grain.
const LEAST_GRACE: Duration = Duration::from_millis(10);

/// Blocks that are out at most before any has come back. For each that has, one more may be: twice as many in the time that
/// a block takes, which is what conserves packets in slow start [Jacobson 1988, 1]. All at once they would each set up keys
/// at their relays, for no other is known to be there: a thousand take a twentieth of a second of a processor at the
/// client and as much at relays, all round trips grow by that, and with them what [`Grants::set_target`] is given.
pub const FIRST_BLOCKS: usize = 256;

/// Blocks that a service holds.
#[derive(Clone, Debug, Default)]
pub struct Pool {
    /// With the number of the cell that each came in, and when.
    blocks: VecDeque<(u64, Time, Box<[u8]>)>,
    /// Those of cells below this number are void.
    void_before: u64,
}

impl Pool {
    /// One more, which came in cell `number`.
    pub fn put(&mut self, now: Time, number: u64, block: &[u8]) {
        if number < self.void_before {
            return;
        }
        if self.blocks.len() == MAX_POOL {
            self.blocks.pop_front();
        }
        self.blocks.push_back((number, now, block.into()));
    }

    /// Those of cells below `before` are of no use, also where they are still to come.
    pub fn void(&mut self, before: u64) {
        if before > self.void_before {
            self.void_before = before;
            self.blocks.retain(|(number, ..)| *number >= before);
        }
    }

    /// The one that came first.
    pub fn take(&mut self, now: Time) -> Option<Box<[u8]>> {
        self.expire(now);
        self.blocks.pop_front().map(|(.., block)| block)
    }

    /// Drops what is too old.
    pub fn expire(&mut self, now: Time) {
        while self.blocks.front().is_some_and(|(_, at, _)| now.since(*at) > BLOCK_LIFE) {
            self.blocks.pop_front();
        }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.blocks.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// Bytes of all.
    pub fn bytes(&self) -> usize {
        self.blocks.iter().map(|(.., block)| block.len()).sum()
    }
}

/// A block that was made, and not given out yet.
#[derive(Clone, Debug)]
struct Fresh {
    bytes: Box<[u8]>,
    spread: Duration,
    is_trial: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// In a cell of which nothing is known.
    OnItsWay,
    /// In the pool of the service since then, in its clock.
    Held(Time),
    /// A later one was used.
    Used(Time),
}

#[derive(Clone, Copy, Debug)]
struct Grant {
    at: Time,
    spread: Duration,
    /// Whether a relay of its path was believed to be gone.
    is_trial: bool,
    place: Place,
}

/// Why a block is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockError {
    /// It is empty, or longer than [`MAX_BLOCK`] or than what fits a cell.
    Length,
    /// The session's first block had another length.
    OtherLength,
}

/// Blocks that a client gave out.
#[derive(Clone, Debug)]
pub struct Grants {
    fresh: VecDeque<Fresh>,
    /// The serial of the first of `fresh`.
    next: u64,
    given: BTreeMap<u64, Grant>,
    held: BTreeSet<(Time, u64)>,
    used: BinaryHeap<Reverse<(Time, u64)>>,
    size: Option<usize>,
    target: usize,
    /// As far as what has come back lets it be.
    most: usize,
    offset: LeastOffset,
}

impl Grants {
    /// As many as `target` shall be with the service or on their way, as far as others have come back.
    pub fn new(target: usize) -> Grants {
        Grants {
            fresh: VecDeque::new(),
            next: 0,
            given: BTreeMap::new(),
            held: BTreeSet::new(),
            used: BinaryHeap::new(),
            size: None,
            target,
            most: FIRST_BLOCKS,
            offset: LeastOffset::default(),
        }
    }

    /// Sets how many shall be out, at most [`MAX_POOL`]. Beyond [`FIRST_BLOCKS`] it takes one more that came back for each.
    pub fn set_target(&mut self, target: usize) {
        self.target = target.min(MAX_POOL);
    }

    /// How many shall be out now.
    pub fn target(&self) -> usize {
        self.target.min(self.most)
    }

    /// How many should be made.
    pub fn wanted(&self) -> usize {
        self.target().saturating_sub(self.given.len() + self.fresh.len())
    }

    /// How many are with the service or on their way, as far as is known.
    pub fn outstanding(&self) -> usize {
        self.given.len()
    }

    /// How many wait to be given out.
    pub fn fresh(&self) -> usize {
        self.fresh.len()
    }

    /// Bytes of one, once there was one.
    pub fn size(&self) -> Option<usize> {
        self.size
    }

    /// A block was made, of a path whose cells come up to `spread` later than those of the fastest, `is_trial` if one of its relays is
    /// believed to be gone; its serial.
    ///
    /// # Errors
    ///
    /// When its length is not that of the others.
    pub fn put(&mut self, block: &[u8], spread: Duration, is_trial: bool) -> Result<u64, BlockError> {
        if !(1..=MAX_BLOCK).contains(&block.len()) {
            return Err(BlockError::Length);
        }
        if *self.size.get_or_insert(block.len()) != block.len() {
            return Err(BlockError::OtherLength);
        }
        self.fresh.push_back(Fresh { bytes: block.into(), spread, is_trial });
        Ok(self.next + self.fresh.len() as u64 - 1)
    }

    /// Gives out up to `most` in one cell, appended to `out`: the first one's serial and how many.
    pub fn take(&mut self, now: Time, most: usize, out: &mut Vec<u8>) -> (u64, u32) {
        let (first, count) = (self.next, most.min(self.fresh.len()));
        for Fresh { bytes, spread, is_trial } in self.fresh.drain(..count) {
            out.extend_from_slice(&bytes);
            self.given.insert(self.next, Grant { at: now, spread, is_trial, place: Place::OnItsWay });
            self.next += 1;
        }
        (first, count as u32)
    }

    /// The cell with these blocks came, at `arrived` in the service's clock.
    pub fn on_delivered(&mut self, first: u64, count: u32, arrived: Time) {
        for (&serial, grant) in self.given.range_mut(first..first + u64::from(count)) {
            if grant.place == Place::OnItsWay {
                grant.place = Place::Held(arrived);
                self.held.insert((arrived, serial));
            }
        }
    }

    /// The cell with these blocks did not come in time: others take the place of those that are not known to be there,
    /// which are returned.
    pub fn on_undelivered(&mut self, first: u64, count: u32) -> Vec<u64> {
        let all = self.given.range(first..first + u64::from(count));
        let missing: Vec<u64> =
            all.filter(|(_, grant)| grant.place == Place::OnItsWay).map(|(serial, _)| *serial).collect();
        for serial in &missing {
            self.given.remove(serial);
        }
        missing
    }

    /// A cell came by this block that had left the service at `left` in its clock: how much longer it took than
    /// the fastest lately.
    pub fn on_returned(&mut self, now: Time, serial: u64, left: Time) -> Duration {
        let delay = self.offset.excess(now, left, now);
        self.most = MAX_POOL.min(self.most + 1);
        if let Some(Grant { place: Place::Held(arrived), .. }) = self.given.remove(&serial) {
            self.held.remove(&(arrived, serial));
            // All that came before it were used before it: their cells left by now.
            while let Some(&(earlier, other)) = self.held.first().filter(|first| **first < (arrived, serial)) {
                self.held.remove(&(earlier, other));
                if let Some(grant) = self.given.get_mut(&other) {
                    let expected = Time::from_nanos(now.as_nanos().saturating_sub(delay.as_nanos())) + grant.spread;
                    let deadline = expected.max(now + LEAST_GRACE);
                    grant.place = Place::Used(deadline);
                    self.used.push(Reverse((deadline, other)));
                }
            }
        }
        delay
    }

    /// Time has passed: the blocks whose cells should be here go to `lost`, with whether they were trials; of what is too old nothing is known.
    pub fn on_timer(&mut self, now: Time, mut lost: impl FnMut(u64, bool)) {
        while let Some(&Reverse((deadline, serial))) = self.used.peek().filter(|Reverse((at, _))| *at <= now) {
            self.used.pop();
            let grant = self.given.get(&serial).filter(|grant| grant.place == Place::Used(deadline));
            if let Some(&Grant { is_trial, .. }) = grant {
                self.given.remove(&serial);
                lost(serial, is_trial);
            }
        }
        while let Some((&serial, grant)) = self.given.first_key_value().filter(|(_, g)| now.since(g.at) > BLOCK_LIFE) {
            if let Place::Held(arrived) = grant.place {
                self.held.remove(&(arrived, serial));
            }
            self.given.remove(&serial);
        }
    }

    /// Nothing has come for long: all that is out is given up, and others take its place.
    pub fn write_off(&mut self) {
        self.given.clear();
        self.held.clear();
        self.used.clear();
    }

    /// When [`on_timer`](Grants::on_timer) has something to do.
    pub fn timer(&self) -> Option<Time> {
        let used = self.used.peek().map(|&Reverse((deadline, _))| deadline);
        let oldest = self.given.first_key_value().map(|(_, grant)| grant.at + BLOCK_LIFE + Duration::from_nanos(1));
        used.into_iter().chain(oldest).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Time {
        Time::ZERO + Duration::from_millis(ms)
    }

    fn granted(count: usize) -> Grants {
        let mut grants = Grants::new(count);
        for _ in 0..count {
            grants.put(&[1, 2, 3], Duration::from_millis(30), false).unwrap();
        }
        let mut out = Vec::new();
        assert_eq!(grants.take(at(0), count, &mut out), (0, count as u32));
        assert_eq!(out.len(), 3 * count);
        grants
    }

    #[test]
    fn p13_the_pool_is_bounded_and_gives_the_oldest_that_is_not_too_old() {
        let mut pool = Pool::default();
        for i in 0..MAX_POOL + 10 {
            pool.put(at(i as u64), 0, &(i as u32).to_be_bytes());
        }
        assert_eq!((pool.len(), pool.bytes()), (MAX_POOL, 4 * MAX_POOL));
        assert_eq!(pool.take(at(9000)).as_deref(), Some(&10u32.to_be_bytes()[..]));
        assert_eq!(pool.take(at(20) + BLOCK_LIFE).as_deref(), Some(&20u32.to_be_bytes()[..]));
        assert_eq!((pool.take(at(9000) + BLOCK_LIFE), pool.is_empty()), (None, true));
    }

    #[test]
    fn void_blocks_are_not_used_whenever_they_come() {
        let mut pool = Pool::default();
        (0..4).for_each(|number| pool.put(at(0), number, &[number as u8]));
        pool.void(3);
        pool.void(1);
        pool.put(at(0), 2, &[2]);
        pool.put(at(0), 5, &[5]);
        assert_eq!((pool.take(at(1)).as_deref(), pool.take(at(1)).as_deref()), (Some(&[3][..]), Some(&[5][..])));
        assert!(pool.is_empty());
    }

    #[test]
    fn a_block_is_lost_once_a_later_one_has_brought_a_cell_and_its_own_is_late() {
        let mut grants = granted(4);
        grants.on_delivered(2, 2, at(1000));
        grants.on_delivered(0, 2, at(1005));
        let mut lost = Vec::new();
        // 2 and 3 came first, so 0 was used after both.
        grants.on_returned(at(50), 0, at(1010));
        grants.on_timer(at(79), |serial, _| lost.push(serial));
        assert_eq!((lost.len(), grants.timer(), grants.outstanding()), (0, Some(at(80)), 3));
        grants.on_returned(at(60), 2, at(1008));
        grants.on_timer(at(80), |serial, _| lost.push(serial));
        assert_eq!((&lost[..], grants.outstanding(), grants.wanted()), (&[3][..], 1, 3), "1 may still be unused");
        grants.on_returned(at(90), 3, at(1009));
        assert_eq!(grants.outstanding(), 1);
    }

    #[test]
    fn blocks_that_came_back_bound_how_many_more_are_out() {
        let mut grants = Grants::new(MAX_POOL);
        let give = |grants: &mut Grants| {
            let wanted = grants.wanted();
            (0..wanted).for_each(|_| _ = grants.put(&[1], Duration::ZERO, false).unwrap());
            grants.take(at(0), wanted, &mut Vec::new())
        };
        let (first, count) = give(&mut grants);
        assert_eq!((count as usize, grants.wanted()), (FIRST_BLOCKS, 0));
        grants.on_delivered(first, count, at(1));
        grants.on_returned(at(2), 0, at(1));
        assert_eq!(grants.wanted(), 2, "another for it, and one more");
        for serial in 1..FIRST_BLOCKS as u64 {
            grants.on_returned(at(2), serial, at(1));
        }
        assert_eq!(grants.wanted(), 2 * FIRST_BLOCKS);
        // What is given up is made anew at once.
        give(&mut grants);
        grants.write_off();
        assert_eq!(grants.wanted(), 2 * FIRST_BLOCKS);
        grants.set_target(40);
        assert_eq!(grants.wanted(), 40);
    }

    #[test]
    fn blocks_of_a_lost_cell_are_replaced_unless_they_had_come() {
        let mut grants = granted(5);
        grants.on_delivered(0, 2, at(0));
        assert_eq!(grants.on_undelivered(0, 5), [2, 3, 4]);
        assert_eq!((grants.outstanding(), grants.wanted()), (2, 3));
        grants.on_timer(at(1) + BLOCK_LIFE, |_, _| panic!("nobody knows"));
        assert_eq!((grants.outstanding(), grants.timer(), grants.held.len()), (0, None, 0));
    }

    #[test]
    fn all_blocks_of_a_session_have_one_length() {
        let mut grants = Grants::new(9);
        assert_eq!(grants.put(&[], Duration::ZERO, false), Err(BlockError::Length));
        assert_eq!(grants.put(&[0; MAX_BLOCK + 1], Duration::ZERO, false), Err(BlockError::Length));
        assert_eq!(
            (grants.put(&[0; 9], Duration::ZERO, false), grants.put(&[0; 9], Duration::ZERO, false)),
            (Ok(0), Ok(1))
        );
        assert_eq!(grants.put(&[0; 8], Duration::ZERO, false), Err(BlockError::OtherLength));
    }
}
