//! How many packets of a slice its parent has pushed, of those that it should have.

use super::packet::PacketId;

/// The packets of one slice that one parent pushes.
#[derive(Clone, Copy, Debug)]
pub struct Pushes {
    /// From which packet on they are counted, none before the parent's first; and up to which they are in the next
    /// report. What came after the last report may have holes that the parent still mends.
    counted: Option<PacketId>,
    report_end: PacketId,
    /// How many came below `report_end`, and above.
    received: [u16; 2],
}

impl Pushes {
    /// None yet of a slice that begins with packet `begin`.
    pub fn new(begin: PacketId) -> Pushes {
        Pushes { counted: None, report_end: begin, received: [0; 2] }
    }

    /// Another parent pushes: what it should have pushed begins with its first packet.
    pub fn begin_anew(&mut self) {
        (self.counted, self.received) = (None, [0; 2]);
    }

    /// Whether the parent has pushed anything.
    pub fn have_begun(&self) -> bool {
        self.counted.is_some()
    }

    /// The parent has pushed packet `id`, new or not.
    #[inline]
    pub fn count(&mut self, id: PacketId) {
        let counted = *self.counted.get_or_insert_with(|| {
            self.report_end = id;
            id
        });
        if id >= counted {
            let count = &mut self.received[usize::from(id >= self.report_end)];
            *count = count.saturating_add(1);
        }
    }

    /// How many packets those that came between the last two calls before this one show that the parent should have
    /// pushed, one in `slices` of all, and how many of them came; none if it has pushed nothing. `last` is the packet
    /// after the last that came.
    pub fn take(&mut self, last: PacketId, slices: u64) -> Option<(u16, u16)> {
        let counted = self.counted?;
        let expected = self.report_end.since(counted).div_ceil(slices).min(u64::from(u16::MAX)) as u16;
        let received = self.received[0].min(expected);
        self.counted = Some(self.report_end.max(counted));
        self.report_end = last.max(self.report_end);
        self.received = [self.received[1], 0];
        Some((expected, received))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn however_often_a_packet_is_repeated_it_is_counted_without_overflow() {
        let mut pushes = Pushes::new(PacketId(0));
        (0..70_000).for_each(|_| pushes.count(PacketId(5)));
        assert_eq!(pushes.take(PacketId(6), 1), Some((0, 0)), "its parent may still mend holes");
        assert_eq!(pushes.take(PacketId(6), 1), Some((1, 1)));
    }

    #[test]
    fn a_hole_that_a_parent_mends_in_time_is_none() {
        let mut pushes = Pushes::new(PacketId(0));
        [0, 1, 3, 4].into_iter().for_each(|id| pushes.count(PacketId(id)));
        assert_eq!(pushes.take(PacketId(5), 1), Some((0, 0)));
        [2, 6].into_iter().for_each(|id| pushes.count(PacketId(id)));
        assert_eq!(pushes.take(PacketId(7), 1), Some((5, 5)));
        assert_eq!(pushes.take(PacketId(7), 1), Some((2, 1)), "the fifth never came");
    }

    #[test]
    fn who_has_pushed_nothing_is_not_counted_and_another_begins_with_its_first_packet() {
        let mut pushes = Pushes::new(PacketId(0));
        assert_eq!(pushes.take(PacketId(0), 1), None);
        pushes.count(PacketId(1));
        pushes.begin_anew();
        assert!(!pushes.have_begun());
        pushes.count(PacketId(30));
        assert_eq!((pushes.take(PacketId(31), 10), pushes.take(PacketId(31), 10)), (Some((0, 0)), Some((1, 1))));
    }
}
