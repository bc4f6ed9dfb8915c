//! Invalid clients receive nothing, and do not affect others.

use crate::test_node::{DATA, TestNode, bytes, tier};
use bathyal_remote::wire::{
    HELLO_BYTES, MAGIC, OPERATION_HEAD_BYTES, OperationHead, Outcome, RESPONSE_HEAD_BYTES, ResponseHead, Verb,
};
use bathyal_remote::{Credentials, Identity};
use bathyal_store::{Replace, Store, StoreError};
use bathyal_tier::{FaultKind, Queue, Read, complete_operations, complete_reads};
use std::io::{ErrorKind, Read as _, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

const CAPACITY: u64 = 64 << 20;

/// Sends `bytes` on a new connection. Returns what the node sends until it closes the connection.
fn exchange(node: &TestNode, bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(node.server.address()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.write_all(bytes).unwrap();
    let _ = stream.shutdown(Shutdown::Write);
    let mut response = Vec::new();
    // Closing a connection with unread bytes resets it, which is an error here.
    let _ = stream.read_to_end(&mut response);
    response
}

#[test]
fn without_the_token_only_the_health_is_reported() {
    let node = TestNode::new(CAPACITY);
    node.put("index", b"a secret");
    assert!(exchange(&node, b"GET /health HTTP/1.1\r\n\r\n").starts_with(b"HTTP/1.1 200 OK"));
    assert!(exchange(&node, b"GET /metrics HTTP/1.1\r\n\r\n").starts_with(b"HTTP/1.1 404"));
    assert!(exchange(&node, b"GET / HTTP/1.1\r\n\r\n").starts_with(b"HTTP/1.1 404"));
    let ticket = [&MAGIC[..], &[0; 16]].concat();
    for bytes in
        [&b"POST / HTTP/1.1\r\n\r\n"[..], b"\0\0\0\x02{}", &ticket, &[0x16, 3, 1, 0, 5, 1, 2, 3, 4, 5]]
    {
        let response = exchange(&node, bytes);
        // TLS sends an alert, and nothing else.
        assert!(response.len() < 8, "{response:?}");
    }
    let valid = node.server.credentials();
    let wrong = Credentials { token: "0".repeat(32), ..valid.clone() };
    let refused = node.store_as(&wrong, &[]).open("index").unwrap_err();
    assert!(matches!(refused, StoreError::Denied { .. }), "{refused:?}");
    let refused = refused.to_string();
    assert!(refused.contains("refuses the token") && !refused.contains(&wrong.token), "{refused}");
    let short = Credentials { token: valid.token[1..].to_owned(), ..valid.clone() };
    assert!(node.store_as(&short, &[]).open("index").is_err());
    let other =
        Credentials { peer_key: Identity::new().unwrap().credentials().peer_key.clone(), ..valid.clone() };
    let refused = node.store_as(&other, &[]).open("index").unwrap_err().to_string();
    assert!(refused.contains(&valid.peer_key) && refused.contains("something else answers"), "{refused}");
    assert!(node.server.status().refused >= 2);
    assert_eq!(bytes(node.store(&[]).open("index").unwrap().as_ref()), b"a secret");
}

/// Starts a relay in front of a node. The receiver gets all bytes that clients send on data connections.
fn start_relay(node: SocketAddr) -> (SocketAddr, Receiver<Vec<u8>>) {
    let relay = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = relay.local_addr().unwrap();
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for from in relay.incoming().flatten() {
            let Ok(to) = TcpStream::connect(node) else { return };
            let sender = sender.clone();
            let (mut one, mut two) = (from.try_clone().unwrap(), to.try_clone().unwrap());
            std::thread::spawn(move || {
                let (mut part, mut is_data) = ([0; 4096], None);
                while let Ok(got @ 1..) = one.read(&mut part) {
                    if *is_data.get_or_insert(part.starts_with(&MAGIC)) {
                        let _ = sender.send(part[..got].to_vec());
                    }
                    if two.write_all(&part[..got]).is_err() {
                        return;
                    }
                }
                let _ = two.shutdown(Shutdown::Both);
            });
            let (mut one, mut two) = (to, from);
            std::thread::spawn(move || {
                let _ = std::io::copy(&mut one, &mut two);
                let _ = two.shutdown(Shutdown::Both);
            });
        }
    });
    (address, receiver)
}

/// Reads 8 bytes at offset 0.
fn read_8_bytes(queue: &mut dyn Queue) {
    let mut buffer = [0; 8];
    let read = Read { id: 1, offset: 0, len: 8, buffer: buffer.as_mut_ptr(), round: 0 };
    // SAFETY: the buffer outlives the read, which has completed before this returns.
    unsafe { complete_reads(queue, &[read]).unwrap() };
}

#[test]
fn a_client_with_its_own_implementation_reaches_only_regions_of_its_session() {
    let node = TestNode::new(CAPACITY);
    node.put("index", &[9; 1000]);
    node.put("other", b"what the session has not opened");
    // A real client, with a session for reading, provides a valid ticket and key.
    let (relay, sent) = start_relay(node.server.address());
    let mut keys = Vec::new();
    let mut sessions = Vec::new();
    for name in ["index", "other"] {
        let store = crate::test_node::store(
            relay,
            node.server.credentials(),
            &[("transport", "tcp")],
            node.folder.path(),
        );
        let generation = store.open(name).unwrap();
        let mut queue = tier(generation.as_ref()).open(1).unwrap();
        read_8_bytes(queue.as_mut());
        let mut bytes_sent = Vec::new();
        while bytes_sent.len() < HELLO_BYTES + OPERATION_HEAD_BYTES {
            bytes_sent.extend(sent.recv_timeout(Duration::from_secs(10)).unwrap());
        }
        let head: &[u8; OPERATION_HEAD_BYTES] = bytes_sent[HELLO_BYTES..].first_chunk().unwrap();
        keys.push(OperationHead::decode(head).unwrap().region);
        sessions.push((bytes_sent[..HELLO_BYTES].to_vec(), generation));
    }
    let mut stream = TcpStream::connect(node.server.address()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    stream.write_all(&sessions[0].0).unwrap();
    stream.read_exact(&mut [0]).unwrap();
    let mut execute = |verb: Verb, len: u32, region: u64, offset: u64| {
        let head = OperationHead { verb, linked: false, len, region, offset };
        stream.write_all(&head.encode()).unwrap();
        if verb == Verb::Write {
            stream.write_all(&vec![1; len as usize]).unwrap();
        }
        let mut bytes = [0; RESPONSE_HEAD_BYTES];
        stream.read_exact(&mut bytes).unwrap();
        let outcome = ResponseHead::decode(&bytes).unwrap().outcome;
        if let (Verb::Read, Outcome::Done(len)) = (verb, outcome) {
            stream.read_exact(&mut vec![0; len as usize]).unwrap();
        }
        outcome
    };
    let changes = [Verb::Write, Verb::FetchAndAdd { by: 1 }, Verb::CompareAndSwap { expected: 0, new: 1 }];
    assert_eq!(execute(Verb::Read, 8, keys[0], 0), Outcome::Done(8));
    for verb in changes {
        assert_eq!(execute(verb, 8, keys[0], 0), Outcome::Denied, "{verb:?}");
    }
    // Keys of another session, of other things near its own, and of nothing.
    for region in [keys[1], keys[0] + 2, keys[0] - 1, 0, u64::MAX] {
        for verb in [Verb::Read].into_iter().chain(changes) {
            assert_eq!(execute(verb, 8, region, 0), Outcome::Unknown, "{verb:?}");
        }
    }
    // Invalid bytes end the connection.
    stream.write_all(&[0xFF; OPERATION_HEAD_BYTES]).unwrap();
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest);
    assert!(rest.is_empty(), "{rest:?}");
    // The ticket becomes invalid with its session.
    let hello = sessions.remove(0).0;
    let began = Instant::now();
    while !exchange(&node, &hello).is_empty() {
        assert!(began.elapsed() < Duration::from_secs(10), "the ticket of an ended session is accepted");
    }
    assert_eq!(bytes(node.store(&[]).open("index").unwrap().as_ref()), vec![9; 1000]);
}

#[test]
fn reads_outside_are_short_and_changes_outside_are_refused() {
    let node = TestNode::new(CAPACITY);
    node.put("index", &[9; 1000]);
    for transport in ["tcp", "shm"] {
        let store = node.store(&[("transport", transport)]).for_writing();
        let generation = store.open("index").unwrap();
        let tier = tier(generation.as_ref());
        let mut queue = tier.open(4).unwrap();
        let mut buffer = [0; 64];
        for (offset, expected) in [(990, 10), (1000, 0), (u64::MAX - 3, 0)] {
            let read = Read { id: 1, offset, len: 64, buffer: buffer.as_mut_ptr(), round: 0 };
            // SAFETY: the buffer outlives the read, which has completed when this returns.
            let done = unsafe { complete_reads(queue.as_mut(), &[read]).unwrap() };
            assert_eq!(done[0].result, Ok(expected), "{transport}, {offset}");
        }
        drop(queue);
        let mut queue = tier.writable().unwrap().open_write(4).unwrap();
        for offset in [993, 1000, u64::MAX - 3] {
            let action = bathyal_tier::Action::Write { from: buffer.as_ptr(), len: 8 };
            let write = bathyal_tier::Operation { id: 1, offset, action, linked: false };
            // SAFETY: as above.
            let done = unsafe { complete_operations(queue.as_mut(), &[write]).unwrap() };
            assert_eq!(done[0].result.unwrap_err().kind, FaultKind::Device, "{transport}, {offset}");
        }
    }
    assert_eq!(bytes(node.store(&[]).open("index").unwrap().as_ref()), vec![9; 1000]);
}

#[test]
fn names_that_are_paths_are_refused() {
    let node = TestNode::new(CAPACITY);
    for name in ["", ".hidden", "a/b", "a\0b", &"x".repeat(300)] {
        assert!(node.store(&[]).begin(name, Replace::Never).is_err(), "{name:?}");
        assert!(node.store(&[]).open(name).is_err(), "{name:?}");
    }
    node.put("index", b"x");
    assert!(node.store(&[]).open("index").unwrap().get("../index").is_err());
    assert_eq!(node.store(&[]).open("index").unwrap().list().unwrap(), [DATA, crate::test_node::MARK]);
}

#[test]
fn clients_without_a_complete_hello_are_disconnected() {
    let node = TestNode::new(CAPACITY);
    let began = Instant::now();
    // One sends nothing, one begins a hello, and one begins TLS; then each sends a byte every second.
    let begin = |bytes: &[u8]| {
        let mut stream = TcpStream::connect(node.server.address()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
        stream.write_all(bytes).unwrap();
        stream
    };
    let mut waiting = vec![begin(&[]), begin(&MAGIC[..3]), begin(&[0x16])];
    while !waiting.is_empty() {
        assert!(began.elapsed() < Duration::from_secs(30), "{} are still there", waiting.len());
        waiting.retain_mut(|stream| {
            let _ = stream.write(&[3]);
            let ended = stream.read(&mut [0; 16]);
            matches!(ended, Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut))
        });
    }
    assert!(began.elapsed() > Duration::from_secs(5), "{:?}", began.elapsed());
}
