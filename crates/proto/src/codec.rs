//! Bytes in and out, within bounds: what wire formats are written and read with. Integers are
//! big-endian.

use core::fmt;

/// Why bytes are not what they should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CodecError {
    /// They end before the value does.
    Short,
    /// There are more of them than the value has.
    Trailing,
    /// No value has this in its field.
    Value(&'static str),
    /// The field says that there are more of something than there may be.
    TooMany(&'static str),
}

impl fmt::Display for CodecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CodecError::Short => write!(f, "the bytes end too early"),
            CodecError::Trailing => write!(f, "more bytes than expected"),
            CodecError::Value(field) => write!(f, "no such value of `{field}`"),
            CodecError::TooMany(field) => write!(f, "too many of `{field}`"),
        }
    }
}

impl core::error::Error for CodecError {}

/// Reads from the front of some bytes.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

macro_rules! integers {
    ($($name:ident $type:ty),*) => {
        impl Reader<'_> {
            $(
                #[doc = concat!("The next ", stringify!($type), ".")]
                ///
                /// # Errors
                ///
                /// When fewer bytes are left.
                #[inline]
                pub fn $name(&mut self) -> Result<$type, CodecError> {
                    self.array().map(<$type>::from_be_bytes)
                }
            )*
        }

        impl Writer<'_> {
            $(
                #[doc = concat!("Appends a ", stringify!($type), ".")]
                #[inline]
                pub fn $name(&mut self, value: $type) {
                    self.bytes(&value.to_be_bytes());
                }
            )*
        }
    };
}

integers!(u8 u8, u16 u16, u32 u32, u64 u64);

impl<'a> Reader<'a> {
    /// Reads `bytes`.
    pub fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { rest: bytes }
    }

    /// How many bytes are left.
    pub fn left(&self) -> usize {
        self.rest.len()
    }

    /// The next `count` bytes.
    ///
    /// # Errors
    ///
    /// When fewer are left.
    #[inline]
    pub fn bytes(&mut self, count: usize) -> Result<&'a [u8], CodecError> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or(CodecError::Short)?;
        self.rest = rest;
        Ok(taken)
    }

    /// The next `N` bytes.
    ///
    /// # Errors
    ///
    /// When fewer are left.
    #[inline]
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], CodecError> {
        let (taken, rest) = self.rest.split_first_chunk().ok_or(CodecError::Short)?;
        self.rest = rest;
        Ok(*taken)
    }

    /// All bytes that are left.
    pub fn rest(&mut self) -> &'a [u8] {
        core::mem::take(&mut self.rest)
    }

    /// How many of `field` follow, `most` at most: `count`, as it was just read. As many as that
    /// fit what is left if each takes `least` bytes, so that a lie reserves no memory.
    ///
    /// # Errors
    ///
    /// When `count` is above `most`, or what is left cannot hold that many.
    pub fn count(&self, field: &'static str, count: usize, most: usize, least: usize) -> Result<usize, CodecError> {
        match count {
            count if count > most => Err(CodecError::TooMany(field)),
            count if count * least > self.rest.len() => Err(CodecError::Short),
            count => Ok(count),
        }
    }

    /// Nothing is left.
    ///
    /// # Errors
    ///
    /// When something is.
    pub fn end(self) -> Result<(), CodecError> {
        if self.rest.is_empty() { Ok(()) } else { Err(CodecError::Trailing) }
    }
}

/// Appends to some bytes.
#[derive(Debug)]
pub struct Writer<'a> {
    out: &'a mut Vec<u8>,
}

impl<'a> Writer<'a> {
    /// Appends to `out`.
    pub fn new(out: &'a mut Vec<u8>) -> Writer<'a> {
        Writer { out }
    }

    /// Appends `bytes`.
    #[inline]
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_nothing_beyond() {
        let mut bytes = Vec::new();
        let mut writer = Writer::new(&mut bytes);
        writer.u8(1);
        writer.u16(0x0203);
        writer.u32(0x0405_0607);
        writer.u64(8);
        writer.bytes(&[9, 10]);
        let mut reader = Reader::new(&bytes);
        assert_eq!(
            (reader.u8(), reader.u16(), reader.u32(), reader.u64()),
            (Ok(1), Ok(0x0203), Ok(0x0405_0607), Ok(8))
        );
        assert_eq!(reader.end(), Err(CodecError::Trailing));
        assert_eq!((reader.u32(), reader.left()), (Err(CodecError::Short), 2), "a failure takes nothing");
        assert_eq!((reader.bytes(3), reader.bytes(2)), (Err(CodecError::Short), Ok(&[9, 10][..])));
        assert_eq!((reader.end(), reader.u8()), (Ok(()), Err(CodecError::Short)));
    }

    #[test]
    fn a_count_is_believed_as_far_as_bytes_are_there() {
        let reader = Reader::new(&[0; 10]);
        assert_eq!(reader.count("x", 5, 5, 2), Ok(5));
        assert_eq!(reader.count("x", 6, 5, 1), Err(CodecError::TooMany("x")));
        assert_eq!(reader.count("x", 5, 5, 3), Err(CodecError::Short));
    }
}
