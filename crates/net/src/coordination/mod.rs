//! Coordinators of hosts ([C3]) and their agents on real networks: the machines of `anabranch_proto::coordination`
//! over QUIC ([`node`]), agents of programs that send themselves ([`flows`]), what a coordinator's file says ([`file`]), and what an agent sees and changes at a host of
//! Linux ([`host`]).

pub mod file;
pub mod flows;
#[cfg(target_os = "linux")]
pub mod host;
pub mod node;
#[cfg(target_os = "linux")]
mod qdisc;
