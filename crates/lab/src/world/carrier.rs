//! How messages lie in a fabric.

use anabranch_proto::machine::{Machine, Wire};
use anabranch_sim::pairs::Letter;

/// How a machine's messages are written into the fabric's slots, and read.
pub trait Carrier<M: Machine> {
    /// What a slot holds.
    type Payload;

    /// Messages own memory that is worth using again for the next. Those that do not are read into
    /// a new place each time, so that only what a machine looks at is read at all.
    const REUSES_MEMORY: bool = true;

    /// Writes `message` into a slot, whatever was there before.
    fn pack(&mut self, message: &M::Message, payload: &mut Self::Payload);

    /// Brings a slot in which `message` has arrived up to date: what its machine has changed of it
    /// before it sent it on.
    #[inline]
    fn repack(&mut self, message: &M::Message, payload: &mut Self::Payload) {
        self.pack(message, payload);
    }

    /// Reads a slot into `message`; false if what arrived can't be read, which is counted.
    fn unpack(&mut self, payload: &Self::Payload, message: &mut M::Message) -> bool;
}

/// Messages in the form that they have on the wire: what arrives is read by the codec that ships.
#[derive(Clone, Copy, Debug, Default)]
pub struct OnTheWire;

impl<M: Machine<Message: Wire>> Carrier<M> for OnTheWire {
    type Payload = Letter<Vec<u8>>;

    fn pack(&mut self, message: &M::Message, letter: &mut Letter<Vec<u8>>) {
        message.write(&mut letter.content);
    }

    fn unpack(&mut self, letter: &Letter<Vec<u8>>, message: &mut M::Message) -> bool {
        message.read(&letter.content).is_ok()
    }
}

/// Messages as they are: what arrives is a copy of what left.
#[derive(Clone, Copy, Debug, Default)]
pub struct AsTheyAre;

impl<M: Machine<Message: Clone>> Carrier<M> for AsTheyAre {
    type Payload = M::Message;

    const REUSES_MEMORY: bool = false;

    #[inline]
    fn pack(&mut self, message: &M::Message, slot: &mut M::Message) {
        slot.clone_from(message);
    }

    #[inline]
    fn unpack(&mut self, slot: &M::Message, message: &mut M::Message) -> bool {
        message.clone_from(slot);
        true
    }
}
