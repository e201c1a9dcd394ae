//! A transfer over quinn.

use std::sync::Arc;
use std::time::Instant;

use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn::{ClientConfig, Endpoint, ServerConfig, TransportConfig, VarInt};

use anabranch_net::quic::flow_of;
use anabranch_net::quic::identity::{self, Identity, Trust};

use super::{Bulk, Error, LOOPBACK, MOST_UNACKNOWLEDGED, Measured, PROTOCOL};
use crate::bottleneck::Bottleneck;

/// Runs `bulk`.
pub async fn run(bulk: &Bulk) -> Result<Measured, Error> {
    let identity = Identity::generate();
    let receiver = Endpoint::server(taking(&identity)?, LOOPBACK)?;
    let address = receiver.local_addr()?;
    let bottleneck = bulk.link.map(|link| Bottleneck::start(address, link)).transpose()?;
    let address = bottleneck.as_ref().map_or(address, Bottleneck::address);
    let takes = tokio::spawn(async move {
        let Some(incoming) = receiver.accept().await else { return Ok(0) };
        let connection = incoming.await?;
        let arrived = super::read(connection.accept_uni().await?).await?;
        connection.closed().await;
        Ok::<u64, Error>(arrived)
    });

    let sender = Endpoint::client(LOOPBACK)?;
    let name = Trust::Only(identity.public()).name().ok_or("a key that nobody has")?;
    let connection = sender.connect_with(sending(bulk)?, address, &name)?.await?;
    let mut stream = connection.open_uni().await?;
    let looking = connection.clone();
    let began = Instant::now();
    let looks = tokio::spawn(super::mean(move || looking.close_reason().is_none().then(|| looking.rtt())));
    super::write(&mut stream, bulk.bytes).await?;
    stream.finish()?;
    stream.stopped().await?;
    let took = began.elapsed();
    let path = connection.stats().path;
    let (packets, packets_lost) = (path.sent_packets, path.lost_packets);
    let flow = flow_of(&connection).map(|flow| flow.snapshot());
    connection.close(VarInt::from_u32(0), b"");
    sender.wait_idle().await;
    let arrived = takes.await??;
    Ok(Measured { took, arrived, mean_rtt: looks.await?, packets, packets_lost, flow })
}

/// The configuration of the end that data goes to.
fn taking(identity: &Identity) -> Result<ServerConfig, Error> {
    let window = VarInt::from_u32(MOST_UNACKNOWLEDGED);
    let mut transport = TransportConfig::default();
    transport.stream_receive_window(window).receive_window(window);
    let tls = QuicServerConfig::try_from(identity::server_tls(identity, PROTOCOL)?)?;
    let mut server = ServerConfig::with_crypto(Arc::new(tls));
    server.transport_config(Arc::new(transport));
    Ok(server)
}

/// The configuration of the end that data comes from, with the controller of `bulk`.
fn sending(bulk: &Bulk) -> Result<ClientConfig, Error> {
    let mut transport = TransportConfig::default();
    transport.send_window(u64::from(MOST_UNACKNOWLEDGED));
    if let Some(factory) = &bulk.factory {
        transport.congestion_controller_factory(factory.clone());
    }
    let (tls, _) = identity::client_tls(None, PROTOCOL)?;
    let mut client = ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls)?));
    client.transport_config(Arc::new(transport));
    Ok(client)
}
