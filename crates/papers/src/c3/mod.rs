//! [C3]: flows that a coordinator steers, by a rule and by policies that were trained before.

pub mod learned;
pub mod rule;
