//! The messages of a `.dna` file, by their field numbers. What a table was trained for
//! (fields 4 to 6 of the tree) is not read.

use prost::Message;

/// A node.
#[derive(Clone, PartialEq, Message)]
pub struct WhiskerTree {
    #[prost(message, optional, tag = "1")]
    pub domain: Option<MemoryRange>,
    #[prost(message, repeated, tag = "2")]
    pub children: Vec<WhiskerTree>,
    #[prost(message, optional, tag = "3")]
    pub leaf: Option<Whisker>,
}

/// A box.
#[derive(Clone, PartialEq, Message)]
pub struct MemoryRange {
    #[prost(message, optional, tag = "11")]
    pub lower: Option<Memory>,
    #[prost(message, optional, tag = "12")]
    pub upper: Option<Memory>,
}

/// Signals.
#[derive(Clone, Copy, PartialEq, Message)]
pub struct Memory {
    #[prost(double, optional, tag = "21")]
    pub send_interval: Option<f64>,
    #[prost(double, optional, tag = "22")]
    pub ack_interval: Option<f64>,
    #[prost(double, optional, tag = "23")]
    pub rtt_ratio: Option<f64>,
    #[prost(double, optional, tag = "24")]
    pub slow_ack_interval: Option<f64>,
}

/// A rule.
#[derive(Clone, PartialEq, Message)]
pub struct Whisker {
    #[prost(sint32, optional, tag = "31")]
    pub window_increment: Option<i32>,
    #[prost(double, optional, tag = "32")]
    pub window_multiple: Option<f64>,
    #[prost(double, optional, tag = "33")]
    pub intersend_ms: Option<f64>,
    #[prost(message, optional, tag = "34")]
    pub domain: Option<MemoryRange>,
}
