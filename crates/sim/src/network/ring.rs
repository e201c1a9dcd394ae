//! A queue in a ring whose places are a power of two: a mask finds every place. The packets on a link's way pass
//! through one, the hottest of all queues here.

/// First in, first out.
#[derive(Clone, Debug)]
pub struct Ring<T> {
    places: Box<[T]>,
    /// The first, and where the next will stand, both without the mask.
    first: usize,
    next: usize,
}

/// Places at first.
const FIRST_PLACES: usize = 4;

impl<T: Copy + Default> Ring<T> {
    /// Nothing.
    pub fn new() -> Ring<T> {
        Ring { places: vec![T::default(); FIRST_PLACES].into(), first: 0, next: 0 }
    }

    /// How many there are.
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.next.wrapping_sub(self.first)
    }

    /// For how many there is memory.
    #[cfg(test)]
    pub fn places(&self) -> usize {
        self.places.len()
    }

    /// Whether another one would take more memory.
    #[inline(always)]
    pub fn is_full(&self) -> bool {
        self.len() == self.places.len()
    }

    /// The first.
    #[inline(always)]
    pub fn front(&self) -> Option<T> {
        let mask = self.places.len() - 1;
        (self.first != self.next).then(|| self.places[self.first & mask])
    }

    /// Adds one at the end.
    #[inline(always)]
    pub fn push_back(&mut self, item: T) {
        if self.is_full() {
            self.grow();
        }
        let mask = self.places.len() - 1;
        self.places[self.next & mask] = item;
        self.next = self.next.wrapping_add(1);
    }

    /// Takes the first.
    #[inline(always)]
    pub fn pop_front(&mut self) -> Option<T> {
        let item = self.front()?;
        self.first = self.first.wrapping_add(1);
        Some(item)
    }

    /// Takes all away; memory is kept, and the next stands in its first place.
    #[inline(always)]
    pub fn clear(&mut self) {
        (self.first, self.next) = (0, 0);
    }

    #[cold]
    #[inline(never)]
    fn grow(&mut self) {
        let length = self.len();
        let mut places = vec![T::default(); 2 * self.places.len()].into_boxed_slice();
        for place in &mut places[..length] {
            *place = self.pop_front().expect("there are that many");
        }
        (self.places, self.first, self.next) = (places, 0, length);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use anabranch_control::rng::Rng;

    use super::*;

    #[test]
    fn it_is_a_queue_whatever_comes_and_goes() {
        let mut rng = Rng::stream(3, "ring");
        let (mut ring, mut queue) = (Ring::new(), VecDeque::new());
        for number in 0..20_000u32 {
            // More come than go for a while, then the other way round.
            let comes = rng.chance(if number / 1_000 % 2 == 0 { 0.6 } else { 0.35 });
            if comes {
                ring.push_back(number);
                queue.push_back(number);
            } else {
                assert_eq!(ring.pop_front(), queue.pop_front());
            }
            if rng.chance(0.001) {
                ring.clear();
                queue.clear();
            }
            assert_eq!((ring.len(), ring.front()), (queue.len(), queue.front().copied()));
        }
    }
}
