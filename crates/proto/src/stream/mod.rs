//! Live video from one server to many viewers over trees of peers (Q-Stream: [Raiber 2010] 3.2, 6.4).

pub mod tree;
