//! From a code's words to a sealed channel.
//!
//! SPAKE2 over Ed25519 (Abdalla and Pointcheval 2005, as the library has it; not RFC 9382's transcript) turns the password into a key: who sits between
//! the two, or is one of them, can try one guess of the words and learns nothing more of them. The key is
//! the pre-shared key of a Noise handshake (`NNpsk0`, revision 34, chapter 9), which proves to each side
//! that the other one has it, and seals what they say. The receiver speaks first: a guesser has shown its
//! guess before it sees anything that depends on the words.

use anabranch_proto::seal::TAG;
use snow::{Builder, HandshakeState, TransportState};
use spake2::{Ed25519Group, Identity, Password, Spake2};

use crate::code::Code;
use crate::frame::Side;
use crate::limits::MESSAGE_BYTES;

/// The pattern and its parts; all of them are in the library.
const NOISE: &str = "Noise_NNpsk0_25519_ChaChaPoly_BLAKE2s";

/// Mixed into the handshake: other protocols, and other versions of this one, can't be confused with it.
const PROLOGUE: &[u8] = b"anabranch rendezvous 1";

/// What the pre-shared key is derived for (BLAKE3's `derive_key`).
const KEY_CONTEXT: &str = "anabranch rendezvous 1, pre-shared key";

const VALID: &str = "the pattern and its keys are known to be valid";

/// The other side has other words, or somebody meddles: the code is used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the words are not those of the other side, or somebody meddles")]
pub struct WrongCode;

/// Half an exchange: the other side's message is missing.
pub struct Exchange {
    state: Spake2<Ed25519Group>,
}

impl Exchange {
    /// Begins as `side`; the message for the other side.
    pub fn begin(code: &Code, side: Side) -> (Exchange, Vec<u8>) {
        let password = Password::new(code.password());
        let (sender, receiver) = (Identity::new(b"anabranch sender"), Identity::new(b"anabranch receiver"));
        let (state, message) = match side {
            Side::Sender => Spake2::start_a(&password, &sender, &receiver),
            Side::Receiver => Spake2::start_b(&password, &sender, &receiver),
        };
        (Exchange { state }, message)
    }

    /// The other side's message has come: the key, which is the same there if the words are.
    ///
    /// # Errors
    ///
    /// When it is no such message.
    pub fn finish(self, message: &[u8]) -> Result<Key, WrongCode> {
        let shared = self.state.finish(message).map_err(|_| WrongCode)?;
        Ok(Key(blake3::derive_key(KEY_CONTEXT, &shared)))
    }
}

/// What both sides share if they have the same words.
pub struct Key([u8; 32]);

impl Key {
    fn handshake(&self, side: Side) -> HandshakeState {
        let parameters = NOISE.parse().expect("the pattern's name is valid");
        let builder = Builder::new(parameters).prologue(PROLOGUE).expect(VALID).psk(0, &self.0).expect(VALID);
        match side {
            Side::Receiver => builder.build_initiator().expect(VALID),
            Side::Sender => builder.build_responder().expect(VALID),
        }
    }

    /// The receiver's first message, which shows that it has the key.
    pub fn ask(&self) -> (Asking, Vec<u8>) {
        let mut noise = self.handshake(Side::Receiver);
        let message = write(&mut noise, &[]);
        (Asking(noise), message)
    }

    /// The sender's answer to the receiver's first message: `offer`, sealed.
    ///
    /// # Errors
    ///
    /// When the other side does not have the key.
    pub fn offer(&self, asked: &[u8], offer: &[u8]) -> Result<(Channel, Vec<u8>), WrongCode> {
        let mut noise = self.handshake(Side::Sender);
        noise.read_message(asked, &mut [0; MESSAGE_BYTES]).map_err(|_| WrongCode)?;
        let message = write(&mut noise, offer);
        Ok((Channel(noise.into_transport_mode().map_err(|_| WrongCode)?), message))
    }
}

fn write(noise: &mut HandshakeState, payload: &[u8]) -> Vec<u8> {
    let mut message = vec![0; payload.len() + 128];
    let length = noise.write_message(payload, &mut message).expect("there is room for it");
    message.truncate(length);
    message
}

/// A receiver that has shown its key.
pub struct Asking(HandshakeState);

impl Asking {
    /// The sender's answer has come: what it offers.
    ///
    /// # Errors
    ///
    /// When the other side does not have the key.
    pub fn read(mut self, message: &[u8]) -> Result<(Channel, Vec<u8>), WrongCode> {
        let mut offer = vec![0; MESSAGE_BYTES];
        let length = self.0.read_message(message, &mut offer).map_err(|_| WrongCode)?;
        offer.truncate(length);
        Ok((Channel(self.0.into_transport_mode().map_err(|_| WrongCode)?), offer))
    }
}

/// What the two say to each other from then on.
pub struct Channel(TransportState);

impl Channel {
    /// `message`, sealed; at most [`MESSAGE_BYTES`] less the tag.
    pub fn seal(&mut self, message: &[u8]) -> Vec<u8> {
        let mut sealed = vec![0; message.len() + TAG];
        let length = self.0.write_message(message, &mut sealed).expect("there is room for it");
        sealed.truncate(length);
        sealed
    }

    /// What was sealed.
    ///
    /// # Errors
    ///
    /// When it was not sealed by the other side, or not next.
    pub fn open(&mut self, sealed: &[u8]) -> Result<Vec<u8>, WrongCode> {
        let mut message = vec![0; MESSAGE_BYTES];
        let length = self.0.read_message(sealed, &mut message).map_err(|_| WrongCode)?;
        message.truncate(length);
        Ok(message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(sender: &str, receiver: &str) -> (Key, Key) {
        let [sender, receiver] = [sender, receiver].map(|code| code.parse::<Code>().unwrap());
        let (a, to_b) = Exchange::begin(&sender, Side::Sender);
        let (b, to_a) = Exchange::begin(&receiver, Side::Receiver);
        (a.finish(&to_a).unwrap(), b.finish(&to_b).unwrap())
    }

    #[test]
    fn who_has_the_words_reads_what_is_said() {
        let (sender, receiver) = keys("7-crowfoot-orlando", "7-crowfoot-orlando");
        let (asking, asked) = receiver.ask();
        let (mut sender, offered) = sender.offer(&asked, b"a file").unwrap();
        let (mut receiver, offer) = asking.read(&offered).unwrap();
        assert_eq!(offer, b"a file");
        let sealed = receiver.seal(b"yes");
        assert_eq!(sender.open(&sealed).unwrap(), b"yes");
        assert_eq!(sender.open(&sealed), Err(WrongCode), "once");
    }

    #[test]
    fn another_word_or_another_number_opens_nothing() {
        for wrong in
            ["7-crowfoot-pandora", "7-aardvark-orlando", "8-crowfoot-orlando", "7-crowfoot-orlando-absurd-adroitness"]
        {
            let (sender, receiver) = keys("7-crowfoot-orlando", wrong);
            let (asking, asked) = receiver.ask();
            assert!(sender.offer(&asked, b"a file").is_err(), "{wrong}");
            // A sender that guesses fares no better.
            let (sender, receiver) = keys(wrong, "7-crowfoot-orlando");
            let (other, _) = receiver.ask();
            let forged = sender.offer(&Key(sender.0).ask().1, b"a file").unwrap().1;
            assert!(asking.read(&forged).is_err() && other.read(&forged).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_message_that_comes_back_or_is_none_is_refused() {
        let code: Code = "7-crowfoot-orlando".parse().unwrap();
        for side in [Side::Sender, Side::Receiver] {
            let reflected = Exchange::begin(&code, side);
            assert!(reflected.0.finish(&reflected.1).is_err(), "its own message");
            for wrong in [&b""[..], b"A", &[0; 33], &[0xff; 33], &[b'B'; 34], &[b'A'; 33]] {
                assert!(Exchange::begin(&code, side).0.finish(wrong).is_err(), "{wrong:?}");
            }
        }
        let (sender, receiver) = keys("7-crowfoot-orlando", "7-crowfoot-orlando");
        let (_, asked) = receiver.ask();
        for at in 0..asked.len() {
            let mut changed = asked.clone();
            changed[at] ^= 1;
            assert!(sender.offer(&changed, b"a file").is_err(), "byte {at}");
        }
        assert!(sender.offer(&[], b"a file").is_err() && sender.offer(&[7; 100], b"a file").is_err());
    }
}
