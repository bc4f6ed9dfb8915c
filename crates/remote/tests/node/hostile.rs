//! Peers that are not what they should be get nothing, and take nothing from others.

use crate::place::{DATA, Place, bytes, tier};
use bathyal_remote::wire::{ANSWER_BYTES, Answer, HEAD_BYTES, HELLO_BYTES, Head, MAGIC, Outcome, Verb};
use bathyal_remote::{Credentials, Identity};
use bathyal_store::{Replace, Store, StoreError};
use bathyal_tier::{Completion, FaultKind, Queue, Read};
use std::io::{ErrorKind, Read as _, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

const CAPACITY: u64 = 64 << 20;

/// What a connection says to `bytes` until it is closed.
fn say(place: &Place, bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(place.node.address()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.write_all(bytes).unwrap();
    let _ = stream.shutdown(Shutdown::Write);
    let mut answer = Vec::new();
    // A connection that is closed with bytes unread is reset.
    let _ = stream.read_to_end(&mut answer);
    answer
}

#[test]
fn nothing_is_told_without_the_token_but_that_the_node_is_well() {
    let place = Place::new(CAPACITY);
    place.put("index", b"a secret");
    assert!(say(&place, b"GET /health HTTP/1.1\r\n\r\n").starts_with(b"HTTP/1.1 200 OK"));
    assert!(say(&place, b"GET /metrics HTTP/1.1\r\n\r\n").starts_with(b"HTTP/1.1 404"));
    assert!(say(&place, b"GET / HTTP/1.1\r\n\r\n").starts_with(b"HTTP/1.1 404"));
    let ticket = [&MAGIC[..], &[0; 16]].concat();
    for bytes in
        [&b"POST / HTTP/1.1\r\n\r\n"[..], b"\0\0\0\x02{}", &ticket, &[0x16, 3, 1, 0, 5, 1, 2, 3, 4, 5]]
    {
        let answer = say(&place, bytes);
        // TLS says that it was broken off, and nothing else.
        assert!(answer.len() < 8, "{answer:?}");
    }
    let right = place.node.credentials();
    let wrong = Credentials { token: "0".repeat(32), ..right.clone() };
    let refused = place.store_as(&wrong, &[]).open("index").unwrap_err();
    assert!(matches!(refused, StoreError::Denied { .. }), "{refused:?}");
    let refused = refused.to_string();
    assert!(refused.contains("refuses the token") && !refused.contains(&wrong.token), "{refused}");
    let short = Credentials { token: right.token[1..].to_owned(), ..right.clone() };
    assert!(place.store_as(&short, &[]).open("index").is_err());
    let other =
        Credentials { peer_key: Identity::new().unwrap().credentials().peer_key.clone(), ..right.clone() };
    let refused = place.store_as(&other, &[]).open("index").unwrap_err().to_string();
    assert!(refused.contains(&right.peer_key) && refused.contains("something else answers"), "{refused}");
    assert!(place.node.status().refused >= 2);
    assert_eq!(bytes(place.store(&[]).open("index").unwrap().as_ref()), b"a secret");
}

/// Passes on what peers and the node say, and tells all that goes to the node by data connections.
fn listen_in(node: SocketAddr) -> (SocketAddr, Receiver<Vec<u8>>) {
    let relay = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = relay.local_addr().unwrap();
    let (tell, told) = channel();
    std::thread::spawn(move || {
        for from in relay.incoming().flatten() {
            let Ok(to) = TcpStream::connect(node) else { return };
            let tell = tell.clone();
            let (mut one, mut two) = (from.try_clone().unwrap(), to.try_clone().unwrap());
            std::thread::spawn(move || {
                let (mut part, mut is_data) = ([0; 4096], None);
                while let Ok(got @ 1..) = one.read(&mut part) {
                    if *is_data.get_or_insert(part.starts_with(&MAGIC)) {
                        let _ = tell.send(part[..got].to_vec());
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
    (address, told)
}

/// One read of 8 bytes at 0.
fn read_some(queue: &mut dyn Queue) {
    let (mut buffer, mut done) = ([0; 8], Vec::new());
    let read = Read { id: 1, offset: 0, len: 8, buffer: buffer.as_mut_ptr(), round: 0 };
    // SAFETY: the buffer outlives the queue's use of it: the completion is waited for.
    unsafe { queue.submit(&[read]).unwrap() };
    while done.is_empty() {
        queue.reap(&mut done, Some(Duration::from_secs(1))).unwrap();
    }
}

#[test]
fn a_peer_that_speaks_for_itself_reaches_its_own_regions_alone() {
    let place = Place::new(CAPACITY);
    place.put("index", &[9; 1000]);
    place.put("other", b"what the session has not opened");
    // What a ticket and a key are is heard from a peer of ours, whose session is for reading.
    let (relay, told) = listen_in(place.node.address());
    let mut keys = Vec::new();
    let mut sessions = Vec::new();
    for name in ["index", "other"] {
        let store = crate::place::store(
            relay,
            place.node.credentials(),
            &[("transport", "tcp")],
            place.folder.path(),
        );
        let generation = store.open(name).unwrap();
        let mut queue = tier(generation.as_ref()).open(1).unwrap();
        read_some(queue.as_mut());
        let mut said = Vec::new();
        while said.len() < HELLO_BYTES + HEAD_BYTES {
            said.extend(told.recv_timeout(Duration::from_secs(10)).unwrap());
        }
        let head: &[u8; HEAD_BYTES] = said[HELLO_BYTES..].first_chunk().unwrap();
        keys.push(Head::decode(head).unwrap().region);
        sessions.push((said[..HELLO_BYTES].to_vec(), generation));
    }
    let mut stream = TcpStream::connect(place.node.address()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    stream.write_all(&sessions[0].0).unwrap();
    stream.read_exact(&mut [0]).unwrap();
    let mut ask = |verb: Verb, len: u32, region: u64, offset: u64| {
        let head = Head { verb, linked: false, len, region, offset };
        stream.write_all(&head.encode()).unwrap();
        if verb == Verb::Write {
            stream.write_all(&vec![1; len as usize]).unwrap();
        }
        let mut bytes = [0; ANSWER_BYTES];
        stream.read_exact(&mut bytes).unwrap();
        let outcome = Answer::decode(&bytes).unwrap().outcome;
        if let (Verb::Read, Outcome::Done(len)) = (verb, outcome) {
            stream.read_exact(&mut vec![0; len as usize]).unwrap();
        }
        outcome
    };
    let changes = [Verb::Write, Verb::FetchAndAdd { by: 1 }, Verb::CompareAndSwap { expected: 0, new: 1 }];
    assert_eq!(ask(Verb::Read, 8, keys[0], 0), Outcome::Done(8));
    for verb in changes {
        assert_eq!(ask(verb, 8, keys[0], 0), Outcome::Denied, "{verb:?}");
    }
    // Another session's, numbers of other things beside its own, and none at all.
    for region in [keys[1], keys[0] + 2, keys[0] - 1, 0, u64::MAX] {
        for verb in [Verb::Read].into_iter().chain(changes) {
            assert_eq!(ask(verb, 8, region, 0), Outcome::Unknown, "{verb:?}");
        }
    }
    // What is no operation ends the connection.
    stream.write_all(&[0xFF; HEAD_BYTES]).unwrap();
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest);
    assert!(rest.is_empty(), "{rest:?}");
    // The ticket ends with its session.
    let hello = sessions.remove(0).0;
    let began = Instant::now();
    while !say(&place, &hello).is_empty() {
        assert!(began.elapsed() < Duration::from_secs(10), "a session that is over is let in");
    }
    assert_eq!(bytes(place.store(&[]).open("index").unwrap().as_ref()), vec![9; 1000]);
}

#[test]
fn reads_outside_are_short_and_changes_outside_are_refused() {
    let place = Place::new(CAPACITY);
    place.put("index", &[9; 1000]);
    for transport in ["tcp", "shm"] {
        let store = place.store(&[("transport", transport)]).for_writing();
        let generation = store.open("index").unwrap();
        let tier = tier(generation.as_ref());
        let mut queue = tier.open(4).unwrap();
        let mut buffer = [0; 64];
        for (offset, expected) in [(990, 10), (1000, 0), (u64::MAX - 3, 0)] {
            let read = Read { id: 1, offset, len: 64, buffer: buffer.as_mut_ptr(), round: 0 };
            // SAFETY: the buffer outlives the queue's use of it: the completion is waited for.
            unsafe { queue.submit(&[read]).unwrap() };
            let mut done: Vec<Completion> = Vec::new();
            while done.is_empty() {
                queue.reap(&mut done, Some(Duration::from_secs(1))).unwrap();
            }
            assert_eq!(done[0].result, Ok(expected), "{transport}, {offset}");
        }
        drop(queue);
        let mut queue = tier.writable().unwrap().open_write(4).unwrap();
        for offset in [993, 1000, u64::MAX - 3] {
            let action = bathyal_tier::Action::Write { from: buffer.as_ptr(), len: 8 };
            let write = bathyal_tier::Operation { id: 1, offset, action, linked: false };
            // SAFETY: as above.
            unsafe { queue.submit_operations(&[write]).unwrap() };
            let mut done: Vec<Completion> = Vec::new();
            while done.is_empty() {
                queue.reap(&mut done, Some(Duration::from_secs(1))).unwrap();
            }
            assert_eq!(done[0].result.unwrap_err().kind, FaultKind::Device, "{transport}, {offset}");
        }
    }
    assert_eq!(bytes(place.store(&[]).open("index").unwrap().as_ref()), vec![9; 1000]);
}

#[test]
fn names_that_lead_elsewhere_are_refused() {
    let place = Place::new(CAPACITY);
    for name in ["", ".hidden", "a/b", "a\0b", &"x".repeat(300)] {
        assert!(place.store(&[]).begin(name, Replace::Never).is_err(), "{name:?}");
        assert!(place.store(&[]).open(name).is_err(), "{name:?}");
    }
    place.put("index", b"x");
    assert!(place.store(&[]).open("index").unwrap().get("../index").is_err());
    assert_eq!(place.store(&[]).open("index").unwrap().list().unwrap(), [DATA, crate::place::MARK]);
}

#[test]
fn peers_that_do_not_say_who_they_are_are_sent_away() {
    let place = Place::new(CAPACITY);
    let began = Instant::now();
    // One says nothing, one begins a hello, and one says what could be TLS, a byte every second.
    let begin = |bytes: &[u8]| {
        let mut stream = TcpStream::connect(place.node.address()).unwrap();
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
