//! A discrete-event simulator: a queue of events, and what lies between nodes.
//! It knows no protocol; who uses it decides what an event is.

pub mod access;
pub mod agenda;
pub mod delay;
pub mod event_queue;
pub mod fabric;
pub mod faults;
pub mod loss;
pub mod network;
pub mod pairs;
pub mod tournament;
pub mod varying;
