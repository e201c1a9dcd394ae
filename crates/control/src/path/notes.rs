//! What is noted of each packet that a sender remembers, for each relay of its path, in the types of who notes it.
//!
//! A sender numbers the packets that it remembers, and a number is free again once its packet is forgotten. So
//! notes stand in a table by that number, and nobody need be told when a packet is forgotten.

/// Notes of type `N`: as many for each packet as it passes relays.
#[derive(Clone, Debug)]
pub struct Notes<N> {
    notes: Vec<N>,
}

impl<N> Default for Notes<N> {
    fn default() -> Notes<N> {
        Notes { notes: Vec::new() }
    }
}

impl<N: Copy + Default> Notes<N> {
    /// What is noted of the `relays` that packet `packet` passes, to be written anew.
    #[inline]
    pub fn of_mut(&mut self, packet: u32, relays: usize) -> &mut [N] {
        let first = packet as usize * relays;
        if self.notes.len() < first + relays {
            self.grow(first + relays);
        }
        &mut self.notes[first..first + relays]
    }

    #[cold]
    fn grow(&mut self, len: usize) {
        let more = len - self.notes.len();
        make_room(&mut self.notes, more);
        self.notes.resize(len, N::default());
    }

    /// What was noted of the `relays` that packet `packet` passes.
    #[inline]
    pub fn of(&self, packet: u32, relays: usize) -> &[N] {
        let first = packet as usize * relays;
        &self.notes[first..first + relays]
    }

    /// Heap memory in bytes.
    pub fn heap_bytes(&self) -> usize {
        self.notes.capacity() * size_of::<N>()
    }
}

/// Numbers of the packets that a sender remembers, where it does not keep them by numbers itself.
#[derive(Clone, Debug, Default)]
pub struct Numbers {
    free: Vec<u32>,
    /// The least that no packet has had yet.
    unused: u32,
}

impl Numbers {
    /// A number that no packet has.
    pub fn take(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            self.unused += 1;
            self.unused - 1
        })
    }

    /// The packet of `number` is forgotten.
    pub fn give_back(&mut self, number: u32) {
        self.free.push(number);
    }
}

/// The least room that a table of what a sender remembers grows by.
pub const LEAST_ROOM: usize = 8;

/// Room for `more` in such a table; by a quarter of it, where doubling would leave a third of the memory
/// unused.
#[inline]
pub fn make_room<T>(table: &mut Vec<T>, more: usize) {
    if table.capacity() - table.len() < more {
        table.reserve_exact(table.len() / 4 + LEAST_ROOM.max(more));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_relay_of_each_packet_has_its_note_and_a_packet_of_the_same_number_another() {
        let mut notes = Notes::default();
        for packet in 0..50 {
            notes.of_mut(packet, 3).copy_from_slice(&[(packet, 0), (packet, 1), (packet, 2)]);
        }
        notes.of_mut(7, 3).copy_from_slice(&[(99, 0), (99, 1), (99, 2)]);
        for packet in 0..50 {
            let expected = if packet == 7 { 99 } else { packet };
            assert_eq!(notes.of(packet, 3), [(expected, 0), (expected, 1), (expected, 2)]);
        }
        assert!(notes.heap_bytes() < 200 * size_of::<(u32, u32)>(), "a quarter more than there are");
    }

    #[test]
    fn no_two_packets_have_a_number_and_free_ones_come_first() {
        let mut numbers = Numbers::default();
        assert_eq!([(); 3].map(|()| numbers.take()), [0, 1, 2]);
        numbers.give_back(1);
        assert_eq!([(); 2].map(|()| numbers.take()), [1, 3]);
    }

    #[test]
    fn who_notes_nothing_keeps_nothing() {
        let mut notes = Notes::default();
        (0..1000).for_each(|packet| notes.of_mut(packet, 3).fill(()));
        assert_eq!(notes.heap_bytes(), 0);
    }
}
