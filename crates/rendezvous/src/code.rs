//! Codes that a person can say: a number, and words of the PGP word list.
//!
//! The list (P. Juola and P. Zimmermann, 1995) has 256 words of two syllables and 256 of three, which
//! take turns: a word that is left out, said twice or heard in the wrong place is noticed before
//! anything is sent. Each word is a byte. Two words leave a guess a chance of 1 in 65 536, and there
//! is one guess; magic-wormhole's codes are of the same length.

use std::fmt;
use std::str::FromStr;

use anabranch_net::setup::secret;
use anabranch_scenario::file::nearest;

/// Words of a code that is made here.
pub const WORDS: usize = 2;

/// The most words of a code: 128 bits.
const MOST_WORDS: usize = 16;

/// A mailbox's number, and the words that only the two sides know.
#[derive(Clone, PartialEq, Eq)]
pub struct Code {
    /// The mailbox.
    pub number: u32,
    words: Vec<u8>,
}

impl Code {
    /// For the mailbox `number`, with words from the system's random numbers.
    pub fn draw(number: u32) -> Code {
        Code { number, words: secret()[..WORDS].to_vec() }
    }

    /// What the key exchange takes as its password: the number and the words, as they are written.
    pub fn password(&self) -> String {
        self.to_string()
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.number)?;
        pgp_words::to_words(&self.words).iter().try_for_each(|word| write!(f, "-{}", word.to_ascii_lowercase()))
    }
}

/// Without the words: nobody shall find them in a log.
impl fmt::Debug for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Code({}-…)", self.number)
    }
}

impl FromStr for Code {
    type Err = String;

    /// Reads a code as it is written or said: with dashes or spaces, in any case.
    fn from_str(text: &str) -> Result<Code, String> {
        const EXAMPLE: &str = "expected a code such as 7-crowfoot-orlando";
        let lower = text.to_ascii_lowercase();
        let mut parts = lower.split(|c: char| c == '-' || c.is_whitespace()).filter(|part| !part.is_empty());
        let first = parts.next().filter(|first| first.bytes().all(|byte| byte.is_ascii_digit()));
        let first = first.ok_or_else(|| format!("no number at its beginning; {EXAMPLE}"))?;
        let number = first.parse().ok().filter(|&number| number > 0);
        let number = number.ok_or_else(|| format!("its number is not one of 1 to {}; {EXAMPLE}", u32::MAX))?;
        let mut words = Vec::new();
        for (place, word) in parts.enumerate() {
            words.push(byte_of(word, place)?);
        }
        if !(WORDS..=MOST_WORDS).contains(&words.len()) {
            let found = match words.len() {
                0 => "a number and no words".to_owned(),
                1 => "a number and one word".to_owned(),
                many => format!("a number and {many} words"),
            };
            return Err(format!("{found}; {EXAMPLE}"));
        }
        Ok(Code { number, words })
    }
}

/// The words that may stand at `place`, from 0 on, by byte.
fn words_at(place: usize) -> Vec<String> {
    let word = |byte: u8| {
        let pair = [byte, byte];
        pgp_words::to_words(&pair)[place % 2].to_ascii_lowercase()
    };
    (0..=u8::MAX).map(word).collect()
}

fn byte_of(word: &str, place: usize) -> Result<u8, String> {
    let words = words_at(place);
    if let Some(byte) = words.iter().position(|known| known == word) {
        return Ok(byte as u8);
    }
    if words_at(place + 1).iter().any(|known| known == word) {
        return Err(format!("\"{word}\" does not stand at this place: is a word missing, or are two exchanged?"));
    }
    let known: Vec<&str> = words.iter().map(String::as_str).collect();
    let near = nearest(word, &known).map_or(String::new(), |near| format!("; did you mean \"{near}\"?"));
    Err(format!("\"{word}\" is not in the list of words{near}"))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_list_has_two_times_256_different_words_that_can_be_typed() {
        let all: BTreeSet<String> = [0, 1].into_iter().flat_map(words_at).collect();
        assert_eq!(all.len(), 512);
        assert!(all.iter().all(|word| word.len() >= 3 && word.chars().all(|c| c.is_ascii_lowercase())));
    }

    #[test]
    fn a_word_that_is_misspelt_or_misplaced_is_named_before_it_burns_the_code() {
        for (text, says) in [
            ("7-crowfot-orlando", "did you mean \"crowfoot\"?"),
            ("7-orlando-crowfoot", "does not stand at this place"),
            ("7-crowfoot", "a number and one word; expected"),
            ("crowfoot-orlando", "no number"),
            ("0-crowfoot-orlando", "not one of 1 to 4294967295"),
            ("", "no number"),
            ("7", "a number and no words; expected"),
            ("99999999999-crowfoot-orlando", "not one of 1 to 4294967295"),
        ] {
            let error = text.parse::<Code>().unwrap_err();
            assert!(error.contains(says), "{text}: {error}");
        }
        let said: Code = " 7 Crowfoot  ORLANDO".parse().unwrap();
        assert_eq!(said.to_string(), "7-crowfoot-orlando");
        assert_eq!(format!("{said:?}"), "Code(7-…)", "a secret is not for logs");
    }

    proptest! {
        #[test]
        fn a_code_is_read_as_it_is_written(number in 1u32.., words in prop::collection::vec(any::<u8>(), 2..=16)) {
            let code = Code { number, words };
            prop_assert_eq!(code.to_string().parse::<Code>(), Ok(code));
        }

        #[test]
        fn arbitrary_text_is_refused_or_read(text in any::<String>()) {
            let _ = text.parse::<Code>();
        }
    }

    #[test]
    fn two_codes_of_one_mailbox_differ() {
        let drawn: BTreeSet<String> = (0..64).map(|_| Code::draw(7).to_string()).collect();
        // Two of 64 are alike with a chance of 1 in 32; half of them never.
        assert!(drawn.len() > 32);
    }
}
