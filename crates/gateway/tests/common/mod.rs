//! A gateway on loopback, what it needs, and clients of it.
#![allow(dead_code, reason = "each test file uses its part")]

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anabranch_gateway::input::{Input, InputHandle, Source, SourceOptions};
use anabranch_gateway::outlet::{Outlet, OutletConfig};
use anabranch_gateway::overview::{Here, HereState, Mode, Overview, Role, SentByKind, Stream, Upload};
use anabranch_gateway::server::{Access, Bounds, Config, Gateway, StartError};
use anabranch_media::alignment::PACKET;
use anabranch_media::cutter::{Cut, Cutter};
use anabranch_media::repetition::Repetition;
use tokio::sync::mpsc;

pub const CLIP: &[u8] = include_bytes!("../../../media/tests/clip.ts");
pub const CLIP_PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../media/tests/clip.ts");

/// Longer than anything here takes, on a machine that does much else.
pub const LONG: Duration = Duration::from_secs(60);

/// Bounds that a test need not wait long for.
pub fn short() -> Bounds {
    Bounds {
        head: Duration::from_millis(500),
        patience: Duration::from_secs(1),
        first_picture: Duration::from_millis(500),
        ingest: Duration::from_millis(700),
        ..Bounds::default()
    }
}

/// A gateway, and how often it asked how things stand.
pub struct Served {
    pub gateway: Gateway,
    pub asked: Arc<AtomicU64>,
}

pub fn try_serve(
    listener: TcpListener,
    outlet: &Outlet,
    input: Option<InputHandle>,
    bounds: Bounds,
) -> Result<Served, StartError> {
    let (overviews, mut requests) = mpsc::channel::<tokio::sync::oneshot::Sender<Overview>>(1);
    let asked = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&asked);
    std::thread::spawn(move || {
        while let Some(request) = requests.blocking_recv() {
            count.fetch_add(1, Ordering::SeqCst);
            let _ = request.send(overview());
        }
    });
    let access = Access { names: vec![], origins: vec!["https://friend.example".into()] };
    let config = Config { outlet: outlet.clone(), overviews, input, registry: Default::default(), access, bounds };
    Gateway::start(listener, config).map(|gateway| Served { gateway, asked })
}

pub fn serve(outlet: &Outlet, input: Option<InputHandle>, bounds: Bounds) -> Served {
    try_serve(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap(), outlet, input, bounds).unwrap()
}

impl Served {
    pub fn address(&self) -> SocketAddr {
        self.gateway.address()
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address())
    }

    /// The whole answer to `GET path`.
    pub fn get(&self, path: &str) -> String {
        self.ask(&format!("GET {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", self.address()))
    }

    pub fn ask(&self, request: &str) -> String {
        let mut stream = self.connect();
        // It may be closed before all is written.
        let _ = stream.write_all(request.as_bytes());
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).into_owned()
    }

    pub fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address()).unwrap();
        stream.set_read_timeout(Some(LONG)).unwrap();
        stream.set_write_timeout(Some(LONG)).unwrap();
        stream
    }

    /// Begins `GET path` and reads the answer's head: what was read of the body with it, and the rest to read.
    pub fn open(&self, path: &str) -> (String, Vec<u8>, TcpStream) {
        let mut stream = self.connect();
        // By HTTP 1.0 the body comes without chunks, up to the end.
        write!(stream, "GET {path} HTTP/1.0\r\nHost: {}\r\n\r\n", self.address()).unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&head)));
            head.push(byte[0]);
        }
        (String::from_utf8_lossy(&head).into_owned(), Vec::new(), stream)
    }

    /// A figure of `/metrics`.
    pub fn metric(&self, name: &str) -> u64 {
        let text = self.get("/metrics");
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')).map(str::to_owned);
        line.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("no {name} in {text}"))
    }
}

pub fn status(answer: &str) -> u16 {
    answer.get(9..12).and_then(|code| code.parse().ok()).unwrap_or_else(|| panic!("no answer: {answer:?}"))
}

/// Waits until something is so.
pub fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < LONG, "{what} is not so after {LONG:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// What the peer would say.
fn overview() -> Overview {
    Overview {
        role: Role::Server,
        version: "1.2.3".into(),
        uptime_s: 1.0,
        stream: Stream {
            key: "00".repeat(32),
            link: "anabranch://test".into(),
            mode: Mode::Hybrid,
            slices: 20,
            bitrate_bits_per_s: None,
            buffer_s: 3.0,
            has_video: None,
            is_private: false,
        },
        input: None,
        here: Here {
            address: None,
            client: None,
            is_private: false,
            state: HereState::Live,
            detail: None,
            played_packets: 0,
            skipped_packets: 0,
            forged_packets: 0,
            delay_s: None,
            buffered_s: None,
            upload: Upload {
                sent_bytes: 0,
                by_kind: SentByKind::default(),
                sent_bits_per_s: None,
                capacity_bits_per_s: None,
                limit_bits_per_s: None,
            },
            download_bits_per_s: None,
            server_share: None,
            sessions: 0,
            children: 0,
            players: 0,
            feeds: vec![],
            children_by_slice: vec![],
        },
        overlay: None,
    }
}

/// The clip, `rounds` times as one stream.
pub fn film(rounds: usize) -> Vec<u8> {
    let (mut repetition, mut film) = (Repetition::default(), Vec::new());
    for _ in 0..rounds {
        for packet in CLIP.as_chunks::<PACKET>().0 {
            let mut packet = *packet;
            repetition.next(&mut packet);
            film.extend_from_slice(&packet);
        }
        repetition.rewind();
    }
    film
}

/// In pieces as a peer gets them.
pub fn pieces(film: &[u8]) -> Vec<Arc<[u8]>> {
    let (mut cutter, mut pieces) = (Cutter::default(), Vec::new());
    cutter.push(film, |cut| pieces.push(cut.bytes)).unwrap();
    pieces.extend(cutter.flush().map(|cut| cut.bytes));
    pieces
}

/// A stream that goes on until it is dropped: from a source, by an input, straight to players.
pub struct Live {
    pub outlet: Outlet,
    pub served: Served,
    pub input: Option<Input>,
    mover: Option<JoinHandle<()>>,
}

impl Live {
    pub fn start(source: Source, options: &SourceOptions, bounds: Bounds) -> Live {
        let outlet = Outlet::new(OutletConfig::default());
        let (input, cuts) = Input::start(source, options).unwrap();
        let served = serve(&outlet, Some(input.handle()), bounds);
        let mover = Some(move_cuts(cuts, outlet.clone()));
        Live { outlet, served, input: Some(input), mover }
    }

    /// The clip, as it would be live.
    pub fn clip() -> Live {
        let options = SourceOptions { is_looped: true, ..SourceOptions::default() };
        Live::start(Source::File(CLIP_PATH.into()), &options, Bounds::default())
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        // The cuts end with the input, unless they are put in by the gateway.
        drop(self.input.take());
        if let Some(mover) = self.mover.take().filter(|mover| mover.is_finished()) {
            let _ = mover.join();
        }
    }
}

fn move_cuts(mut cuts: mpsc::Receiver<Cut>, outlet: Outlet) -> JoinHandle<()> {
    std::thread::spawn(move || {
        while let Some(cut) = cuts.blocking_recv() {
            outlet.push([cut.bytes]);
        }
        outlet.end();
    })
}
