//! The outside of a cell: what its kind is and whose it is. All cells have one length.
//!
//! ```text
//! part of an opening    0 | name (8) | which (1) | half of the opening
//! answer                1 | name (8) | answer (48) | zeros
//! sealed                2 | name (8) | number (8) | sealed plain text
//! ```
//!
//! Only the other end sees this: for everybody else it is inside the packet's own encryption.

use anabranch_proto::codec::{CodecError, Reader};
use anabranch_proto::seal::TAG;

use super::handshake::{ANSWER, OPENING_OVERHEAD, Secrecy, SessionName};

const PART: u8 = 0;
const REPLY: u8 = 1;
const SEALED: u8 = 2;

/// Bytes before a half of an opening.
const PART_HEADER: usize = 1 + 8 + 1;

/// Bytes before what is sealed.
const SEALED_HEADER: usize = 1 + 8 + 8;

/// The least length of a cell: two halves hold an opening with a reply block of some length.
pub const MIN_CELL: usize = 800;

/// The greatest: far below what Noise seals at once, and what a data frame's length says.
pub const MAX_CELL: usize = 32_000;

/// What all cells of a session have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CellFormat {
    cell: usize,
    secrecy: Secrecy,
}

impl CellFormat {
    /// Cells of `cell` bytes, [`MIN_CELL`] to [`MAX_CELL`].
    ///
    /// # Errors
    ///
    /// When that is none of them.
    pub fn new(cell: usize, secrecy: Secrecy) -> Result<CellFormat, CodecError> {
        if (MIN_CELL..=MAX_CELL).contains(&cell) {
            Ok(CellFormat { cell, secrecy })
        } else {
            Err(CodecError::Value("cell"))
        }
    }

    /// Bytes of a cell.
    pub fn cell(&self) -> usize {
        self.cell
    }

    /// Whether cells are truly sealed.
    pub fn secrecy(&self) -> Secrecy {
        self.secrecy
    }

    /// Bytes of a cell's plain text.
    pub fn plain(&self) -> usize {
        self.cell - SEALED_HEADER - TAG
    }

    /// Bytes of half an opening.
    pub fn half(&self) -> usize {
        self.cell - PART_HEADER
    }

    /// Bytes of an opening's payload, so that two halves are full.
    pub fn payload(&self) -> usize {
        2 * self.half() - OPENING_OVERHEAD
    }
}

/// A cell, seen from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Envelope<'a> {
    /// Half of an opening.
    Part {
        /// Of this session.
        name: SessionName,
        /// Whether it is the second half.
        is_second: bool,
        /// The half.
        bytes: &'a [u8],
    },
    /// The answer to an opening.
    Answer {
        /// Of this session.
        name: SessionName,
        /// Noise's second message.
        bytes: &'a [u8; ANSWER],
    },
    /// A sealed cell.
    Sealed {
        /// Of this session.
        name: SessionName,
        /// Its number.
        number: u64,
        /// The sealed plain text.
        bytes: &'a [u8],
    },
}

impl<'a> Envelope<'a> {
    /// Reads a cell.
    ///
    /// # Errors
    ///
    /// When it has another length, or is of no kind.
    pub fn read(format: &CellFormat, cell: &'a [u8]) -> Result<Envelope<'a>, CodecError> {
        if cell.len() != format.cell {
            return Err(CodecError::Value("cell"));
        }
        let mut reader = Reader::new(cell);
        let (kind, name) = (reader.u8()?, SessionName(reader.u64()?));
        Ok(match kind {
            PART => {
                let which = reader.u8()?;
                if which > 1 {
                    return Err(CodecError::Value("part"));
                }
                Envelope::Part { name, is_second: which == 1, bytes: reader.rest() }
            }
            REPLY => {
                let bytes = reader.bytes(ANSWER)?.try_into().map_err(|_| CodecError::Short)?;
                if reader.rest().iter().any(|&byte| byte != 0) {
                    return Err(CodecError::Value("padding"));
                }
                Envelope::Answer { name, bytes }
            }
            SEALED => Envelope::Sealed { name, number: reader.u64()?, bytes: reader.rest() },
            _ => return Err(CodecError::Value("cell")),
        })
    }

    /// Whose it is.
    pub fn name(&self) -> SessionName {
        match *self {
            Envelope::Part { name, .. } | Envelope::Answer { name, .. } | Envelope::Sealed { name, .. } => name,
        }
    }

    /// Replaces what is in `out` by what stands before a sealed plain text.
    pub fn begin_sealed(name: SessionName, number: u64, out: &mut Vec<u8>) {
        out.clear();
        out.push(SEALED);
        out.extend_from_slice(&name.0.to_be_bytes());
        out.extend_from_slice(&number.to_be_bytes());
    }

    /// Replaces what is in `out` by half of an opening.
    pub fn write_part(format: &CellFormat, name: SessionName, is_second: bool, opening: &[u8], out: &mut Vec<u8>) {
        out.clear();
        out.push(PART);
        out.extend_from_slice(&name.0.to_be_bytes());
        out.push(u8::from(is_second));
        let (first, second) = opening.split_at(format.half().min(opening.len()));
        out.extend_from_slice(if is_second { second } else { first });
    }

    /// Replaces what is in `out` by an answer.
    pub fn write_answer(format: &CellFormat, name: SessionName, answer: &[u8; ANSWER], out: &mut Vec<u8>) {
        out.clear();
        out.push(REPLY);
        out.extend_from_slice(&name.0.to_be_bytes());
        out.extend_from_slice(answer);
        out.resize(format.cell, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_of_all_kinds_have_one_length_and_are_read_as_written() {
        let format = CellFormat::new(1050, Secrecy::Sealed).unwrap();
        let (name, mut out) = (SessionName(7), Vec::new());
        let opening: Vec<u8> = (0..2 * format.half()).map(|i| i as u8).collect();
        for is_second in [false, true] {
            Envelope::write_part(&format, name, is_second, &opening, &mut out);
            let bytes = if is_second { &opening[format.half()..] } else { &opening[..format.half()] };
            assert_eq!(Envelope::read(&format, &out), Ok(Envelope::Part { name, is_second, bytes }));
        }
        Envelope::write_answer(&format, name, &[3; ANSWER], &mut out);
        assert_eq!(Envelope::read(&format, &out), Ok(Envelope::Answer { name, bytes: &[3; ANSWER] }));
        Envelope::begin_sealed(name, 9, &mut out);
        out.resize(format.plain() + SEALED_HEADER + TAG, 5);
        let bytes = &out[SEALED_HEADER..];
        assert_eq!(Envelope::read(&format, &out), Ok(Envelope::Sealed { name, number: 9, bytes }));
        assert!(Envelope::read(&format, &out[1..]).is_err());
        assert!(CellFormat::new(MIN_CELL - 1, Secrecy::Sealed).is_err());
        assert!(CellFormat::new(MIN_CELL, Secrecy::Sealed).unwrap().payload() >= 400);
    }
}
