//! Broken connections, restarted nodes, and silent nodes.

use crate::test_node::{TestNode, bytes, store, tier};
use bathyal_remote::{Credentials, Identity, Node, NodeOptions};
use bathyal_store::{GenerationExt, Store};
use bathyal_tier::{Completion, FaultKind, Queue, Read, complete_all};
use std::io::{Read as _, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// A relay between a client and a node. It can break connections, and drop what the node sends.
struct Relay {
    address: SocketAddr,
    streams: Arc<Mutex<Vec<TcpStream>>>,
    silent: Arc<AtomicBool>,
    /// Bytes from the node after which its connection is broken, once.
    break_after: Arc<AtomicUsize>,
    connections: Arc<AtomicUsize>,
}

impl Relay {
    fn new(node: SocketAddr) -> Relay {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let relay = Relay {
            address: listener.local_addr().unwrap(),
            streams: Arc::default(),
            silent: Arc::default(),
            break_after: Arc::new(AtomicUsize::new(usize::MAX)),
            connections: Arc::default(),
        };
        let (streams, silent) = (relay.streams.clone(), relay.silent.clone());
        let (break_after, connections) = (relay.break_after.clone(), relay.connections.clone());
        std::thread::spawn(move || {
            for peer in listener.incoming().flatten() {
                let Ok(to_node) = TcpStream::connect(node) else { continue };
                connections.fetch_add(1, Ordering::SeqCst);
                streams.lock().unwrap().extend([peer.try_clone().unwrap(), to_node.try_clone().unwrap()]);
                let (mut from, mut to) = (peer.try_clone().unwrap(), to_node.try_clone().unwrap());
                std::thread::spawn(move || {
                    let _ = std::io::copy(&mut from, &mut to);
                    let _ = to.shutdown(Shutdown::Both);
                });
                let (silent, break_after) = (silent.clone(), break_after.clone());
                let (mut from, mut to) = (to_node, peer);
                std::thread::spawn(move || {
                    let mut part = [0; 1000];
                    while let Ok(got @ 1..) = from.read(&mut part) {
                        if silent.load(Ordering::SeqCst) {
                            continue;
                        }
                        let left = break_after.load(Ordering::SeqCst);
                        if left <= got {
                            break_after.store(usize::MAX, Ordering::SeqCst);
                            let _ = to.write_all(&part[..left]);
                            break;
                        }
                        if left != usize::MAX {
                            break_after.store(left - got, Ordering::SeqCst);
                        }
                        if to.write_all(&part[..got]).is_err() {
                            break;
                        }
                    }
                    let _ = to.shutdown(Shutdown::Both);
                    let _ = from.shutdown(Shutdown::Both);
                });
            }
        });
        relay
    }

    fn break_all(&self) {
        for stream in self.streams.lock().unwrap().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

/// Reads `count` parts of 4,000 bytes. Returns the completions in the order of the parts.
pub fn read_parts(queue: &mut dyn Queue, count: usize, out: &mut [u8]) -> Vec<Completion> {
    let start = out.as_mut_ptr();
    let reads: Vec<Read> = (0..count)
        .map(|i| Read {
            id: i as u64,
            offset: i as u64 * 4000,
            len: 4000,
            buffer: start.wrapping_add(i * 4000),
            round: 0,
        })
        .collect();
    let (mut done, began) = (Vec::new(), Instant::now());
    let collect = |some: &[Completion]| {
        done.extend_from_slice(some);
        assert!(began.elapsed() < Duration::from_secs(20), "{} of {count}", done.len());
        ControlFlow::Continue(())
    };
    // SAFETY: each read has its own part of `out`, and all have completed before this returns.
    complete_all(queue, count, |queue, from| unsafe { queue.submit(&reads[from..]) }, collect).unwrap();
    assert_eq!(queue.in_flight(), 0);
    done.sort_by_key(|done| done.id);
    done
}

pub fn content() -> Vec<u8> {
    (0..200_000_u32).map(|i| (i / 7 + i) as u8).collect()
}

#[test]
fn reads_are_sent_again_when_their_connection_breaks() {
    let node = TestNode::new(64 << 20);
    node.put("index", &content());
    let relay = Relay::new(node.server.address());
    let store = store(relay.address, node.server.credentials(), &[("transport", "tcp")], node.folder.path());
    let generation = store.open("index").unwrap();
    let mut queue = tier(generation.as_ref()).open(64).unwrap();
    // Break in the head of a response, between two responses, in the bytes of one, and before the last byte.
    for after in [1, 16, 4016, 4020, 39_999, 50 * 4016 - 1] {
        relay.break_after.store(after, Ordering::SeqCst);
        let mut out = vec![0; 200_000];
        let done = read_parts(queue.as_mut(), 50, &mut out);
        assert!(done.iter().all(|done| done.result == Ok(4000)), "after {after}: {done:?}");
        assert!(out == content(), "after {after}");
    }
    // Break the control connection, too: the client begins a new session.
    relay.break_all();
    let mut out = vec![0; 200_000];
    let done = read_parts(queue.as_mut(), 50, &mut out);
    assert!(done.iter().all(|done| done.result == Ok(4000)) && out == content(), "{done:?}");
}

#[test]
fn changes_fail_when_their_connection_breaks_and_are_not_repeated() {
    let node = TestNode::new(64 << 20);
    node.put("index", &[0; 4096]);
    let relay = Relay::new(node.server.address());
    let options = [("transport", "tcp"), ("timeout", "0.5")];
    let store = store(relay.address, node.server.credentials(), &options, node.folder.path()).for_writing();
    let generation = store.open("index").unwrap();
    let tier = tier(generation.as_ref());
    let mut queue = tier.writable().unwrap().open_write(8).unwrap();
    relay.silent.store(true, Ordering::SeqCst);
    let mut old = 0_u64;
    let action = bathyal_tier::Action::FetchAndAdd { by: 1, old: &raw mut old };
    let add = bathyal_tier::Operation { id: 5, offset: 8, action, linked: false };
    // SAFETY: the number outlives the operation, which has completed before it is read.
    unsafe { queue.submit_operations(&[add]).unwrap() };
    let mut done: Vec<Completion> = Vec::new();
    let began = Instant::now();
    while done.is_empty() && began.elapsed() < Duration::from_secs(20) {
        queue.reap(&mut done, Some(Duration::from_millis(100))).unwrap();
    }
    assert_eq!(done[0].result.unwrap_err().kind, FaultKind::LostPeer);
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    let now = node.store(&[]).open("index").unwrap();
    assert_eq!(now.read(crate::test_node::DATA).unwrap()[8], 1);
}

#[test]
fn reads_from_a_silent_node_fail_in_time() {
    let node = TestNode::new(64 << 20);
    node.put("index", &content());
    let relay = Relay::new(node.server.address());
    let options = [("transport", "tcp"), ("timeout", "0.3")];
    let store = store(relay.address, node.server.credentials(), &options, node.folder.path());
    let generation = store.open("index").unwrap();
    let mut queue = tier(generation.as_ref()).open(64).unwrap();
    relay.silent.store(true, Ordering::SeqCst);
    let began = Instant::now();
    let done = read_parts(queue.as_mut(), 50, &mut vec![0; 200_000]);
    assert!(done.iter().all(|done| done.result.unwrap_err().kind == FaultKind::LostPeer), "{done:?}");
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    // The queue works again once the node responds.
    relay.silent.store(false, Ordering::SeqCst);
    let mut out = vec![0; 200_000];
    let done = read_parts(queue.as_mut(), 50, &mut out);
    assert!(done.iter().all(|done| done.result == Ok(4000)) && out == content(), "{done:?}");
}

#[test]
fn reads_from_a_restarted_node_fail() {
    let folder = tempfile::tempdir().unwrap();
    let keys = folder.path().join("keys");
    let listen = SocketAddr::from(([127, 0, 0, 1], 0));
    let options = NodeOptions { listen, capacity_bytes: 64 << 20 };
    let node = Node::start(&options, Identity::in_folder(&keys).unwrap()).unwrap();
    let credentials: Credentials = node.credentials().clone();
    let address = node.address();
    let first = TestNode { server: node, folder };
    first.put("index", &content());
    let store_options = [("transport", "tcp"), ("timeout", "1")];
    let before = first.store(&store_options).open("index").unwrap();
    let mut queue = tier(before.as_ref()).open(64).unwrap();
    let TestNode { server: node, folder } = first;
    drop(node);
    let done = read_parts(queue.as_mut(), 50, &mut vec![0; 200_000]);
    assert!(done.iter().all(|done| done.result.unwrap_err().kind == FaultKind::LostPeer), "{done:?}");
    // The port, the name and the bytes are the same, but the generation is another one than the client
    // opened.
    let options = NodeOptions { listen: address, ..options };
    let node = Node::start(&options, Identity::in_folder(&keys).unwrap()).unwrap();
    let second = TestNode { server: node, folder };
    second.put("index", &content());
    let done = read_parts(queue.as_mut(), 50, &mut vec![0; 200_000]);
    assert!(done.iter().all(|done| done.result.unwrap_err().kind == FaultKind::Forgotten), "{done:?}");
    let again = store(address, &credentials, &store_options, second.folder.path()).open("index").unwrap();
    assert!(bytes(again.as_ref()) == content());
}

#[test]
fn waiting_reads_continue_when_the_node_holds_the_same_generation_again() {
    for same in [true, false] {
        let folder = tempfile::tempdir().unwrap();
        let keys = folder.path().join("keys");
        let listen = SocketAddr::from(([127, 0, 0, 1], 0));
        let options = NodeOptions { listen, capacity_bytes: 64 << 20 };
        let node = Node::start(&options, Identity::in_folder(&keys).unwrap()).unwrap();
        let address = node.address();
        let first = TestNode { server: node, folder };
        first.put("index", &content());
        let seconds = if same { "20" } else { "0.8" };
        let store_options = [("transport", "tcp"), ("timeout", "1"), ("wait", seconds)];
        let before = first.store(&store_options).open("index").unwrap();
        let mut queue = tier(before.as_ref()).open(64).unwrap();
        let TestNode { server: node, folder } = first;
        drop(node);
        let options = NodeOptions { listen: address, ..options };
        let starting = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(500));
            let node = Node::start(&options, Identity::in_folder(&keys).unwrap()).unwrap();
            let second = TestNode { server: node, folder };
            // Another generation first, so that the keys differ.
            second.put("other", &[1; 100]);
            let mut now = content();
            now[199_999] ^= u8::from(!same);
            second.put("index", &now);
            second
        });
        let mut out = vec![0; 200_000];
        let done = read_parts(queue.as_mut(), 50, &mut out);
        let second = starting.join().unwrap();
        if same {
            assert!(done.iter().all(|done| done.result == Ok(4000)) && out == content(), "{done:?}");
            // Later reads work, too.
            let done = read_parts(queue.as_mut(), 50, &mut out);
            assert!(done.iter().all(|done| done.result == Ok(4000)) && out == content(), "{done:?}");
        } else {
            let kinds = [FaultKind::Forgotten, FaultKind::LostPeer];
            assert!(done.iter().all(|done| kinds.contains(&done.result.unwrap_err().kind)), "{done:?}");
        }
        drop(second);
    }
}

#[test]
fn operations_that_are_given_up_end_at_once() {
    let node = TestNode::new(64 << 20);
    node.put("index", &content());
    let relay = Relay::new(node.server.address());
    let options = [("transport", "tcp"), ("wait", "100")];
    let store = store(relay.address, node.server.credentials(), &options, node.folder.path());
    let generation = store.open("index").unwrap();
    let mut queue = tier(generation.as_ref()).open(64).unwrap();
    relay.silent.store(true, Ordering::SeqCst);
    let mut out = vec![0; 4000];
    let read = Read { id: 3, offset: 0, len: 4000, buffer: out.as_mut_ptr(), round: 0 };
    // SAFETY: the buffer outlives the queue.
    unsafe { queue.submit(&[read]).unwrap() };
    let mut done = Vec::new();
    queue.reap(&mut done, Some(Duration::from_millis(50))).unwrap();
    assert!(done.is_empty() && queue.in_flight() == 1);
    queue.give_up();
    queue.reap(&mut done, None).unwrap();
    assert_eq!((done.len(), queue.in_flight()), (1, 0));
    assert_eq!(done[0].result.unwrap_err().kind, FaultKind::LostPeer);
    // The queue can be used again.
    relay.silent.store(false, Ordering::SeqCst);
    let mut out = vec![0; 200_000];
    let done = read_parts(queue.as_mut(), 50, &mut out);
    assert!(done.iter().all(|done| done.result == Ok(4000)) && out == content(), "{done:?}");
}
