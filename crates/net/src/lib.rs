//! Drivers for real networks. They own clocks, sockets and files, and hold no logic of
//! their own: what a peer does is decided by the machines of `anabranch_proto`.

pub mod archive;
pub mod clock;
#[cfg(feature = "coordination")]
pub mod coordination;
pub mod delay_queue;
pub mod disk;
pub mod endpoint;
mod events;
pub mod file_error;
pub mod flow;
pub mod identity_file;
pub mod loopback;
pub mod metrics_server;
pub mod onion;
pub mod packet_size;
pub mod pool;
pub mod quic;
pub mod relay_list;
mod reset;
mod routes;
pub mod runtime;
pub mod send_queue;
pub mod sessions;
pub mod setup;
pub mod state;
pub mod stream;
mod tls;
pub mod udp;
pub mod wait;

/// The example of the book's page, compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/udp-flows.md")]
pub struct UdpFlowsPage;
