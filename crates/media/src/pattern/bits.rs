//! Bits, as H.264 writes them (ITU-T H.264, 7.2 and 9.1).

/// Bits in a row.
#[derive(Clone, Debug, Default)]
pub struct Bits {
    bytes: Vec<u8>,
    /// What fills no byte yet.
    rest: u64,
    /// How many bits that are: less than 8.
    count: u32,
}

impl Bits {
    /// u(n): the last `count` bits of `value`, up to 32.
    pub fn put(&mut self, value: u32, count: u32) {
        self.rest = self.rest << count | u64::from(value);
        self.count += count;
        while self.count >= 8 {
            self.count -= 8;
            self.bytes.push((self.rest >> self.count) as u8);
        }
        self.rest &= (1 << self.count) - 1;
    }

    /// u(1).
    pub fn flag(&mut self, is_set: bool) {
        self.put(is_set.into(), 1);
    }

    /// ue(v): as many zeros as there are bits behind the first one.
    pub fn unsigned(&mut self, value: u32) {
        let code = value + 1;
        self.put(0, code.ilog2());
        self.put(code, code.ilog2() + 1);
    }

    /// se(v): 1, -1, 2, -2 and so on are 1, 2, 3, 4 (9.1.1).
    pub fn signed(&mut self, value: i32) {
        self.unsigned(2 * value.unsigned_abs() - u32::from(value > 0));
    }

    /// The final bit (7.3.2.11), and zeros up to a byte.
    pub fn finish(mut self) -> Vec<u8> {
        self.flag(true);
        self.put(0, (8 - self.count) % 8);
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bits(write: impl FnOnce(&mut Bits)) -> Vec<u8> {
        let mut bits = Bits::default();
        write(&mut bits);
        bits.finish()
    }

    #[test]
    fn numbers_have_the_words_of_table_9_2() {
        // 1, 010, 011, 00100, 0001000, and the final bit.
        let words = bits(|bits| [0, 1, 2, 3, 7].into_iter().for_each(|value| bits.unsigned(value)));
        assert_eq!(words, [0b1010_0110, 0b0100_0001, 0b0001_0000]);
    }

    #[test]
    fn signed_numbers_are_counted_by_size() {
        for (value, code) in [(0, 0), (1, 1), (-1, 2), (2, 3), (-2, 4), (-6, 12)] {
            assert_eq!(bits(|bits| bits.signed(value)), bits(|bits| bits.unsigned(code)), "{value}");
        }
    }

    #[test]
    fn long_words_are_written_whole() {
        assert_eq!(bits(|bits| bits.put(0xdead_beef, 32)), [0xde, 0xad, 0xbe, 0xef, 0x80]);
        assert_eq!(bits(|bits| (bits.put(1, 7), bits.put(u32::MAX, 32)).1), [0x03, 0xff, 0xff, 0xff, 0xff]);
    }
}
