//! RDMA, where there is a device: `make check-rdma` runs these in a guest that has one, with `BATHYAL_REQUIRE_RDMA=1`. And what
//! is said where there is none.

use crate::conformance::{CAPACITY, check_store, check_tiers};
use crate::faults::{content, read_parts};
use crate::place::{Place, store, tier};
use bathyal_remote::{Identity, Node, NodeOptions};
use bathyal_store::Store;
use bathyal_tier::contract::{Action, Operation};
use bathyal_tier::{Completion, FaultKind, Read, Tier};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

const VERBS: (&str, &str) = ("transport", "verbs");

/// Whether tests that need a device are to run.
fn is_required() -> bool {
    let required = std::env::var_os("BATHYAL_REQUIRE_RDMA").is_some_and(|value| value == "1");
    if !required {
        println!("skipped: wants an RDMA device; BATHYAL_REQUIRE_RDMA=1 runs it, as make check-rdma does");
    }
    required
}

#[test]
fn without_a_device_verbs_is_an_error_and_auto_another_transport() {
    if std::env::var_os("BATHYAL_REQUIRE_RDMA").is_some() {
        return;
    }
    let place = Place::new(CAPACITY);
    place.put("index", &content());
    let opened = place.store(&[VERBS]).open("index").unwrap();
    let Err(refused) = opened.get(crate::place::DATA) else {
        println!("skipped: this machine has an RDMA device");
        return;
    };
    let refused = refused.to_string();
    assert!(refused.contains("transport=verbs wants an RDMA device on both machines"), "{refused}");
    assert!(refused.contains("RDMA on this machine: "), "{refused}");
    let missing = ["install libibverbs1", "rdma link add", "ib_uverbs", "can be used"];
    assert!(missing.iter().any(|what| refused.contains(what)), "{refused}");
    let opened = place.store(&[]).open("index").unwrap();
    assert_ne!(tier(opened.as_ref()).profile().method, "TCP", "shared memory comes first");
    // Of another machine's node no memory is shared, as of one behind a door that shows no processes; TCP is what is left.
    let opened = place.store(&[("transport", "tcp")]).open("index").unwrap();
    assert_eq!(tier(opened.as_ref()).profile().method, "TCP");
}

#[test]
fn conformance() {
    if is_required() {
        check_tiers(&[VERBS], false);
    }
}

#[test]
fn conformance_of_what_can_be_changed() {
    if is_required() {
        check_tiers(&[VERBS], true);
    }
}

#[test]
fn conformance_with_small_doorbells() {
    if is_required() {
        check_tiers(&[VERBS, ("doorbell", "1")], false);
        check_tiers(&[VERBS, ("doorbell", "3")], true);
    }
}

#[test]
fn the_store() {
    if is_required() {
        check_store("verbs");
    }
}

#[test]
fn profiles_name_the_device() {
    if !is_required() {
        return;
    }
    let place = Place::new(CAPACITY);
    place.put("index", &content());
    let opened = place.store(&[VERBS]).open("index").unwrap();
    let profile = tier(opened.as_ref()).profile().clone();
    assert!(profile.method.starts_with("RDMA by "), "{profile:?}");
    assert_eq!((profile.kind.as_str(), place.node.status().queue_pairs), ("remote", 1));
    drop(opened);
    let began = Instant::now();
    while place.node.status().queue_pairs > 0 {
        assert!(began.elapsed() < Duration::from_secs(20), "the session's connections outlive it");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn numbers_are_changed_by_devices_or_by_processors() {
    if !is_required() {
        return;
    }
    let place = Place::new(CAPACITY);
    place.put("index", &[0; 4096]);
    let open = |transport| place.store(&[("transport", transport)]).for_writing().open("index").unwrap();
    let refused = |transport| match open(transport).get(crate::place::DATA) {
        Ok(_) => panic!("{transport} is not refused"),
        Err(why) => why.to_string(),
    };
    let by_device = open("verbs");
    let device = tier(by_device.as_ref());
    assert!(refused("shm").contains("peers may change the index by RDMA"), "{}", refused("shm"));
    let by_tcp = open("tcp");
    let tcp = tier(by_tcp.as_ref());
    let mut old = 0_u64;
    let add = Action::FetchAndAdd { by: 1, old: &raw mut old };
    let ended = |tier: &dyn Tier| {
        let mut queue = tier.writable().unwrap().open_write(8).unwrap();
        let mut done: Vec<Completion> = Vec::new();
        // SAFETY: the number outlives the queue.
        unsafe {
            queue.submit_operations(&[Operation { id: 1, offset: 8, action: add, linked: false }]).unwrap()
        };
        while done.is_empty() {
            queue.reap(&mut done, Some(Duration::from_millis(100))).unwrap();
        }
        done[0].result.map_err(|fault| fault.kind)
    };
    assert_eq!((ended(device.as_ref()), ended(tcp.as_ref())), (Ok(8), Err(FaultKind::Denied)));
    // Each for as long as the other is there.
    drop((device, by_device));
    let began = Instant::now();
    while ended(tcp.as_ref()) != Ok(8) {
        assert!(
            began.elapsed() < Duration::from_secs(20),
            "the node does not let go of what a session has ended"
        );
    }
    let shared = open("shm");
    let memory = tier(shared.as_ref());
    assert_eq!(ended(memory.as_ref()), Ok(8));
    assert!(refused("verbs").contains("use transport=tcp"), "{}", refused("verbs"));
}

#[test]
fn a_node_that_ends_in_the_middle_is_told_at_once_and_one_that_comes_back_is_another() {
    if !is_required() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let keys = folder.path().join("keys");
    let listen = SocketAddr::from(([127, 0, 0, 1], 0));
    let options = NodeOptions { listen, capacity_bytes: CAPACITY };
    let node = Node::start(&options, Identity::in_folder(&keys).unwrap()).unwrap();
    let address = node.address();
    let credentials = node.credentials().clone();
    let first = Place { node, folder };
    first.put("index", &content());
    let before = first.store(&[VERBS, ("timeout", "20")]).open("index").unwrap();
    let mut queue = tier(before.as_ref()).open(64).unwrap();
    let mut out = vec![0; 200_000];
    let done = read_parts(queue.as_mut(), 50, &mut out);
    assert!(done.iter().all(|done| done.result == Ok(4000)) && out == content(), "{done:?}");
    let Place { node, folder } = first;
    // Some of these are done by then, or none, or all: each is told, and what is told to be there is.
    let (mut out, mut done) = (vec![0; 200_000], Vec::new());
    let start = out.as_mut_ptr();
    let part = |id: u64| Read {
        id,
        offset: id * 4000,
        len: 4000,
        buffer: start.wrapping_add(id as usize * 4000),
        round: 0,
    };
    // SAFETY: each has its own part of `out`, and all are waited for.
    let taken = unsafe { queue.submit(&(0..50).map(part).collect::<Vec<_>>()).unwrap() };
    drop(node);
    let began = Instant::now();
    while done.len() < taken {
        queue.reap(&mut done, Some(Duration::from_millis(100))).unwrap();
    }
    // Not after the timeout: the control connection has ended.
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
    for Completion { id, result } in done {
        let at = id as usize * 4000;
        match result {
            Ok(len) => assert!(len == 4000 && out[at..][..4000] == content()[at..][..4000], "{id}"),
            Err(fault) => assert_eq!(fault.kind, FaultKind::LostPeer, "{id}"),
        }
    }
    let done = read_parts(queue.as_mut(), 50, &mut vec![0; 200_000]);
    assert!(done.iter().all(|done| done.result.unwrap_err().kind == FaultKind::LostPeer), "{done:?}");
    let options = NodeOptions { listen: address, ..options };
    let node = Node::start(&options, Identity::in_folder(&keys).unwrap()).unwrap();
    let second = Place { node, folder };
    second.put("index", &content());
    let done = read_parts(queue.as_mut(), 50, &mut vec![0; 200_000]);
    assert!(done.iter().all(|done| done.result.unwrap_err().kind == FaultKind::Changed), "{done:?}");
    let again = store(address, &credentials, &[VERBS], second.folder.path()).open("index").unwrap();
    assert!(crate::place::bytes(again.as_ref()) == content());
}

#[test]
fn queries_that_wait_go_on_when_the_node_holds_the_same_again() {
    if !is_required() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let keys = folder.path().join("keys");
    let listen = SocketAddr::from(([127, 0, 0, 1], 0));
    let options = NodeOptions { listen, capacity_bytes: CAPACITY };
    let node = Node::start(&options, Identity::in_folder(&keys).unwrap()).unwrap();
    let options = NodeOptions { listen: node.address(), ..options };
    let first = Place { node, folder };
    first.put("index", &content());
    let before = first.store(&[VERBS, ("timeout", "5"), ("wait", "60")]).open("index").unwrap();
    let mut queue = tier(before.as_ref()).open(64).unwrap();
    let Place { node, folder } = first;
    drop(node);
    let starting = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(500));
        let node = Node::start(&options, Identity::in_folder(&keys).unwrap()).unwrap();
        let second = Place { node, folder };
        second.put("index", &content());
        second
    });
    let mut out = vec![0; 200_000];
    let done = read_parts(queue.as_mut(), 50, &mut out);
    assert!(done.iter().all(|done| done.result == Ok(4000)) && out == content(), "{done:?}");
    drop(starting.join().unwrap());
}

#[test]
fn changes_that_the_node_does_not_answer_are_told_and_reads_are_refused_alone() {
    if !is_required() {
        return;
    }
    let place = Place::new(CAPACITY);
    place.put("index", &[7; 4096]);
    let store = place.store(&[VERBS]).for_writing();
    let opened = store.open("index").unwrap();
    let tier = tier(opened.as_ref());
    let mut queue = tier.writable().unwrap().open_write(8).unwrap();
    let (mut old, mut bytes) = (0_u64, [0_u8; 64]);
    let add = Action::FetchAndAdd { by: 1, old: &raw mut old };
    let read = Action::Read { into: bytes.as_mut_ptr(), len: 64 };
    let outside = Operation { id: 1, offset: 4096, action: add, linked: false };
    let inside = Operation { id: 2, offset: 8, action: add, linked: false };
    let after = Operation { id: 3, offset: 64, action: read, linked: false };
    // SAFETY: what they point to outlives the queue's use of it: the completions are waited for.
    unsafe { queue.submit_operations(&[outside, inside, after]).unwrap() };
    let mut done: Vec<Completion> = Vec::new();
    while done.len() < 3 {
        queue.reap(&mut done, Some(Duration::from_millis(100))).unwrap();
    }
    done.sort_by_key(|done| done.id);
    assert_eq!(done[0].result.unwrap_err().errno, libc::EINVAL);
    assert_eq!((done[1].result, done[2].result, old), (Ok(8), Ok(64), 0x0707_0707_0707_0707));
    assert_eq!(bytes, [7; 64]);
    drop(place.node);
    let began = Instant::now();
    done.clear();
    // SAFETY: as above.
    unsafe { queue.submit_operations(&[inside]).unwrap() };
    while done.is_empty() && began.elapsed() < Duration::from_secs(30) {
        queue.reap(&mut done, Some(Duration::from_millis(100))).unwrap();
    }
    assert_eq!(done[0].result.unwrap_err().kind, FaultKind::LostPeer);
}

#[test]
fn bytes_that_no_region_holds_are_read_like_those_of_one() {
    if !is_required() {
        return;
    }
    let place = Place::new(CAPACITY);
    place.put("index", &content());
    let opened = place.store(&[VERBS]).open("index").unwrap();
    let mut queue = tier(opened.as_ref()).open(16).unwrap();
    let (mut registered, mut other) = (vec![0_u8; 8192], vec![0_u8; 8192]);
    // SAFETY: it outlives the queue.
    unsafe { queue.register(registered.as_mut_ptr(), registered.len()).unwrap() };
    let reads: Vec<Read> = [registered.as_mut_ptr(), other.as_mut_ptr()]
        .into_iter()
        .zip(0..)
        .map(|(buffer, id)| Read { id, offset: 1001, len: 8192, buffer, round: 0 })
        .collect();
    // SAFETY: each has its own buffer, and all are waited for.
    unsafe { queue.submit(&reads).unwrap() };
    let mut done = Vec::new();
    while done.len() < 2 {
        queue.reap(&mut done, Some(Duration::from_millis(100))).unwrap();
    }
    drop(queue);
    assert!(registered == other && registered == content()[1001..][..8192], "{done:?}");
}
