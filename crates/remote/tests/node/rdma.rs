//! RDMA. `make check-rdma` runs these tests in a guest with a device and `BATHYAL_REQUIRE_RDMA=1`. One test
//! checks the errors on a machine without a device.

use crate::conformance::{CAPACITY, check_store, check_tiers};
use crate::faults::{content, read_parts};
use crate::test_node::{TestNode, store, tier};
use bathyal_remote::{Identity, Node, NodeOptions};
use bathyal_store::Store;
use bathyal_tier::contract::{Action, Operation};
use bathyal_tier::{Completion, FaultKind, Read, Tier, complete_operations, complete_reads};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

const VERBS: (&str, &str) = ("transport", "verbs");

/// Returns true if tests that need a device must run.
fn is_required() -> bool {
    let required = std::env::var_os("BATHYAL_REQUIRE_RDMA").is_some_and(|value| value == "1");
    if !required {
        println!("skipped: wants an RDMA device; BATHYAL_REQUIRE_RDMA=1 runs it, as make check-rdma does");
    }
    required
}

#[test]
fn without_a_device_verbs_fails_and_auto_uses_another_transport() {
    if std::env::var_os("BATHYAL_REQUIRE_RDMA").is_some() {
        return;
    }
    let node = TestNode::new(CAPACITY);
    node.put("index", &content());
    let opened = node.store(&[VERBS]).open("index").unwrap();
    let Err(refused) = opened.get(crate::test_node::DATA) else {
        println!("skipped: this machine has an RDMA device");
        return;
    };
    let refused = refused.to_string();
    assert!(refused.contains("transport=verbs requires an RDMA device on both machines"), "{refused}");
    assert!(refused.contains("RDMA on this machine: "), "{refused}");
    let missing = ["install libibverbs1", "rdma link add", "ib_uverbs", "can be used"];
    assert!(missing.iter().any(|what| refused.contains(what)), "{refused}");
    let opened = node.store(&[]).open("index").unwrap();
    assert_ne!(tier(opened.as_ref()).profile().method, "TCP", "shared memory comes first");
    // A node on another machine shares no memory, like one whose processes are not visible; TCP
    // remains.
    let opened = node.store(&[("transport", "tcp")]).open("index").unwrap();
    assert_eq!(tier(opened.as_ref()).profile().method, "TCP");
}

#[test]
fn tiers_over_rdma_conform() {
    if is_required() {
        check_tiers(&[VERBS], false);
    }
}

#[test]
fn writable_tiers_over_rdma_conform() {
    if is_required() {
        check_tiers(&[VERBS], true);
    }
}

#[test]
fn tiers_with_small_doorbells_conform() {
    if is_required() {
        check_tiers(&[VERBS, ("doorbell", "1")], false);
        check_tiers(&[VERBS, ("doorbell", "3")], true);
    }
}

#[test]
fn stores_over_rdma_conform() {
    if is_required() {
        check_store("verbs");
    }
}

#[test]
fn profiles_name_the_device() {
    if !is_required() {
        return;
    }
    let node = TestNode::new(CAPACITY);
    node.put("index", &content());
    let opened = node.store(&[VERBS]).open("index").unwrap();
    let profile = tier(opened.as_ref()).profile().clone();
    assert!(profile.method.starts_with("RDMA by "), "{profile:?}");
    assert_eq!((profile.kind.as_str(), node.server.status().queue_pairs), ("remote", 1));
    drop(opened);
    let began = Instant::now();
    while node.server.status().queue_pairs > 0 {
        assert!(began.elapsed() < Duration::from_secs(20), "the session's connections must end with it");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn atomic_operations_are_executed_by_devices_or_by_processors() {
    if !is_required() {
        return;
    }
    let node = TestNode::new(CAPACITY);
    node.put("index", &[0; 4096]);
    let open = |transport| node.store(&[("transport", transport)]).for_writing().open("index").unwrap();
    let refused = |transport| match open(transport).get(crate::test_node::DATA) {
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
    let result_of_add = |tier: &dyn Tier| {
        let mut queue = tier.writable().unwrap().open_write(8).unwrap();
        let operation = Operation { id: 1, offset: 8, action: add, linked: false };
        // SAFETY: the number outlives the queue.
        let done = unsafe { complete_operations(queue.as_mut(), &[operation]).unwrap() };
        done[0].result.map_err(|fault| fault.kind)
    };
    assert_eq!(
        (result_of_add(device.as_ref()), result_of_add(tcp.as_ref())),
        (Ok(8), Err(FaultKind::Denied))
    );
    // The claim of the devices lasts as long as their session.
    drop((device, by_device));
    let began = Instant::now();
    while result_of_add(tcp.as_ref()) != Ok(8) {
        assert!(
            began.elapsed() < Duration::from_secs(20),
            "the node must release the regions of an ended session"
        );
    }
    let shared = open("shm");
    let memory = tier(shared.as_ref());
    assert_eq!(result_of_add(memory.as_ref()), Ok(8));
    assert!(refused("verbs").contains("use transport=tcp"), "{}", refused("verbs"));
}

#[test]
fn reads_fail_soon_after_a_node_stops_and_a_restarted_node_is_not_the_same() {
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
    let first = TestNode { server: node, folder };
    first.put("index", &content());
    let before = first.store(&[VERBS, ("timeout", "20")]).open("index").unwrap();
    let mut queue = tier(before.as_ref()).open(64).unwrap();
    let mut out = vec![0; 200_000];
    let done = read_parts(queue.as_mut(), 50, &mut out);
    assert!(done.iter().all(|done| done.result == Ok(4000)) && out == content(), "{done:?}");
    let TestNode { server: node, folder } = first;
    // Some of these reads may succeed. Each one completes, and has its bytes if it succeeds.
    let (mut out, mut done) = (vec![0; 200_000], Vec::new());
    let start = out.as_mut_ptr();
    let part = |id: u64| Read {
        id,
        offset: id * 4000,
        len: 4000,
        buffer: start.wrapping_add(id as usize * 4000),
        round: 0,
    };
    // SAFETY: each read has its own part of `out`, and all have completed before it is dropped.
    let taken = unsafe { queue.submit(&(0..50).map(part).collect::<Vec<_>>()).unwrap() };
    drop(node);
    let began = Instant::now();
    while done.len() < taken {
        queue.reap(&mut done, Some(Duration::from_millis(100))).unwrap();
    }
    // The end of the control connection ends the reads before the timeout.
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
    let second = TestNode { server: node, folder };
    second.put("index", &content());
    let done = read_parts(queue.as_mut(), 50, &mut vec![0; 200_000]);
    assert!(done.iter().all(|done| done.result.unwrap_err().kind == FaultKind::Forgotten), "{done:?}");
    let again = store(address, &credentials, &[VERBS], second.folder.path()).open("index").unwrap();
    assert!(crate::test_node::bytes(again.as_ref()) == content());
}

#[test]
fn waiting_reads_continue_when_the_node_holds_the_same_generation_again() {
    if !is_required() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let keys = folder.path().join("keys");
    let listen = SocketAddr::from(([127, 0, 0, 1], 0));
    let options = NodeOptions { listen, capacity_bytes: CAPACITY };
    let node = Node::start(&options, Identity::in_folder(&keys).unwrap()).unwrap();
    let options = NodeOptions { listen: node.address(), ..options };
    let first = TestNode { server: node, folder };
    first.put("index", &content());
    let before = first.store(&[VERBS, ("timeout", "5"), ("wait", "60")]).open("index").unwrap();
    let mut queue = tier(before.as_ref()).open(64).unwrap();
    let TestNode { server: node, folder } = first;
    drop(node);
    let starting = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(500));
        let node = Node::start(&options, Identity::in_folder(&keys).unwrap()).unwrap();
        let second = TestNode { server: node, folder };
        second.put("index", &content());
        second
    });
    let mut out = vec![0; 200_000];
    let done = read_parts(queue.as_mut(), 50, &mut out);
    assert!(done.iter().all(|done| done.result == Ok(4000)) && out == content(), "{done:?}");
    drop(starting.join().unwrap());
}

#[test]
fn unanswered_changes_fail_and_an_invalid_one_fails_alone() {
    if !is_required() {
        return;
    }
    let node = TestNode::new(CAPACITY);
    node.put("index", &[7; 4096]);
    let store = node.store(&[VERBS]).for_writing();
    let opened = store.open("index").unwrap();
    let tier = tier(opened.as_ref());
    let mut queue = tier.writable().unwrap().open_write(8).unwrap();
    let (mut old, mut bytes) = (0_u64, [0_u8; 64]);
    let add = Action::FetchAndAdd { by: 1, old: &raw mut old };
    let read = Action::Read { into: bytes.as_mut_ptr(), len: 64 };
    let outside = Operation { id: 1, offset: 4096, action: add, linked: false };
    let inside = Operation { id: 2, offset: 8, action: add, linked: false };
    let after = Operation { id: 3, offset: 64, action: read, linked: false };
    // SAFETY: the buffers outlive the operations, which have completed before they are used.
    let mut done = unsafe { complete_operations(queue.as_mut(), &[outside, inside, after]).unwrap() };
    done.sort_by_key(|done| done.id);
    assert_eq!(done[0].result.unwrap_err().errno, libc::EINVAL);
    assert_eq!((done[1].result, done[2].result, old), (Ok(8), Ok(64), 0x0707_0707_0707_0707));
    assert_eq!(bytes, [7; 64]);
    drop(node.server);
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
fn reads_into_unregistered_buffers_match_reads_into_registered_ones() {
    if !is_required() {
        return;
    }
    let node = TestNode::new(CAPACITY);
    node.put("index", &content());
    let opened = node.store(&[VERBS]).open("index").unwrap();
    let mut queue = tier(opened.as_ref()).open(16).unwrap();
    let (mut registered, mut other) = (vec![0_u8; 8192], vec![0_u8; 8192]);
    // SAFETY: the buffer outlives the queue.
    unsafe { queue.register(registered.as_mut_ptr(), registered.len()).unwrap() };
    let reads: Vec<Read> = [registered.as_mut_ptr(), other.as_mut_ptr()]
        .into_iter()
        .zip(0..)
        .map(|(buffer, id)| Read { id, offset: 1001, len: 8192, buffer, round: 0 })
        .collect();
    // SAFETY: each read has its own buffer, and all have completed before they are used.
    let done = unsafe { complete_reads(queue.as_mut(), &reads).unwrap() };
    drop(queue);
    assert!(registered == other && registered == content()[1001..][..8192], "{done:?}");
}
