//! The book of trees against the best trees, against what must always hold, and at the size of an
//! audience.

mod audience;
mod brute_force;
mod properties;
mod rules;
mod worlds;
