//! A stream of bytes over QUIC between sockets that are given, under one of our controllers:
//! for links whose packets' size is known. noq carries it, for there a controller's rate
//! holds. A connection carries one stream.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;

use anabranch_proto::seal::{Identity, PublicKey};
use noq::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use noq::{Connection, Endpoint, EndpointConfig, PathId, RecvStream, SendStream, TransportConfig, VarInt};

use super::identity::{self, Trust};
use super::{Factory, Flow, flow_of_noq};
use crate::udp;

/// What both sides say that they speak.
const PROTOCOL: &[u8] = b"anabranch-stream/1";

/// Data that may be on its way: more than any window that is of use.
const MOST_UNACKNOWLEDGED: u32 = 128 << 20;

/// Why a stream ended early, or never began.
#[derive(Debug, thiserror::Error)]
#[error("QUIC: {0}")]
pub struct StreamError(String);

impl StreamError {
    fn of(error: impl ToString) -> StreamError {
        StreamError(error.to_string())
    }
}

/// No packet is longer than `packet` bytes of UDP, and each leaves by itself.
fn transport(packet: u16) -> TransportConfig {
    let window = VarInt::from_u32(MOST_UNACKNOWLEDGED);
    let mut transport = TransportConfig::default();
    transport.max_idle_timeout(None).initial_mtu(packet).mtu_discovery_config(None).enable_segmentation_offload(false);
    transport.stream_receive_window(window).receive_window(window).send_window(u64::from(MOST_UNACKNOWLEDGED));
    transport.max_concurrent_bidi_streams(VarInt::from_u32(0)).max_concurrent_uni_streams(VarInt::from_u32(1));
    transport
}

fn endpoint(socket: UdpSocket, server: Option<noq::ServerConfig>, packet: u16) -> io::Result<Endpoint> {
    let runtime = noq::default_runtime().ok_or_else(|| io::Error::other("there is no tokio runtime here"))?;
    udp::enlarge_buffers(&socket);
    let mut config = EndpointConfig::default();
    config.max_udp_payload_size(packet).map_err(io::Error::other)?;
    Endpoint::new(config, server, socket, runtime)
}

/// Sends streams from a socket, one connection after the other.
#[derive(Debug)]
pub struct StreamSender {
    endpoint: Endpoint,
    config: noq::ClientConfig,
    to: SocketAddr,
    /// What TLS asks for there.
    name: String,
}

impl StreamSender {
    /// From `socket` to who has `key` at `to`, in packets of up to `packet` bytes
    /// of UDP, under `factory`'s controllers. To be called within a tokio runtime.
    ///
    /// # Errors
    ///
    /// When the socket or TLS does not work.
    pub fn new(
        socket: UdpSocket,
        to: SocketAddr,
        key: PublicKey,
        factory: Arc<Factory>,
        packet: u16,
    ) -> io::Result<StreamSender> {
        let name = Trust::Only(key).name().ok_or_else(|| io::Error::other("nobody can have this key"))?;
        let (tls, _) = identity::client_tls(None, PROTOCOL).map_err(io::Error::other)?;
        let mut config = noq::ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls).map_err(io::Error::other)?));
        let mut transport = transport(packet);
        transport.congestion_controller_factory(factory);
        config.transport_config(Arc::new(transport));
        Ok(StreamSender { endpoint: endpoint(socket, None, packet)?, config, to, name })
    }

    /// Begins a connection: returns when the handshake is over.
    ///
    /// # Errors
    ///
    /// When nobody answers, or somebody else.
    pub async fn connect(&self) -> Result<OutStream, StreamError> {
        let connecting = self.endpoint.connect_with(self.config.clone(), self.to, &self.name);
        let connection = connecting.map_err(StreamError::of)?.await.map_err(StreamError::of)?;
        let stream = connection.open_uni().await.map_err(StreamError::of)?;
        Ok(OutStream { connection, stream })
    }
}

/// A sender's end of a stream. Its connection ends when this is dropped.
#[derive(Debug)]
pub struct OutStream {
    connection: Connection,
    stream: SendStream,
}

impl OutStream {
    /// Lets QUIC hold this many bytes that are not acknowledged, those that wait included.
    pub fn set_room(&self, bytes: u64) {
        self.connection.set_send_window(bytes);
    }

    /// Hands over bytes from the beginning of `bytes`, once there is room: how many. Nothing
    /// is lost when this is given up.
    ///
    /// # Errors
    ///
    /// When the connection is over.
    pub async fn write(&mut self, bytes: &[u8]) -> Result<usize, StreamError> {
        self.stream.write(bytes).await.map_err(StreamError::of)
    }

    /// Ends the stream, and waits until all of it is acknowledged. May be called again if it
    /// was given up.
    ///
    /// # Errors
    ///
    /// When the connection is over before.
    pub async fn finish(&mut self) -> Result<(), StreamError> {
        // It says that the stream has ended already, which is no news the second time.
        let _ = self.stream.finish();
        self.stream.stopped().await.map(drop).map_err(StreamError::of)
    }

    /// The connection's controller.
    pub fn flow(&self) -> Option<Flow> {
        flow_of_noq(&self.connection, PathId::ZERO)
    }

    /// QUIC packets that were sent, and of them those declared lost.
    pub fn packets(&self) -> (u64, u64) {
        self.connection.path_stats(PathId::ZERO).map_or((0, 0), |path| (path.sent_packets, path.lost_packets))
    }
}

impl Drop for OutStream {
    fn drop(&mut self) {
        self.connection.close(VarInt::from_u32(0), b"");
    }
}

/// Receives streams at a socket.
#[derive(Debug)]
pub struct StreamReceiver {
    endpoint: Endpoint,
}

impl StreamReceiver {
    /// At `socket` as `identity`. To be called within a tokio runtime.
    ///
    /// # Errors
    ///
    /// When the socket or TLS does not work.
    pub fn new(socket: UdpSocket, identity: &Identity, packet: u16) -> io::Result<StreamReceiver> {
        let tls = identity::server_tls(identity, PROTOCOL).map_err(io::Error::other)?;
        let tls = QuicServerConfig::try_from(tls).map_err(io::Error::other)?;
        let mut config = noq::ServerConfig::with_crypto(Arc::new(tls));
        config.transport_config(Arc::new(transport(packet)));
        Ok(StreamReceiver { endpoint: endpoint(socket, Some(config), packet)? })
    }

    /// The next connection's stream, once its first bytes are there; an error if that
    /// connection ended before; none if there will be no more. One that begins before an
    /// earlier one has shown its stream takes its place.
    pub async fn accept(&self) -> Option<Result<InStream, StreamError>> {
        let mut incoming = self.endpoint.accept().await?;
        loop {
            // Who begins anew has given up what it had begun, and may have said so in vain.
            tokio::select! {
                stream = Self::stream(incoming) => return Some(stream),
                next = self.endpoint.accept() => incoming = next?,
            }
        }
    }

    async fn stream(incoming: noq::Incoming) -> Result<InStream, StreamError> {
        let connection = incoming.await.map_err(StreamError::of)?;
        let stream = connection.accept_uni().await.map_err(StreamError::of)?;
        Ok(InStream { connection, stream })
    }
}

/// A receiver's end of a stream.
#[derive(Debug)]
pub struct InStream {
    connection: Connection,
    stream: RecvStream,
}

impl InStream {
    /// The next bytes, in order, into the beginning of `bytes`: how many, none at the end.
    ///
    /// # Errors
    ///
    /// When the connection is over before the stream.
    pub async fn read(&mut self, bytes: &mut [u8]) -> Result<Option<usize>, StreamError> {
        self.stream.read(bytes).await.map_err(StreamError::of)
    }

    /// Waits until the sender has ended the connection.
    pub async fn closed(&self) {
        self.connection.closed().await;
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;
    use crate::quic::controller;

    #[test]
    fn a_stream_arrives_whole_under_the_controller_that_was_named() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let socket = || UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
            let identity = Identity::generate();
            let listening = socket();
            let to = listening.local_addr().unwrap();
            let receiver = StreamReceiver::new(listening, &identity, 1472).unwrap();
            let factory = Arc::new(controller("copa").unwrap());
            let sender = StreamSender::new(socket(), to, identity.public(), factory, 1472).unwrap();
            let data: Vec<u8> = (0..200_000u32).map(|i| (i % 251) as u8).collect();
            let receives = async {
                let mut stream = receiver.accept().await.unwrap().unwrap();
                let (mut arrived, mut piece) = (Vec::<u8>::new(), [0; 1000]);
                while let Some(length) = stream.read(&mut piece).await.unwrap() {
                    arrived.extend(&piece[..length]);
                }
                stream.closed().await;
                arrived
            };
            let sends = async {
                let mut stream = sender.connect().await.unwrap();
                let mut sent = 0;
                while sent < data.len() {
                    sent += stream.write(&data[sent..]).await.unwrap();
                }
                stream.finish().await.unwrap();
                let flow = stream.flow().unwrap();
                assert_eq!(flow.controller(), "copa");
                assert!(flow.snapshot().delivered.get() >= 200_000);
                let (packets, lost) = stream.packets();
                assert!(packets >= 200_000 / 1472 && lost < packets, "{packets} sent, {lost} lost");
            };
            let (arrived, ()) = tokio::join!(receives, sends);
            assert!(arrived == data);
        });
    }

    #[test]
    fn somebody_else_at_the_address_is_refused() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let socket = || UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
            let listening = socket();
            let to = listening.local_addr().unwrap();
            let receiver = StreamReceiver::new(listening, &Identity::generate(), 1472).unwrap();
            let expected = Identity::generate().public();
            let factory = Arc::new(controller("reno").unwrap());
            let sender = StreamSender::new(socket(), to, expected, factory, 1472).unwrap();
            let (accepted, connected) = tokio::join!(receiver.accept(), sender.connect());
            assert!(accepted.unwrap().is_err() && connected.is_err());
        });
    }
}
