//! How video gets into a stream's server, and out of each viewer to players.
