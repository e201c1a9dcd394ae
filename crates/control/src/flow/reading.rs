//! What a program other than ours reads otherwise than a controller's defaults.

/// A controller as classic simulators run it.
#[derive(Clone, Copy, Debug)]
pub struct ClassicReading {
    /// Parameters over a recovery with selective ACKs.
    pub with_sack: &'static str,
    /// The same without.
    pub without_sack: &'static str,
    /// Who sets one of these has chosen another rule than `with_sack` has: none of it holds then.
    pub chosen_by: &'static [&'static str],
}
