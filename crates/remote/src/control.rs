//! What is said on a control connection, which is TLS: a question at a time, and its answer, each a length of four bytes
//! (big-endian) and so much JSON.

use crate::verbs::Endpoint;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::{self, Read, Write};

/// The version of the protocol, control and data.
pub(crate) const VERSION: u32 = 1;
/// Bytes of a message at most.
const MOST_BYTES: usize = 1 << 20;

/// What a peer asks of a node.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Question {
    /// Always the first one.
    Hello {
        version: u32,
        token: String,
        /// Whether anything is to be changed.
        write: bool,
    },
    /// Which generations there are.
    List,
    /// A generation; its regions are held as long as the connection.
    Open { name: String },
    /// Whether a generation could be put under a name.
    Check { name: String, replace: bool },
    /// Begins a generation; it goes with the connection unless it is published.
    Begin { name: String, replace: bool },
    /// Takes memory for an object of a draft, all zeros.
    Allocate { draft: u64, object: String, bytes: u64 },
    /// Makes the objects of a draft with these names, and no others, the generation of its name; with the CRC-32C of each.
    Publish { draft: u64, objects: BTreeMap<String, u32> },
    /// Gives a draft up.
    Abandon { draft: u64 },
    /// Removes a generation.
    Delete { name: String },
    /// Where on its own machine a region's memory is found.
    Share { region: u64 },
    /// Connects by RDMA to an end of the peer's; connections of before that are over end here, too.
    Pair { endpoint: Endpoint, over: Vec<u32> },
    /// By what a region is reached over RDMA connections of this session.
    Expose { region: u64 },
    /// Which sessions may still be changing something.
    Writers,
}

/// An object of a generation.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct ObjectEntry {
    pub(crate) name: String,
    pub(crate) bytes: u64,
    /// 0 of one without bytes.
    pub(crate) region: u64,
    /// CRC-32C of its bytes, as the one who wrote it says.
    pub(crate) crc32c: u32,
}

/// Memory of a process of this machine.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct SharedMemory {
    /// The process that has it, and by which descriptor.
    pub(crate) process: u32,
    pub(crate) descriptor: i32,
    /// What tells it from what another process has by such a number.
    pub(crate) device: u64,
    pub(crate) inode: u64,
}

/// Memory that RDMA connections of a session reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ExposedMemory {
    /// The address of its first byte, for the node's device.
    pub(crate) address: u64,
    /// What the device knows it by.
    pub(crate) key: u32,
}

/// Why a node does not do what it was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Refusal {
    /// A wrong token, or no permission to write.
    Denied,
    /// Nothing has this name or number.
    Missing,
    /// Something has this name.
    Exists,
    /// There is not so much memory.
    Capacity,
    /// The question makes no sense.
    Bad,
}

/// What a node answers.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Reply {
    Welcome {
        /// A number that another start of the node does not have.
        start: u64,
        /// What data connections of this session are known by, in hexadecimal digits.
        ticket: String,
        /// What others know the session by: no other one has the number, of this start or another.
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
    let len = u32::try_from(bytes.len()).ok().filter(|len| *len as usize <= MOST_BYTES);
    let len = len.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "a message of over 1 MiB"))?;
    to.write_all(&[&len.to_be_bytes()[..], &bytes].concat())?;
    to.flush()
}

/// Receives a message.
pub(crate) fn receive<M: DeserializeOwned>(from: &mut impl Read) -> io::Result<M> {
    let mut len = [0; 4];
    from.read_exact(&mut len)?;
    receive_rest(from, len)
}

/// Receives what follows a message's length.
pub(crate) fn receive_rest<M: DeserializeOwned>(from: &mut impl Read, len: [u8; 4]) -> io::Result<M> {
    let len = u32::from_be_bytes(len) as usize;
    if len > MOST_BYTES {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a message of over 1 MiB"));
    }
    let mut bytes = vec![0; len];
    from.read_exact(&mut bytes)?;
    Ok(serde_json::from_slice(&bytes)?)
}
