//! The structures and constants of `libibverbs`.
//!
//! Layouts and values are those of `infiniband/verbs.h` of rdma-core (version 1.1 of the library's interface,
//! unchanged since 2014). Fields have descriptive names here. Structures that are only passed on are an
//! opaque [`Handle`].

use std::ffi::{c_int, c_uint, c_void};

/// Pointer to an opaque structure of the library.
pub(super) type Handle = *mut c_void;

/// The leading fields of `struct ibv_context`: an open device, and the table of operations that bypass the
/// library.
#[repr(C)]
pub(super) struct Context {
    device: Handle,
    /// `struct ibv_context_ops`.
    operations: [Option<unsafe extern "C" fn()>; 32],
}

/// Indexes of `poll_cq` and `post_send` in `struct ibv_context_ops`, which the header's inline functions
/// call.
const POLL_CQ: usize = 11;
const POST_SEND: usize = 25;

/// `ibv_poll_cq`: takes a completion queue, the capacity of the array, and the array. Returns the number of
/// completions, negative for an error.
pub(super) type PollCq = unsafe extern "C" fn(Handle, c_int, *mut WorkCompletion) -> c_int;
/// `ibv_post_send`: takes a queue pair, the first request of a list, and an output for the first request that
/// was not accepted. Returns an error number.
pub(super) type PostSend =
    unsafe extern "C" fn(*mut QueuePair, *mut SendRequest, *mut *mut SendRequest) -> c_int;

impl Context {
    pub(super) fn poll_cq(&self) -> Option<PollCq> {
        // SAFETY: this entry of the table holds a function of this type.
        self.operations[POLL_CQ]
            .map(|function| unsafe { std::mem::transmute::<unsafe extern "C" fn(), PollCq>(function) })
    }

    pub(super) fn post_send(&self) -> Option<PostSend> {
        // SAFETY: as above.
        self.operations[POST_SEND]
            .map(|function| unsafe { std::mem::transmute::<unsafe extern "C" fn(), PostSend>(function) })
    }
}

/// `struct ibv_device_attr`.
#[repr(C)]
pub(super) struct DeviceAttributes {
    firmware: [u8; 64],
    node_guid: u64,
    system_image_guid: u64,
    pub(super) max_mr_size: u64,
    page_sizes: u64,
    vendor: [u32; 3],
    max_qp: c_int,
    pub(super) max_qp_wr: c_int,
    flags: c_uint,
    max_sge: c_int,
    max_sge_rd: c_int,
    max_cq: c_int,
    pub(super) max_cqe: c_int,
    max_mr: c_int,
    max_pd: c_int,
    /// Maximum number of a peer's reads and atomic operations in flight on a connection.
    pub(super) max_qp_rd_atom: c_int,
    max_ee_rd_atom: c_int,
    max_res_rd_atom: c_int,
    /// Maximum number of reads and atomic operations in flight on a connection.
    pub(super) max_qp_init_rd_atom: c_int,
    max_ee_init_rd_atom: c_int,
    pub(super) atomic_cap: c_int,
    others: [c_int; 14],
    max_pkeys: u16,
    ack_delay: u8,
    pub(super) phys_port_cnt: u8,
}

/// Value of [`DeviceAttributes::atomic_cap`] without atomic operations.
pub(super) const ATOMIC_NONE: c_int = 0;

/// The fields of `struct ibv_port_attr` that the library's function fills, and room for more.
#[repr(C)]
pub(super) struct PortAttributes {
    pub(super) state: c_int,
    max_mtu: c_int,
    pub(super) active_mtu: c_int,
    pub(super) gid_tbl_len: c_int,
    flags: u32,
    pub(super) max_msg_sz: u32,
    counters: [u32; 2],
    pkey_tbl_len: u16,
    pub(super) lid: u16,
    sm_lid: u16,
    lmc: u8,
    max_vl_num: u8,
    sm_sl: u8,
    subnet_timeout: u8,
    init_type_reply: u8,
    active_width: u8,
    active_speed: u8,
    phys_state: u8,
    pub(super) link_layer: u8,
    reserved: [u8; 81],
}

/// Value of [`PortAttributes::state`] for an active port.
pub(super) const PORT_ACTIVE: c_int = 4;
/// Value of [`PortAttributes::link_layer`] for RoCE.
pub(super) const LINK_ETHERNET: u8 = 2;

/// `struct ibv_mr`.
#[repr(C)]
pub(super) struct MemoryRegion {
    context: Handle,
    domain: Handle,
    address: Handle,
    length: usize,
    handle: u32,
    pub(super) lkey: u32,
    pub(super) rkey: u32,
}

/// `enum ibv_access_flags`.
pub(super) const ACCESS_LOCAL_WRITE: c_int = 1;
pub(super) const ACCESS_REMOTE_WRITE: c_int = 1 << 1;
pub(super) const ACCESS_REMOTE_READ: c_int = 1 << 2;
pub(super) const ACCESS_REMOTE_ATOMIC: c_int = 1 << 3;

/// `struct ibv_qp_cap`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct Capacity {
    pub(super) max_send_wr: u32,
    pub(super) max_recv_wr: u32,
    pub(super) max_send_sge: u32,
    pub(super) max_recv_sge: u32,
    pub(super) max_inline_data: u32,
}

/// `struct ibv_qp_init_attr`.
#[repr(C)]
pub(super) struct QueuePairInit {
    pub(super) context: Handle,
    pub(super) send_cq: Handle,
    pub(super) recv_cq: Handle,
    pub(super) shared_receive_queue: Handle,
    pub(super) capacity: Capacity,
    pub(super) kind: c_int,
    pub(super) signal_all: c_int,
}

/// Value of [`QueuePairInit::kind`] for a reliable connection.
pub(super) const RELIABLE_CONNECTION: c_int = 2;

/// The leading fields of `struct ibv_qp`.
#[repr(C)]
pub(super) struct QueuePair {
    context: Handle,
    qp_context: Handle,
    domain: Handle,
    send_cq: Handle,
    recv_cq: Handle,
    shared_receive_queue: Handle,
    handle: u32,
    pub(super) number: u32,
}

/// `struct ibv_ah_attr`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct Address {
    pub(super) gid: [u64; 2],
    pub(super) flow_label: u32,
    pub(super) sgid_index: u8,
    pub(super) hop_limit: u8,
    pub(super) traffic_class: u8,
    pub(super) dlid: u16,
    pub(super) sl: u8,
    pub(super) src_path_bits: u8,
    pub(super) static_rate: u8,
    pub(super) is_global: u8,
    pub(super) port: u8,
}

/// `struct ibv_qp_attr`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct QueuePairAttributes {
    pub(super) state: c_int,
    pub(super) current_state: c_int,
    pub(super) path_mtu: c_int,
    pub(super) migration: c_int,
    pub(super) qkey: u32,
    pub(super) rq_psn: u32,
    pub(super) sq_psn: u32,
    pub(super) dest_qp_num: u32,
    pub(super) access: c_uint,
    pub(super) capacity: Capacity,
    pub(super) address: Address,
    pub(super) alternate: Address,
    pub(super) pkey_index: u16,
    pub(super) alternate_pkey_index: u16,
    pub(super) notify_drained: u8,
    pub(super) draining: u8,
    pub(super) max_rd_atomic: u8,
    pub(super) max_dest_rd_atomic: u8,
    pub(super) min_rnr_timer: u8,
    pub(super) port: u8,
    pub(super) timeout: u8,
    pub(super) retry_cnt: u8,
    pub(super) rnr_retry: u8,
    pub(super) alternate_port: u8,
    pub(super) alternate_timeout: u8,
    pub(super) rate_limit: u32,
}

/// `enum ibv_qp_state`.
pub(super) const STATE_INIT: c_int = 1;
pub(super) const STATE_READY_TO_RECEIVE: c_int = 2;
pub(super) const STATE_READY_TO_SEND: c_int = 3;

/// `enum ibv_qp_attr_mask`: which attributes are set.
pub(super) const SET_STATE: c_int = 1;
pub(super) const SET_ACCESS: c_int = 1 << 3;
pub(super) const SET_PKEY_INDEX: c_int = 1 << 4;
pub(super) const SET_PORT: c_int = 1 << 5;
pub(super) const SET_ADDRESS: c_int = 1 << 7;
pub(super) const SET_PATH_MTU: c_int = 1 << 8;
pub(super) const SET_TIMEOUT: c_int = 1 << 9;
pub(super) const SET_RETRY_CNT: c_int = 1 << 10;
pub(super) const SET_RNR_RETRY: c_int = 1 << 11;
pub(super) const SET_RQ_PSN: c_int = 1 << 12;
pub(super) const SET_MAX_RD_ATOMIC: c_int = 1 << 13;
pub(super) const SET_MIN_RNR_TIMER: c_int = 1 << 15;
pub(super) const SET_SQ_PSN: c_int = 1 << 16;
pub(super) const SET_MAX_DEST_RD_ATOMIC: c_int = 1 << 17;
pub(super) const SET_DEST_QP: c_int = 1 << 20;

/// `struct ibv_sge`: bytes in this process.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct ScatterEntry {
    pub(super) address: u64,
    pub(super) length: u32,
    pub(super) lkey: u32,
}

/// The peer's bytes that an `ibv_send_wr` reads or writes.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct RemoteBytes {
    pub(super) remote_address: u64,
    pub(super) rkey: u32,
}

/// The peer's number that an `ibv_send_wr` changes.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct RemoteNumber {
    pub(super) remote_address: u64,
    /// Value to compare with, or to add.
    pub(super) compare_add: u64,
    pub(super) swap: u64,
    pub(super) rkey: u32,
}

/// `wr` of `struct ibv_send_wr`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) union WorkTarget {
    pub(super) bytes: RemoteBytes,
    pub(super) number: RemoteNumber,
}

/// `struct ibv_send_wr`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct SendRequest {
    pub(super) id: u64,
    pub(super) next: *mut SendRequest,
    pub(super) entries: *mut ScatterEntry,
    pub(super) entry_count: c_int,
    pub(super) opcode: c_int,
    pub(super) flags: c_uint,
    pub(super) immediate: u32,
    pub(super) target: WorkTarget,
    /// Fields of other kinds of connections and operations.
    pub(super) unused: [u64; 7],
}

/// `enum ibv_wr_opcode`.
pub(super) const RDMA_WRITE: c_int = 0;
pub(super) const RDMA_READ: c_int = 4;
pub(super) const COMPARE_AND_SWAP: c_int = 5;
pub(super) const FETCH_AND_ADD: c_int = 6;

/// `enum ibv_send_flags`.
pub(super) const FENCE: c_uint = 1;
pub(super) const SIGNALED: c_uint = 1 << 1;
pub(super) const INLINE: c_uint = 1 << 3;

/// `struct ibv_wc`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct WorkCompletion {
    pub(super) id: u64,
    pub(super) status: c_int,
    opcode: c_int,
    vendor_error: u32,
    byte_len: u32,
    immediate: u32,
    qp_num: u32,
    source_qp: u32,
    flags: c_uint,
    pkey_index: u16,
    slid: u16,
    sl: u8,
    dlid_path_bits: u8,
}

/// The values of `enum ibv_wc_status` that are distinguished.
pub(super) const STATUS_SUCCESS: c_int = 0;
pub(super) const STATUS_LOCAL_PROTECTION: c_int = 4;
pub(super) const STATUS_REMOTE_INVALID_REQUEST: c_int = 9;
pub(super) const STATUS_REMOTE_ACCESS: c_int = 10;
pub(super) const STATUS_REMOTE_OPERATION: c_int = 11;
pub(super) const STATUS_FLUSHED: c_int = 5;
pub(super) const STATUS_RETRIES_EXCEEDED: c_int = 12;
pub(super) const STATUS_NOT_READY: c_int = 13;

// Sizes and offsets that the C compiler computes from the header on 64-bit machines.
#[cfg(target_pointer_width = "64")]
const _: () = {
    use std::mem::{offset_of, size_of};
    assert!(size_of::<Context>() == 8 + 32 * 8);
    assert!(size_of::<DeviceAttributes>() == 232 && offset_of!(DeviceAttributes, max_qp_wr) == 112);
    assert!(offset_of!(DeviceAttributes, max_qp_rd_atom) == 144);
    assert!(offset_of!(DeviceAttributes, atomic_cap) == 164);
    assert!(offset_of!(DeviceAttributes, phys_port_cnt) == 227);
    assert!(offset_of!(PortAttributes, lid) == 34 && offset_of!(PortAttributes, link_layer) == 46);
    assert!(size_of::<PortAttributes>() == 128);
    assert!(size_of::<MemoryRegion>() == 48 && offset_of!(MemoryRegion, rkey) == 40);
    assert!(size_of::<QueuePairInit>() == 64 && offset_of!(QueuePairInit, capacity) == 32);
    assert!(offset_of!(QueuePair, number) == 52);
    assert!(size_of::<Address>() == 32 && size_of::<QueuePairAttributes>() == 144);
    assert!(
        offset_of!(QueuePairAttributes, address) == 56 && offset_of!(QueuePairAttributes, timeout) == 130
    );
    assert!(size_of::<ScatterEntry>() == 16 && size_of::<WorkTarget>() == 32);
    assert!(size_of::<SendRequest>() == 128 && offset_of!(SendRequest, target) == 40);
    assert!(size_of::<WorkCompletion>() == 48);
};
