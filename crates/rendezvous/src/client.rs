//! The two sides' ends of a rendezvous: a mailbox, and what is agreed on over it.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use anabranch_net::quic::identity::{self, Trust};
use quinn::crypto::rustls::QuicClientConfig;
use quinn::{Connection, ConnectionError, Endpoint, EndpointConfig, RecvStream, SendStream, TransportConfig, VarInt};

use crate::PROTOCOL;
use crate::agreement::{Answer, Malformed, Offer};
use crate::code::Code;
use crate::frame::{Frame, Refusal, Side};
use crate::limits::IDLE_MS;
use crate::pake::{Channel, Exchange, Key, WrongCode};
use crate::server::read_frame;

/// So long a rendezvous has to answer.
const ANSWER: Duration = Duration::from_secs(5);

/// So long the other side has for each step in which no person takes part.
const STEP: Duration = Duration::from_secs(30);

/// So long we try to tell that we leave.
const LEAVE: Duration = Duration::from_secs(2);

/// Keeps the connection, and NATs on its way, open while two people talk: more often than UDP's state is
/// given up where it is given up soon, after 30 s.
const KEEP_ALIVE: Duration = Duration::from_secs(10);

/// Why two sides did not meet.
#[derive(Debug, thiserror::Error)]
pub enum MeetError {
    /// There is no socket.
    #[error("cannot open a socket: {0}")]
    Socket(io::Error),
    /// Nobody answers there.
    #[error(
        "no rendezvous answers at {0}: does the relay run (`anabranch relay`), is it not older than 0.1, and does UDP \
         pass on the way?"
    )]
    NobodyAnswers(SocketAddr),
    /// It has enough to do.
    #[error("the rendezvous at {0} has too much to do; try again in a moment")]
    Busy(SocketAddr),
    /// It does not do what is asked.
    #[error("the rendezvous at {0} refuses: {1}")]
    Refused(SocketAddr, Refusal),
    /// The connection to it was lost.
    #[error("the connection to the rendezvous at {0} was lost; the code is used up")]
    Lost(SocketAddr),
    /// The other side came and left before anything was agreed.
    #[error("the other side has left; the code is used up")]
    Left,
    /// Whoever came has other words.
    #[error("the words are not those of the other side, or somebody meddles; the code is used up")]
    WrongCode,
    /// The other side did not go on.
    #[error("the other side is silent; the code is used up")]
    Silent,
    /// What it says makes no sense.
    #[error(transparent)]
    Malformed(#[from] Malformed),
}

impl From<WrongCode> for MeetError {
    fn from(_: WrongCode) -> MeetError {
        MeetError::WrongCode
    }
}

/// One side of a mailbox.
#[derive(Debug)]
pub struct Mailbox {
    endpoint: Endpoint,
    connection: Connection,
    to: SendStream,
    from: RecvStream,
    rendezvous: SocketAddr,
    side: Side,
    number: u32,
    seen: SocketAddr,
}

impl Mailbox {
    /// As `side` of mailbox `number`, or of a new one, at `rendezvous`, from `socket`. To be called within
    /// a tokio runtime.
    ///
    /// # Errors
    ///
    /// When nobody answers, or refuses.
    pub async fn open(
        socket: UdpSocket,
        rendezvous: SocketAddr,
        side: Side,
        number: Option<u32>,
    ) -> Result<Mailbox, MeetError> {
        let runtime = Arc::new(quinn::TokioRuntime);
        let endpoint = Endpoint::new(EndpointConfig::default(), None, socket, runtime).map_err(MeetError::Socket)?;
        let config = config().map_err(MeetError::Socket)?;
        let nobody = || MeetError::NobodyAnswers(rendezvous);
        // The words of the code decide whom one meets, not a key of the rendezvous.
        let name = Trust::Anybody.name().ok_or_else(nobody)?;
        let placed = async {
            let connecting = endpoint.connect_with(config, rendezvous, &name).map_err(|_| nobody())?;
            let connection = connecting.await.map_err(|error| match error {
                ConnectionError::ConnectionClosed(_) => MeetError::Busy(rendezvous),
                _ => nobody(),
            })?;
            let (mut to, mut from) = connection.open_bi().await.map_err(|_| nobody())?;
            let frame = number.map_or(Frame::Open(side), |number| Frame::Claim(side, number));
            write(&mut to, &frame).await.map_err(|_| nobody())?;
            match read_frame(&mut from).await {
                Some(Frame::Placed { number, seen }) => Ok((connection, to, from, number, seen)),
                Some(Frame::Refused(reason)) => Err(MeetError::Refused(rendezvous, reason)),
                _ => Err(nobody()),
            }
        };
        let placed = tokio::time::timeout(ANSWER, placed).await.map_err(|_| nobody())?;
        let (connection, to, from, number, seen) = placed?;
        Ok(Mailbox { endpoint, connection, to, from, rendezvous, side, number, seen })
    }

    /// Its number.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Our socket's address, as the rendezvous sees it.
    pub fn seen(&self) -> SocketAddr {
        self.seen
    }

    async fn put(&mut self, bytes: Vec<u8>) -> Result<(), MeetError> {
        write(&mut self.to, &Frame::Put(bytes)).await.map_err(|_| MeetError::Lost(self.rendezvous))
    }

    async fn get(&mut self) -> Result<Vec<u8>, MeetError> {
        match read_frame(&mut self.from).await {
            Some(Frame::Got(bytes)) => Ok(bytes),
            Some(Frame::Gone) => Err(MeetError::Left),
            Some(Frame::Refused(reason)) => Err(MeetError::Refused(self.rendezvous, reason)),
            _ => Err(MeetError::Lost(self.rendezvous)),
        }
    }

    async fn get_soon(&mut self) -> Result<Vec<u8>, MeetError> {
        tokio::time::timeout(STEP, self.get()).await.unwrap_or(Err(MeetError::Silent))
    }

    /// Waits for the other side, and exchanges the first messages with it: a key that is the same there if
    /// the words are.
    ///
    /// # Errors
    ///
    /// When it goes, or its message is none.
    pub async fn begin(&mut self, code: &Code) -> Result<Key, MeetError> {
        let (exchange, message) = Exchange::begin(code, self.side);
        self.put(message).await?;
        let theirs = self.get().await?;
        Ok(exchange.finish(&theirs)?)
    }

    /// As the sender: waits for the other side, offers it `offer` if it knows the words, and waits for its
    /// answer. Whatever comes of it, the code is used up.
    ///
    /// # Errors
    ///
    /// When it does not know the words, or goes.
    pub async fn offer(&mut self, code: &Code, offer: &Offer) -> Result<Answer, MeetError> {
        let key = self.begin(code).await;
        let asked = async {
            let key = key?;
            let asked = self.get_soon().await?;
            Ok::<_, MeetError>(key.offer(&asked, &offer.encode())?)
        };
        let (mut channel, offered) = match asked.await {
            Ok(offered) => offered,
            // Who comes and goes without showing that it knows the words has tried a guess.
            Err(MeetError::Left | MeetError::WrongCode | MeetError::Silent) => {
                // So that it does not wait: this opens with no key.
                let _ = self.put(Vec::new()).await;
                return Err(MeetError::WrongCode);
            }
            Err(error) => return Err(error),
        };
        self.put(offered).await?;
        // A person reads what is offered: as long as the mailbox lasts.
        let answer = self.get().await?;
        Ok(Answer::decode(&channel.open(&answer)?)?)
    }

    /// As the receiver: waits for the other side, shows that we know the words, and learns what it offers.
    /// Whatever comes of it, the code is used up.
    ///
    /// # Errors
    ///
    /// When it does not know the words, or goes.
    pub async fn ask(&mut self, code: &Code) -> Result<(Offer, Channel), MeetError> {
        let (asking, asked) = self.begin(code).await?.ask();
        self.put(asked).await?;
        let offered = self.get_soon().await.map_err(|error| match error {
            // It has seen that our words are wrong.
            MeetError::Left => MeetError::WrongCode,
            error => error,
        })?;
        let (channel, offer) = asking.read(&offered)?;
        Ok((Offer::decode(&offer)?, channel))
    }

    /// As the receiver: gives the answer.
    ///
    /// # Errors
    ///
    /// When the connection is lost.
    pub async fn answer(&mut self, channel: &mut Channel, answer: &Answer) -> Result<(), MeetError> {
        let sealed = channel.seal(&answer.encode());
        self.put(sealed).await
    }

    /// The other side has gone: returns then.
    pub async fn other_left(&mut self) {
        while self.get().await.is_ok() {}
    }

    /// Leaves, once what was said has arrived.
    pub async fn leave(mut self) {
        let finished = async {
            if self.to.finish().is_ok() {
                let _ = self.to.stopped().await;
            }
        };
        // Who does not hear it finds out by itself.
        let _ = tokio::time::timeout(LEAVE, finished).await;
        self.connection.close(VarInt::from_u32(0), b"");
        let _ = tokio::time::timeout(LEAVE, self.endpoint.wait_idle()).await;
    }
}

fn config() -> io::Result<quinn::ClientConfig> {
    // Whoever answers: what matters is proved to the other side, by the words.
    let (tls, _) = identity::client_tls(None, PROTOCOL).map_err(io::Error::other)?;
    let mut config = quinn::ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls).map_err(io::Error::other)?));
    let mut transport = TransportConfig::default();
    transport.keep_alive_interval(Some(KEEP_ALIVE));
    transport.max_idle_timeout(Some(VarInt::from_u32(IDLE_MS as u32).into()));
    config.transport_config(Arc::new(transport));
    Ok(config)
}

async fn write(to: &mut SendStream, frame: &Frame) -> Result<(), quinn::WriteError> {
    let mut bytes = Vec::new();
    frame.encode(&mut bytes);
    to.write_all(&bytes).await
}
