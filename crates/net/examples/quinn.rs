//! One of our controllers in an application that uses quinn: 5 MB over loopback with Copa,
//! watched and bounded while they are sent. Run it with
//! `cargo run -p anabranch-net --example quinn`.

use std::error::Error;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use anabranch_control::flow::Bounds;
use anabranch_control::units::Bytes;
use anabranch_net::quic::identity::{Identity, Trust};
use anabranch_net::quic::{self, identity};
use quinn::{ClientConfig, Endpoint, ServerConfig, TransportConfig};

const BYTES: usize = 5_000_000;

/// Runs the transfer; says how much arrived.
#[tokio::main(flavor = "current_thread")]
pub async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    // The three lines: a controller by its name, and what bounds and watches it.
    let controller = quic::controller("copa")?;
    let steering = controller.steering();
    let mut transport = TransportConfig::default();
    transport.congestion_controller_factory(Arc::new(controller));

    // All else is quinn as ever.
    let identity = Identity::generate();
    let tls = identity::server_tls(&identity, b"example")?;
    let server = ServerConfig::with_crypto(Arc::new(quinn::crypto::rustls::QuicServerConfig::try_from(tls)?));
    let receiver = Endpoint::server(server, SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
    let address = receiver.local_addr()?;
    let (tls, _) = identity::client_tls(None, b"example")?;
    let mut client = ClientConfig::new(Arc::new(quinn::crypto::rustls::QuicClientConfig::try_from(tls)?));
    client.transport_config(Arc::new(transport));
    let sender = Endpoint::client(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;

    let receives = tokio::spawn(async move {
        let connection = receiver.accept().await.ok_or("the endpoint is closed")?.await?;
        let received = connection.accept_uni().await?.read_to_end(BYTES).await?;
        connection.close(0u32.into(), b"");
        receiver.wait_idle().await;
        Ok::<usize, Box<dyn Error + Send + Sync>>(received.len())
    });
    let name = Trust::Only(identity.public()).name().ok_or("a key that nobody has")?;
    let connection = sender.connect_with(client, address, &name)?.await?;
    let mut stream = connection.open_uni().await?;
    stream.write_all(&[7; BYTES / 2]).await?;

    // No more than 100 kB in flight from here on, on every connection of this controller.
    steering.set(Bounds { maximum: Some(Bytes::new(100_000)), ..Bounds::default() });
    stream.write_all(&[7; BYTES / 2]).await?;
    stream.finish()?;
    let flow = quic::flow_of(&connection).ok_or("another controller runs")?;
    let now = flow.snapshot();
    println!("{}: window {}, {} delivered, {} lost", flow.controller(), now.window, now.delivered, now.lost);
    flow.trace(&mut |name, value| println!("  {name} {value:.3}"));
    println!("{} bytes arrived", receives.await??);
    Ok(())
}
