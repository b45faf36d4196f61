//! Real sockets: many questions on one connection, slow and greedy clients, and the address that a reply comes from.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use landfall_dns::{Config, Server, start};
use landfall_plan::records::Resolved;
use landfall_runtime::metrics::Registry;
use landfall_runtime::tasks::Tasks;

use crate::lab::{ADDRESSES, SEED, config, federation, plans, question, say};

/// Far longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(20);

fn check(listen: &str, idle: Duration, test: impl FnOnce(&Server, SocketAddr)) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let tasks = Tasks::default();
    let listen_inside = vec!["127.0.0.1:0".parse().unwrap()];
    let listen = vec![listen.parse().unwrap()];
    let config = Config { listen, listen_inside, threads: 2, tcp_idle: idle, ..config() };
    let server = runtime.block_on(async { start(&config, &tasks, &Registry::default()).unwrap() });
    let plans = plans();
    server.publish(&federation(), plans.iter().map(|plan| ("my-namespace", plan)), Resolved::new());
    test(&server, server.addresses()[0]);
    let stopped = runtime.block_on(async { tokio::time::timeout(PATIENCE, tasks.join()).await });
    stopped.expect("it stops, whatever clients do");
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

fn framed(packet: &[u8]) -> Vec<u8> {
    [&u16::try_from(packet.len()).unwrap().to_be_bytes()[..], packet].concat()
}

/// One reply; none if the connection was closed.
fn reply(stream: &mut TcpStream) -> Option<Vec<u8>> {
    let mut length = [0; 2];
    stream.read_exact(&mut length).ok()?;
    let mut message = vec![0; usize::from(u16::from_be_bytes(length))];
    stream.read_exact(&mut message).unwrap();
    Some(message)
}

#[test]
fn many_questions_on_one_connection() {
    check("127.0.0.1:0", PATIENCE, |_, address| {
        let mut stream = connect(address);
        let all: Vec<u8> = (0..200_u16)
            .flat_map(|id| {
                let mut packet = question(SEED, 1);
                packet[..2].copy_from_slice(&id.to_be_bytes());
                framed(&packet)
            })
            .collect();
        stream.write_all(&all).unwrap();
        for id in 0..200_u16 {
            let reply = reply(&mut stream).unwrap();
            assert_eq!(reply[..2], id.to_be_bytes());
            assert!(say(&reply).contains(ADDRESSES[0]));
        }
    });
}

#[test]
fn the_longest_message_and_the_shortest() {
    check("127.0.0.1:0", PATIENCE, |_, address| {
        let mut stream = connect(address);
        let mut long = question(SEED, 1);
        long.resize(65_535, 0);
        stream.write_all(&framed(&long)).unwrap();
        assert_eq!(say(&reply(&mut stream).unwrap()), "FormErr");
        stream.write_all(&framed(&question(SEED, 1))).unwrap();
        assert!(say(&reply(&mut stream).unwrap()).contains(ADDRESSES[0]), "the connection goes on");
        stream.write_all(&framed(b"")).unwrap();
        assert_eq!(reply(&mut stream), None, "who talks nonsense is let go");
    });
}

#[test]
fn silent_and_greedy_clients_are_let_go_and_others_served() {
    check("127.0.0.1:0", Duration::from_millis(300), |_, address| {
        let mut silent: Vec<TcpStream> = (0..32).map(|_| connect(address)).collect();
        for stream in &mut silent {
            stream.write_all(&framed(&question(SEED, 1))).unwrap();
            reply(stream).unwrap();
        }
        let mut one_more = connect(address);
        // It may be closed before the question is out.
        let _ = one_more.write_all(&framed(&question(SEED, 1)));
        assert_eq!(reply(&mut one_more), None, "one client has no more than its share");
        assert_eq!(reply(&mut silent[0]), None, "who is silent for long is let go");
        silent.drain(..).for_each(|mut stream| assert_eq!(reply(&mut stream), None));
        let began = Instant::now();
        let served = loop {
            let mut stream = connect(address);
            let _ = stream.write_all(&framed(&question(SEED, 1)));
            if let Some(reply) = reply(&mut stream) {
                break reply;
            }
            assert!(began.elapsed() < PATIENCE, "never served again");
        };
        assert!(say(&served).contains(ADDRESSES[0]));
    });
}

#[test]
fn a_reply_comes_from_the_address_that_was_asked() {
    for (listen, client, asked) in [("0.0.0.0:0", "127.0.0.1:0", "127.0.0.77"), ("[::]:0", "[::1]:0", "::1")]
    {
        check(listen, PATIENCE, |_, address| {
            let socket = UdpSocket::bind(client).unwrap();
            socket.set_read_timeout(Some(PATIENCE)).unwrap();
            // Who is connected takes replies from that address only.
            socket.connect((asked, address.port())).unwrap();
            for _ in 0..3 {
                socket.send(&question(SEED, 1)).unwrap();
                let mut reply = [0; 512];
                let length = socket.recv(&mut reply).unwrap();
                assert!(say(&reply[..length]).contains(ADDRESSES[0]), "{asked}");
            }
        });
    }
}

/// A resolver of the member asks for its pods: where it comes in says where they stand, not its address.
#[test]
fn who_comes_in_inside_stands_inside() {
    check("127.0.0.1:0", PATIENCE, |server, outside| {
        for (address, first) in [(outside, ADDRESSES[0]), (server.addresses()[1], "10.0.153.185")] {
            let mut stream = connect(address);
            stream.write_all(&framed(&question(SEED, 1))).unwrap();
            let by_tcp = say(&reply(&mut stream).unwrap());
            let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
            socket.set_read_timeout(Some(PATIENCE)).unwrap();
            socket.send_to(&question(SEED, 1), address).unwrap();
            let mut reply = [0; 512];
            let length = socket.recv(&mut reply).unwrap();
            for said in [by_tcp, say(&reply[..length])] {
                assert!(said.contains(first) && said.contains(ADDRESSES[1]), "{address}: {said}");
                assert_eq!(said.contains("10.0.153.185"), address != outside, "{address}: {said}");
            }
        }
    });
}
