//! Messages of a control connection, which uses TLS. The client sends one request at a time, and the node
//! replies. Each message is a length of four bytes (big-endian) and that many bytes of JSON.
//!
//! The names of the variants and fields are part of the protocol.

use crate::verbs::Endpoint;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::{self, Read, Write};

/// Version of the protocol, for control and data connections.
pub(crate) const VERSION: u32 = 1;
/// Maximum length of a message, in bytes.
const MAX_BYTES: usize = 1 << 20;

/// A request of a client to a node.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum ControlRequest {
    /// The first request of every connection.
    Hello {
        version: u32,
        token: String,
        /// True if the session may change anything.
        write: bool,
    },
    /// Lists the published generations.
    List,
    /// Opens a generation. The session holds its regions until the connection ends.
    Open { name: String },
    /// Checks that a generation may be published under `name`.
    Check { name: String, replace: bool },
    /// Begins a draft of a generation. The node drops it with the connection unless it is published.
    Begin { name: String, replace: bool },
    /// Allocates zeroed memory for an object of a draft.
    Allocate { draft: u64, object: String, bytes: u64 },
    /// Publishes the listed objects of a draft, and no others, under the draft's name. Each comes with the
    /// CRC-32C of its bytes.
    Publish { draft: u64, objects: BTreeMap<String, u32> },
    /// Drops a draft.
    Abandon { draft: u64 },
    /// Removes a generation.
    Delete { name: String },
    /// Asks where the memory of a region is found on the node's machine.
    Share { region: u64 },
    /// Connects a new queue pair of the node to the client's `endpoint`. The node also destroys its queue
    /// pairs numbered in `over`, which the client has ended.
    Pair { endpoint: Endpoint, over: Vec<u32> },
    /// Registers a region for the RDMA connections of this session.
    Expose { region: u64 },
    /// Lists the sessions that may still change something.
    Writers,
}

/// An object of a generation.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct ObjectEntry {
    pub(crate) name: String,
    pub(crate) bytes: u64,
    /// Key of its region; 0 for an empty object.
    pub(crate) region: u64,
    /// CRC-32C of its bytes, as computed by its writer.
    pub(crate) crc32c: u32,
}

/// Location of a region's memory: a file descriptor of the node's process.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct SharedMemory {
    /// Process id of the node.
    pub(crate) process: u32,
    pub(crate) descriptor: i32,
    /// Device and inode of the file: another machine may have a process and descriptor with the same numbers.
    pub(crate) device: u64,
    pub(crate) inode: u64,
}

/// A region registered for the RDMA connections of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ExposedMemory {
    /// Address of its first byte in the node's process.
    pub(crate) address: u64,
    /// Remote key of the registration.
    pub(crate) key: u32,
}

/// Reason for which a node refuses a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Refusal {
    /// A wrong token, or no permission to write.
    Denied,
    /// There is no item of this name or number.
    Missing,
    /// The name is taken.
    Exists,
    /// Not enough memory is left.
    Capacity,
    /// The request is invalid.
    Bad,
}

/// A node's reply to a request.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Reply {
    Welcome {
        /// A random number of this run of the node.
        start: u64,
        /// The session's ticket, in hexadecimal digits: its data connections begin with it.
        ticket: String,
        /// Number of the session, which no other session has, of this or another run of the node.
        session: u64,
        capacity_bytes: u64,
        used_bytes: u64,
    },
    Names(Vec<String>),
    Generation {
        generation: u64,
        objects: Vec<ObjectEntry>,
    },
    Draft(u64),
    Region(u64),
    Shared(SharedMemory),
    Paired(Endpoint),
    Exposed(ExposedMemory),
    Writers(Vec<u64>),
    Done,
    Refused {
        why: Refusal,
        reason: String,
    },
}

/// Sends a message.
pub(crate) fn send(to: &mut impl Write, message: &impl Serialize) -> io::Result<()> {
    let bytes = serde_json::to_vec(message)?;
    let len = u32::try_from(bytes.len()).ok().filter(|len| *len as usize <= MAX_BYTES);
    let len =
        len.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "the message is longer than 1 MiB"))?;
    to.write_all(&[&len.to_be_bytes()[..], &bytes].concat())?;
    to.flush()
}

/// Receives a message.
pub(crate) fn receive<M: DeserializeOwned>(from: &mut impl Read) -> io::Result<M> {
    let mut len = [0; 4];
    from.read_exact(&mut len)?;
    receive_rest(from, len)
}

/// Receives the rest of a message, whose length prefix is `len`.
pub(crate) fn receive_rest<M: DeserializeOwned>(from: &mut impl Read, len: [u8; 4]) -> io::Result<M> {
    let len = u32::from_be_bytes(len) as usize;
    if len > MAX_BYTES {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "the message is longer than 1 MiB"));
    }
    let mut bytes = vec![0; len];
    from.read_exact(&mut bytes)?;
    Ok(serde_json::from_slice(&bytes)?)
}
