//! Where a session's packets find its service: an exit's label, or a hidden receiver's mailboxes in turns, those left
//! out that seem dead.

use anabranch_control::time::{Duration, Time};

use crate::RelayIndex;
use crate::hidden::MailboxAt;
use crate::packet::Label;
use crate::routes::MOST_FAR;

/// After this many packets in a row to one of a session's mailboxes that did not arrive, others are taken.
const DEAD: u32 = 8;

/// For so long.
const DEAD_FOR: Duration = Duration::from_millis(10_000);

/// To learners, an exit is far end 0, and loops are 1: mailboxes are those behind.
const FIRST: usize = 2;

/// Far ends for those in use, and as many for the reserve.
const HALF: usize = (MOST_FAR - FIRST) / 2;

/// One place.
#[derive(Clone, Copy)]
struct Door {
    at: MailboxAt,
    /// Packets that were lost since one arrived.
    lost: u32,
    /// It was given up until then.
    rests_until: Time,
}

impl Door {
    fn new(at: MailboxAt) -> Door {
        Door { at, lost: 0, rests_until: Time::ZERO }
    }
}

/// All places of a session.
pub(super) struct Doors {
    doors: Vec<Door>,
    /// Those that a session with a hidden receiver began at, while others take their place.
    reserve: Vec<Door>,
    /// Whether these are of an epoch before this one: relays forget their mailboxes soon.
    reserve_is_former: bool,
    is_exit: bool,
    next: usize,
    /// How many doors others have taken the place of: to learners, each is another far end.
    replaced: usize,
}

impl Doors {
    /// An exit.
    pub fn exit(at: MailboxAt) -> Doors {
        Doors { is_exit: true, ..Doors::mailboxes([at]) }
    }

    /// A hidden receiver's mailboxes, one at least.
    pub fn mailboxes(at: impl IntoIterator<Item = MailboxAt>) -> Doors {
        let doors = at.into_iter().map(Door::new).collect();
        Doors { doors, reserve: Vec::new(), reserve_is_former: false, is_exit: false, next: 0, replaced: 0 }
    }

    /// Others take their place, and those that were there first become the reserve; in another epoch, those that were
    /// there last, for they work longer.
    pub fn replace(&mut self, at: impl IntoIterator<Item = MailboxAt>) {
        let before = core::mem::replace(&mut self.doors, at.into_iter().map(Door::new).collect());
        self.replaced += before.len();
        if self.reserve.is_empty() || self.reserve_is_former {
            (self.reserve, self.reserve_is_former) = (before, false);
        }
    }

    /// Another epoch begins, in which `moved` says where relays are; whether any place is left.
    pub fn begin_epoch(&mut self, moved: impl Fn(RelayIndex) -> Option<RelayIndex>) -> bool {
        let moves = |door: &mut Door| {
            let relay = moved(door.at.relay);
            door.at.relay = relay.unwrap_or(door.at.relay);
            relay.is_some()
        };
        self.doors.retain_mut(moves);
        self.reserve.retain_mut(moves);
        self.reserve_is_former = true;
        if self.doors.is_empty() {
            self.doors = core::mem::take(&mut self.reserve);
        }
        !self.doors.is_empty()
    }

    /// Those at `relays` are not to be used any more; whether any place is left.
    pub fn leave(&mut self, relays: &[RelayIndex]) -> bool {
        let stays = |door: &Door| !relays.contains(&door.at.relay);
        self.replaced += self.doors.iter().filter(|door| !stays(door)).count();
        self.doors.retain(stays);
        self.reserve.retain(stays);
        if self.doors.is_empty() {
            self.doors = core::mem::take(&mut self.reserve);
        }
        !self.doors.is_empty()
    }

    /// The relays of those in use.
    pub fn relays(&self) -> Vec<RelayIndex> {
        self.doors.iter().map(|door| door.at.relay).collect()
    }

    /// Where the next packet goes, and which far end that is to learners.
    pub fn next(&mut self, now: Time) -> Option<(u8, MailboxAt)> {
        let turn = self.next;
        self.next = turn.wrapping_add(1);
        let in_turn =
            |doors: &[Door]| -> Vec<usize> { (0..doors.len()).map(|more| (turn + more) % doors.len()).collect() };
        let awake = |doors: &[Door]| in_turn(doors).into_iter().find(|place| doors[*place].rests_until <= now);
        let (is_exit, replaced) = (self.is_exit, self.replaced);
        let far = |place: usize| if is_exit { 0 } else { (FIRST + HALF + (replaced + place) % HALF) as u8 };
        if let Some(place) = awake(&self.doors) {
            return Some((far(place), self.doors[place].at));
        }
        if let Some(place) = awake(&self.reserve) {
            return Some(((FIRST + place % HALF) as u8, self.reserve[place].at));
        }
        let place = in_turn(&self.doors).first().copied()?;
        Some((far(place), self.doors[place].at))
    }

    /// What became of a packet to `label`, which no two places of a session share.
    pub fn on_fate(&mut self, now: Time, label: Label, arrived: bool) {
        let mut all = self.doors.iter_mut().chain(&mut self.reserve);
        let Some(door) = all.find(|known| known.at.label == label) else { return };
        door.lost = if arrived { 0 } else { door.lost + 1 };
        if door.lost >= DEAD {
            (door.lost, door.rests_until) = (0, now + DEAD_FOR);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mailbox(number: u8) -> MailboxAt {
        MailboxAt { relay: RelayIndex(number.into()), label: Label([number; 8]) }
    }

    #[test]
    fn one_that_loses_all_is_left_out_for_a_while_and_the_reserve_is_taken_when_all_do() {
        let now = Time::ZERO + Duration::SECOND;
        let mut doors = Doors::mailboxes([mailbox(1), mailbox(2)]);
        let turns: Vec<_> = (0..4).filter_map(|_| doors.next(now)).map(|(_, at)| at.relay.0).collect();
        assert_eq!(turns, [1, 2, 1, 2]);
        (0..DEAD).for_each(|_| doors.on_fate(now, mailbox(1).label, false));
        assert!((0..4).all(|_| doors.next(now).is_some_and(|(_, at)| at == mailbox(2))));
        doors.replace([mailbox(3)]);
        assert_eq!(doors.next(now).map(|(_, at)| at), Some(mailbox(3)));
        (0..DEAD).for_each(|_| doors.on_fate(now, mailbox(3).label, false));
        assert_eq!(doors.next(now).map(|(_, at)| at), Some(mailbox(2)), "the reserve, but for the dead one");
        assert_eq!(doors.next(now + DEAD_FOR).map(|(_, at)| at), Some(mailbox(3)));
    }

    #[test]
    fn learners_distinguish_exits_loops_doors_and_the_reserve() {
        let now = Time::ZERO;
        assert_eq!(Doors::exit(mailbox(1)).next(now), Some((0, mailbox(1))));
        let mut doors = Doors::mailboxes([mailbox(1), mailbox(2)]);
        let first = doors.next(now).map(|(far, _)| far);
        doors.replace([mailbox(3), mailbox(4)]);
        let second = doors.next(now).map(|(far, _)| far);
        assert!(first != second && first.min(second) >= Some((FIRST + HALF) as u8), "{first:?} {second:?}");
        for label in [3, 4] {
            (0..DEAD).for_each(|_| doors.on_fate(now, mailbox(label).label, false));
        }
        let reserve = doors.next(now).map(|(far, _)| usize::from(far));
        assert!(reserve.is_some_and(|far| (FIRST..FIRST + HALF).contains(&far)), "{reserve:?}");
    }

    #[test]
    fn a_door_stays_by_its_relays_name_or_is_gone() {
        let mut doors = Doors::mailboxes([mailbox(1), mailbox(2)]);
        assert!(doors.begin_epoch(|relay| (relay.0 == 2).then_some(RelayIndex(7))));
        assert_eq!(doors.relays(), [RelayIndex(7)]);
        assert!(!doors.begin_epoch(|_| None));
    }

    #[test]
    fn a_relay_that_is_not_to_be_a_door_any_more_is_none_in_the_reserve_either() {
        let now = Time::ZERO;
        let mut doors = Doors::mailboxes([mailbox(1), mailbox(2)]);
        doors.replace([mailbox(2), mailbox(3)]);
        assert!(doors.leave(&[RelayIndex(2)]));
        assert!((0..3).all(|_| doors.next(now).is_some_and(|(_, at)| at == mailbox(3))));
        assert!(doors.leave(&[RelayIndex(3)]));
        assert_eq!(doors.relays(), [RelayIndex(1)], "the reserve takes their place");
        assert!(!doors.leave(&[RelayIndex(1)]));
    }

    #[test]
    fn the_reserve_outlives_those_in_use_and_is_replaced_by_them_in_another_epoch() {
        let now = Time::ZERO;
        let mut doors = Doors::mailboxes([mailbox(1)]);
        doors.replace([mailbox(2)]);
        assert!(doors.begin_epoch(|relay| (relay.0 == 1).then_some(relay)), "the one in use is not listed any more");
        assert_eq!(doors.next(now).map(|(_, at)| at), Some(mailbox(1)));
        let reserve = |doors: &mut Doors, label: u8| {
            (0..DEAD).for_each(|_| doors.on_fate(now, mailbox(label).label, false));
            doors.next(now).map(|(_, at)| at)
        };
        let mut doors = Doors::mailboxes([mailbox(1)]);
        doors.replace([mailbox(2)]);
        assert!(doors.begin_epoch(Some));
        doors.replace([mailbox(3)]);
        assert_eq!(reserve(&mut doors, 3), Some(mailbox(2)), "that of the last epoch, and none from before");
        doors.replace([mailbox(4)]);
        assert_eq!(reserve(&mut doors, 4), Some(mailbox(2)), "within an epoch the first stay");
    }
}
