use super::*;

/// A query for the address of `name` (RFC 1035 4.1).
fn query(id: u16, name: &str) -> Vec<u8> {
    let mut bytes = [id.to_be_bytes(), [1, 0], [0, 1], [0, 0], [0, 0], [0, 0]].concat();
    for label in name.split('.') {
        bytes.push(label.len() as u8);
        bytes.extend_from_slice(label.as_bytes());
    }
    bytes.extend_from_slice(&[0, 0, 1, 0, 1]);
    bytes
}

/// What a name server says to it: this address, for an hour.
fn answer(query: &[u8], address: [u8; 4]) -> Vec<u8> {
    let header = [&query[..2], &[0x81, 0x80, 0, 1, 0, 1, 0, 0, 0, 0]].concat();
    let record = [&[0xc0, 12, 0, 1, 0, 1][..], &3600u32.to_be_bytes(), &[0, 4], &address].concat();
    [&header, &query[12..], &record].concat()
}

/// A name server at `host`; where, and the queries that have come.
fn name_server(host: [u8; 4]) -> (SocketAddr, Arc<Mutex<Vec<Vec<u8>>>>) {
    let socket = UdpSocket::bind((std::net::Ipv4Addr::from(host), 0)).expect("loopback");
    let (address, queries) = (socket.local_addr().expect("it is bound"), Arc::new(Mutex::new(Vec::new())));
    let seen = queries.clone();
    thread::spawn(move || {
        let mut buffer = [0; 2000];
        while let Ok((length, from)) = socket.recv_from(&mut buffer) {
            let query = buffer[..length].to_vec();
            let _ = socket.send_to(&answer(&query, [192, 0, 2, 7]), from);
            seen.lock().unwrap_or_else(PoisonError::into_inner).push(query);
        }
    });
    (address, queries)
}

/// An association of the proxy's: the connection that holds it, and where its datagrams go.
fn associate(socks: &str) -> (TcpStream, SocketAddr) {
    let mut control = TcpStream::connect(socks).expect("it listens");
    control.write_all(&[5, 1, 0]).expect("it reads");
    control.read_exact(&mut [0; 2]).expect("it answers");
    control.write_all(&[5, 3, 0, 1, 0, 0, 0, 0, 0, 0]).expect("it reads");
    let mut reply = [0; 10];
    control.read_exact(&mut reply).expect("it answers");
    assert_eq!(reply[..4], [5, 0, 0, 1]);
    let port = u16::from_be_bytes([reply[8], reply[9]]);
    (control, SocketAddr::from(([reply[4], reply[5], reply[6], reply[7]], port)))
}

#[test]
fn a_name_server_is_asked_through_the_proxy_where_the_exit_allows_it() {
    let overlay = Overlay::start(200, 6, None, |_| Some(b"a page".to_vec()));
    overlay.fetch("/", |_| {});
    let ((allowed, queries), (forbidden, others)) = (name_server([127, 0, 0, 1]), name_server([127, 0, 0, 2]));
    let (_control, relay) = associate(&overlay.socks);
    let program = UdpSocket::bind("127.0.0.1:0").expect("loopback");
    program.set_read_timeout(Some(Duration::from_millis(500))).expect("a timeout");
    let ask = |server: SocketAddr, query: &[u8]| {
        let SocketAddr::V4(v4) = server else { panic!("the server has an address of IPv4") };
        let header = [&[0, 0, 0, 1], &v4.ip().octets()[..], &v4.port().to_be_bytes()].concat();
        program.send_to(&[&header, query].concat(), relay).expect("loopback");
        let mut buffer = [0; 2000];
        let length = program.recv(&mut buffer).ok()?;
        // It says who has answered.
        (buffer[..10] == header[..]).then(|| buffer[10..length].to_vec())
    };
    for id in 0..20 {
        let query = query(id, "host.example.org");
        let begun = Instant::now();
        // An answer may be lost, or come late, as with any name server.
        while ask(allowed, &query).is_none_or(|came| came != answer(&query, [192, 0, 2, 7])) {
            assert!(begun.elapsed() < PATIENCE, "no answer to {id}");
        }
        if id % 5 == 0 {
            assert_eq!(ask(forbidden, &query), None);
        }
    }
    let seen = queries.lock().unwrap_or_else(PoisonError::into_inner);
    assert!(seen.len() >= 20 && others.lock().unwrap_or_else(PoisonError::into_inner).is_empty());
    let done = overlay.proxy.end();
    assert!(!done.to_string().contains("127.0.0"), "no target is told: {done}");
}
