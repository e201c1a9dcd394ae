//! What is said to a relay's mailboxes in the bodies of packets, and what it answers by blocks.
//!
//! ```text
//! to MAILBOX   1 open     key (32) | secret (16) | epoch (8) | signature (64) | how many (1) | blocks
//!              2 fill     label (8) | secret (16) | asks (1), anew (2) | how many (1) | blocks
//!              3 publish  part of a descriptor | block
//!              4 fetch    key (32) | 2 blocks
//! to ONWARD    block (219) | cell (965)
//! to a label   what its owner is to get
//! back         1 mailbox  label (8) | how it is (1) | blocks held (2) | bodies without one (4)
//!              2 stored | 3 not stored | 4 not known | 5 part of a descriptor
//! ```
//!
//! An opening, and a filling that asks, are answered by the first of their blocks, and the others are kept; in the
//! place of all that are there, if they are to be there anew. Numbers are big-endian, and what is left of a body is
//! zeros. Every decoder here is total.

use anabranch_proto::codec::{CodecError, Reader, Writer};

use super::descriptor::Part;
use crate::directory::{Context, PublicKey, SecretKey, Signature};
use crate::packet::{BODY, LABEL, Label};
use crate::reply::ReplyBlock;

/// What the owner of a mailbox and its relay share.
pub type Secret = [u8; 16];

/// Blocks in one opening at most.
pub const BLOCKS_OPENING: usize = 4;

/// Blocks in one filling at most.
pub const BLOCKS_FILLING: usize = 5;

const CONTEXT: &str = "anabranch onion mailbox label 1";

const OPEN: u8 = 1;
const FILL: u8 = 2;
const PUBLISH: u8 = 3;
const FETCH: u8 = 4;

const ASKS: u8 = 1;
const ANEW: u8 = 2;

const _: () = {
    assert!(1 + 32 + 16 + 8 + 64 + 1 + BLOCKS_OPENING * ReplyBlock::BYTES <= BODY);
    assert!(1 + LABEL + 16 + 2 + BLOCKS_FILLING * ReplyBlock::BYTES <= BODY);
    assert!(1 + Part::BYTES + ReplyBlock::BYTES <= BODY);
};

/// What a mailbox whose owner has this key is found by: nobody can take the label of another's.
pub fn label_of(key: &PublicKey) -> Label {
    let hash = blake3::Hasher::new_derive_key(CONTEXT).update(&key.0).finalize();
    Label(*hash.as_bytes().first_chunk().expect("a hash is longer than a label"))
}

/// That a mailbox is to be opened.
#[derive(Debug, PartialEq, Eq)]
pub struct Open {
    /// Its owner's key, made for it alone.
    pub key: PublicKey,
    /// What fillings show from now on.
    pub secret: Secret,
    /// The epoch that it is for.
    pub epoch: u64,
    /// The owner's signature, for one relay.
    pub signature: Signature,
    /// Blocks, the first of which is for the answer.
    pub blocks: Vec<ReplyBlock>,
}

impl Open {
    /// Opens the mailbox of `key` at the relay `at`.
    pub fn new(key: &SecretKey, at: &PublicKey, epoch: u64, secret: Secret, blocks: Vec<ReplyBlock>) -> Open {
        let signature = key.sign(Context::Mailbox, &Open::signed(at, epoch, &secret));
        Open { key: key.public(), secret, epoch, signature, blocks }
    }

    fn signed(at: &PublicKey, epoch: u64, secret: &Secret) -> Vec<u8> {
        [&at.0[..], &epoch.to_be_bytes(), secret].concat()
    }

    /// Whether the owner has signed it for the relay `at`.
    pub fn is_signed_for(&self, at: &PublicKey) -> bool {
        self.key.verifies(Context::Mailbox, &Open::signed(at, self.epoch, &self.secret), &self.signature)
    }
}

/// What is said to a relay's mailboxes.
#[derive(Debug, PartialEq, Eq)]
pub enum Request {
    /// By an owner, for the first time in an epoch.
    Open(Open),
    /// By an owner.
    Fill {
        /// Which mailbox.
        label: Label,
        /// What it was opened with.
        secret: Secret,
        /// Whether the first block is for an answer.
        asks: bool,
        /// Whether blocks that are there already are of no use.
        anew: bool,
        /// Blocks.
        blocks: Vec<ReplyBlock>,
    },
    /// By a receiver: keep this.
    Publish {
        /// The part.
        part: Box<Part>,
        /// For the answer.
        answer: ReplyBlock,
    },
    /// By a sender: what is there of this receiver?
    Fetch {
        /// Its key of the epoch.
        key: PublicKey,
        /// For the answers.
        answers: Box<[ReplyBlock; 2]>,
    },
}

fn write_blocks(blocks: &[ReplyBlock], writer: &mut Writer<'_>) {
    writer.u8(blocks.len() as u8);
    blocks.iter().for_each(|block| writer.bytes(&block.to_bytes()));
}

fn read_block(reader: &mut Reader<'_>) -> Result<ReplyBlock, CodecError> {
    ReplyBlock::from_bytes(&reader.array()?).ok_or(CodecError::Value("block"))
}

fn read_blocks(most: usize, reader: &mut Reader<'_>) -> Result<Vec<ReplyBlock>, CodecError> {
    let count = usize::from(reader.u8()?);
    if count > most {
        return Err(CodecError::Value("blocks"));
    }
    (0..count).map(|_| read_block(reader)).collect()
}

fn read_padding(reader: &mut Reader<'_>) -> Result<(), CodecError> {
    if reader.rest().iter().all(|byte| *byte == 0) { Ok(()) } else { Err(CodecError::Value("padding")) }
}

fn fill(body: &mut [u8; BODY], bytes: &[u8]) {
    body[..bytes.len()].copy_from_slice(bytes);
    body[bytes.len()..].fill(0);
}

impl Request {
    /// Writes it into a body.
    pub fn write(&self, body: &mut [u8; BODY]) {
        let mut bytes = Vec::with_capacity(BODY);
        let mut writer = Writer::new(&mut bytes);
        match self {
            Request::Open(Open { key, secret, epoch, signature, blocks }) => {
                writer.u8(OPEN);
                writer.bytes(&key.0);
                writer.bytes(secret);
                writer.u64(*epoch);
                writer.bytes(&signature.to_bytes());
                write_blocks(blocks, &mut writer);
            }
            Request::Fill { label, secret, asks, anew, blocks } => {
                writer.u8(FILL);
                writer.bytes(&label.0);
                writer.bytes(secret);
                writer.u8((u8::from(*asks) * ASKS) | (u8::from(*anew) * ANEW));
                write_blocks(blocks, &mut writer);
            }
            Request::Publish { part, answer } => {
                writer.u8(PUBLISH);
                part.write(&mut writer);
                writer.bytes(&answer.to_bytes());
            }
            Request::Fetch { key, answers } => {
                writer.u8(FETCH);
                writer.bytes(&key.0);
                answers.iter().for_each(|block| writer.bytes(&block.to_bytes()));
            }
        }
        fill(body, &bytes);
    }

    /// Reads one.
    ///
    /// # Errors
    ///
    /// When the body is none.
    pub fn read(body: &[u8; BODY]) -> Result<Request, CodecError> {
        let mut reader = Reader::new(body);
        let request = match reader.u8()? {
            OPEN => {
                let (key, secret, epoch) = (PublicKey(reader.array()?), reader.array()?, reader.u64()?);
                let signature = Signature::from_bytes(&reader.array()?);
                let blocks = read_blocks(BLOCKS_OPENING, &mut reader)?;
                Request::Open(Open { key, secret, epoch, signature, blocks })
            }
            FILL => {
                let (label, secret, how) = (Label(reader.array()?), reader.array()?, reader.u8()?);
                if how & !(ASKS | ANEW) != 0 {
                    return Err(CodecError::Value("asks"));
                }
                let blocks = read_blocks(BLOCKS_FILLING, &mut reader)?;
                Request::Fill { label, secret, asks: how & ASKS != 0, anew: how & ANEW != 0, blocks }
            }
            PUBLISH => {
                let part = Box::new(Part::read(&mut reader)?);
                Request::Publish { part, answer: read_block(&mut reader)? }
            }
            FETCH => {
                let key = PublicKey(reader.array()?);
                Request::Fetch { key, answers: Box::new([read_block(&mut reader)?, read_block(&mut reader)?]) }
            }
            _ => return Err(CodecError::Value("request")),
        };
        read_padding(&mut reader)?;
        Ok(request)
    }
}

/// How a mailbox is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum MailboxState {
    /// It is open.
    Open = 0,
    /// There is none: it was never opened, or was forgotten.
    Unknown = 1,
    /// The relay has no room for another.
    Full = 2,
    /// It is for another epoch than the relay is in.
    OtherEpoch = 3,
    /// It is not signed by its owner, for this relay.
    Unsigned = 4,
}

impl MailboxState {
    const ALL: [MailboxState; 5] = [
        MailboxState::Open,
        MailboxState::Unknown,
        MailboxState::Full,
        MailboxState::OtherEpoch,
        MailboxState::Unsigned,
    ];
}

/// What a relay answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// To an owner.
    Mailbox {
        /// Which one.
        label: Label,
        /// How it is.
        state: MailboxState,
        /// Blocks that are held.
        held: u16,
        /// Bodies that were dropped for want of a block, since it was opened.
        dry: u32,
    },
    /// The part is kept.
    Stored,
    /// It is not: it is not signed, not of this epoch, or older than what is kept.
    NotStored,
    /// There is nothing of this receiver.
    NotKnown,
    /// This is.
    Part(Box<Part>),
}

impl Answer {
    /// Writes it into a body.
    pub fn write(&self, body: &mut [u8; BODY]) {
        let mut bytes = Vec::with_capacity(BODY);
        let mut writer = Writer::new(&mut bytes);
        match self {
            Answer::Mailbox { label, state, held, dry } => {
                writer.u8(1);
                writer.bytes(&label.0);
                writer.u8(*state as u8);
                writer.u16(*held);
                writer.u32(*dry);
            }
            Answer::Stored => writer.u8(2),
            Answer::NotStored => writer.u8(3),
            Answer::NotKnown => writer.u8(4),
            Answer::Part(part) => {
                writer.u8(5);
                part.write(&mut writer);
            }
        }
        fill(body, &bytes);
    }

    /// Reads one.
    ///
    /// # Errors
    ///
    /// When the body is none.
    pub fn read(body: &[u8; BODY]) -> Result<Answer, CodecError> {
        let mut reader = Reader::new(body);
        let answer = match reader.u8()? {
            1 => {
                let (label, state) = (Label(reader.array()?), reader.u8()?);
                let state = MailboxState::ALL.into_iter().find(|known| *known as u8 == state);
                let state = state.ok_or(CodecError::Value("state"))?;
                Answer::Mailbox { label, state, held: reader.u16()?, dry: reader.u32()? }
            }
            2 => Answer::Stored,
            3 => Answer::NotStored,
            4 => Answer::NotKnown,
            5 => Answer::Part(Box::new(Part::read(&mut reader)?)),
            _ => return Err(CodecError::Value("answer")),
        };
        read_padding(&mut reader)?;
        Ok(answer)
    }
}

/// Writes a cell and the block by which it goes on into a body.
///
/// # Panics
///
/// When the cell has another length than [`HIDDEN_CELL`](super::HIDDEN_CELL).
pub fn write_onward(block: &ReplyBlock, cell: &[u8], body: &mut [u8; BODY]) {
    let (place, rest) = body.split_at_mut(ReplyBlock::BYTES);
    place.copy_from_slice(&block.to_bytes());
    rest.copy_from_slice(cell);
}

/// Takes the block off a body: what lies beside it is moved to the front.
pub fn take_onward(body: &mut [u8; BODY]) -> Option<ReplyBlock> {
    let block = body.first_chunk().and_then(ReplyBlock::from_bytes)?;
    body.copy_within(ReplyBlock::BYTES.., 0);
    body[BODY - ReplyBlock::BYTES..].fill(0);
    Some(block)
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::hidden::HIDDEN_CELL;
    use crate::hidden::descriptor::tests::parts;

    /// A block that no relay can open.
    pub fn block(number: u8) -> ReplyBlock {
        let mut bytes = [number; ReplyBlock::BYTES];
        bytes[..2].fill(0);
        ReplyBlock::from_bytes(&bytes).expect("relay 0")
    }

    #[test]
    fn what_was_written_is_read() {
        let key = SecretKey::from_seed(&[4; 32]);
        let (_, _, [part, _]) = parts(1, 5, 8);
        let at = PublicKey([8; 32]);
        let open = Open::new(&key, &at, 9, [7; 16], (0..4).map(block).collect());
        assert!(open.is_signed_for(&at) && !open.is_signed_for(&PublicKey([9; 32])));
        let requests = [
            Request::Open(open),
            Request::Fill {
                label: Label([1; 8]),
                secret: [3; 16],
                asks: true,
                anew: true,
                blocks: (0..5).map(block).collect(),
            },
            Request::Fill { label: Label([1; 8]), secret: [3; 16], asks: false, anew: false, blocks: Vec::new() },
            Request::Publish { part: Box::new(part.clone()), answer: block(1) },
            Request::Fetch { key: at, answers: Box::new([block(3), block(4)]) },
        ];
        let mut body = [1; BODY];
        for request in requests {
            request.write(&mut body);
            assert_eq!(Request::read(&body), Ok(request));
            body[BODY - 1] = 1;
            assert!(Request::read(&body).is_err());
        }
        let mailbox = Answer::Mailbox { label: Label([1; 8]), state: MailboxState::Full, held: 513, dry: 70_000 };
        for answer in [mailbox, Answer::Stored, Answer::NotStored, Answer::NotKnown, Answer::Part(Box::new(part))] {
            answer.write(&mut body);
            assert_eq!(Answer::read(&body), Ok(answer));
        }
        write_onward(&block(6), &[8; HIDDEN_CELL], &mut body);
        assert_eq!(take_onward(&mut body), Some(block(6)));
        assert!(body[..HIDDEN_CELL] == [8; HIDDEN_CELL] && body[HIDDEN_CELL..].iter().all(|byte| *byte == 0));
    }

    proptest! {
        #[test]
        fn any_body_is_something_or_nothing(kind in 0u8..7, bytes in prop::collection::vec(any::<u8>(), 0..BODY), count in 0u8..8) {
            let mut body = [0; BODY];
            body[..bytes.len()].copy_from_slice(&bytes);
            body[0] = kind;
            // Where a count stands in an opening and in a filling.
            (body[121], body[26]) = (count, count);
            if let Ok(request) = Request::read(&body) {
                let mut again = [1; BODY];
                request.write(&mut again);
                prop_assert_eq!(again, body);
            }
            if let Ok(answer) = Answer::read(&body) {
                let mut again = [1; BODY];
                answer.write(&mut again);
                prop_assert_eq!(again, body);
            }
        }
    }
}
