//! What an application's messages and datagrams are as bytes.

use std::net::SocketAddr;

use anabranch_proto::codec::CodecError;
use anabranch_proto::coordination::peer::CoordinationPeer;
use anabranch_proto::coordination::wire as coordination_wire;
use anabranch_proto::session::Application;
use anabranch_proto::stream::peer::StreamPeer;
use anabranch_proto::stream::wire::{self, WireContent};

/// An application that can speak over a network.
pub trait WireApplication: Application<Address = SocketAddr> {
    /// Appends the bytes of `message`.
    fn write_message(message: &Self::Message, out: &mut Vec<u8>);

    /// The message that `bytes` are.
    ///
    /// # Errors
    ///
    /// When no peer sends them.
    fn read_message(bytes: &[u8]) -> Result<Self::Message, CodecError>;

    /// Appends the bytes of `datagram`.
    fn write_datagram(datagram: &Self::Datagram, out: &mut Vec<u8>);

    /// The datagram that `bytes` are.
    ///
    /// # Errors
    ///
    /// When no peer sends them.
    fn read_datagram(bytes: &[u8]) -> Result<Self::Datagram, CodecError>;
}

impl<C: WireContent> WireApplication for StreamPeer<SocketAddr, C> {
    fn write_message(message: &Self::Message, out: &mut Vec<u8>) {
        wire::write_message(message, out);
    }

    fn read_message(bytes: &[u8]) -> Result<Self::Message, CodecError> {
        wire::read_message(bytes)
    }

    fn write_datagram(datagram: &Self::Datagram, out: &mut Vec<u8>) {
        wire::write_datagram(datagram, out);
    }

    fn read_datagram(bytes: &[u8]) -> Result<Self::Datagram, CodecError> {
        wire::read_datagram(bytes)
    }
}

impl WireApplication for CoordinationPeer<SocketAddr> {
    fn write_message(message: &Self::Message, out: &mut Vec<u8>) {
        coordination_wire::write_message(message, out);
    }

    fn read_message(bytes: &[u8]) -> Result<Self::Message, CodecError> {
        coordination_wire::read_message(bytes)
    }

    fn write_datagram(datagram: &Self::Datagram, out: &mut Vec<u8>) {
        coordination_wire::write_datagram(datagram, out);
    }

    fn read_datagram(bytes: &[u8]) -> Result<Self::Datagram, CodecError> {
        coordination_wire::read_datagram(bytes)
    }
}
