//! What a user says of a verb, for tests.

use clap::{Args, Error, Parser};

#[derive(Debug, Parser)]
struct Said<A: Args> {
    #[command(flatten)]
    args: A,
}

/// The arguments that `words` are, of which the first is the verb.
pub fn parse<'a, A: Args>(words: impl IntoIterator<Item = &'a str>) -> Result<A, Error> {
    Said::try_parse_from(words).map(|said| said.args)
}
