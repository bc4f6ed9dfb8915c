//! Devices: chooses the device, its port, and the port's address in the fabric.

use super::abi::{
    ATOMIC_NONE, Context, DeviceAttributes, Handle, LINK_ETHERNET, PORT_ACTIVE, PortAttributes,
};
use super::library::{Library, checked, failed};
use std::ffi::{CStr, c_int};
use std::io;
use std::net::{IpAddr, Ipv6Addr};
use std::ptr::NonNull;

/// Maximum number of entries of a port's address table that are considered. The addresses of the host's
/// interfaces come first.
const MAX_GIDS: c_int = 256;

/// An address in the fabric. With RoCE it is an IP address; IPv4 has the form `::ffff:a.b.c.d`.
pub(crate) type Gid = Ipv6Addr;

/// A port of a device, with one of its addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PortAddress {
    pub(super) port: u8,
    pub(super) is_ethernet: bool,
    pub(super) gid: Gid,
    pub(super) gid_index: u8,
    pub(super) lid: u16,
    /// Maximum bytes of a packet, as a value of `enum ibv_mtu`.
    pub(super) mtu: u8,
    pub(super) max_message_bytes: u32,
}

/// The connection for which a device is chosen, as far as it is known.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct DeviceQuery {
    /// Address of this machine in an existing connection to the peer.
    pub(crate) local_ip: Option<IpAddr>,
    /// Address of the peer in the fabric if it is known, and true if the peer's link is Ethernet.
    pub(crate) peer: Option<(Gid, bool)>,
}

/// Preference for an address: the greatest one is chosen. The fields are compared in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct AddressRank {
    /// True for the address of this machine in an existing connection to the peer.
    is_local_ip: bool,
    /// True for an address of the same kind as the peer's: others do not reach it.
    is_same_kind: bool,
    /// True for RoCE version 2, which routers forward.
    is_routed: bool,
    is_ipv4: bool,
    is_global: bool,
}

impl AddressRank {
    fn new(port_address: &PortAddress, is_routed: bool, query: DeviceQuery) -> AddressRank {
        let (gid, is_ethernet) = (port_address.gid, port_address.is_ethernet);
        let is_ipv4 = gid.to_ipv4_mapped().is_some();
        let local_ip = query.local_ip.map(|ip| match ip {
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            IpAddr::V6(ip) => ip,
        });
        AddressRank {
            is_local_ip: local_ip == Some(gid),
            is_same_kind: query.peer.is_none_or(|(peer, ethernet)| {
                ethernet == is_ethernet && (peer.to_ipv4_mapped().is_some() == is_ipv4 || !ethernet)
            }),
            is_routed,
            is_ipv4,
            is_global: !gid.is_unicast_link_local(),
        }
    }
}

/// An open device, with the port and address that it uses.
pub(crate) struct Device {
    pub(super) library: &'static Library,
    context: NonNull<Context>,
    name: String,
    pub(super) port_address: PortAddress,
    pub(super) limits: Limits,
}

/// Limits of a device.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// Maximum number of work requests of a connection.
    pub(super) work_requests: u32,
    /// Maximum number of reads and atomic operations in flight on a connection.
    pub(super) initiated_reads: u8,
    /// Maximum number of the peer's reads and atomic operations in flight on a connection.
    pub(super) served_reads: u8,
    pub(super) has_atomics: bool,
}

// SAFETY: the library's functions may be called by any thread; a context is closed once.
unsafe impl Send for Device {}
// SAFETY: as above.
unsafe impl Sync for Device {}

impl std::fmt::Debug for Device {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Device({}, port {}, {})", self.name, self.port_address.port, self.port_address.gid)
    }
}

impl Device {
    /// Opens the device of this machine that most likely reaches a peer: the one with the local address of
    /// the existing connection, or else one whose address is of the same kind as the peer's.
    ///
    /// # Errors
    /// A message that says what is missing and what to do.
    pub(crate) fn open(query: DeviceQuery) -> Result<Device, String> {
        let library = Library::get()?;
        let list = DeviceList::new(library)?;
        let (mut best, mut seen) = (None::<(AddressRank, Device)>, Vec::new());
        for device in list.devices() {
            let name = list.name(*device);
            match Device::at(library, *device, name.clone(), query) {
                Ok(found) if best.as_ref().is_none_or(|(rank, _)| found.0 > *rank) => best = Some(found),
                Ok(_) => {}
                Err(why) => seen.push(format!("{name}: {why}")),
            }
        }
        match best {
            Some((_, device)) => Ok(device),
            None if seen.is_empty() => Err(
                "there is no device: `rdma link` lists devices; a plain network card becomes one by `rdma \
                 link add rxe0 type rxe netdev INTERFACE`"
                    .into(),
            ),
            None => Err(format!("no device can be used: {}", seen.join("; "))),
        }
    }

    fn at(
        library: &'static Library,
        device: Handle,
        name: String,
        query: DeviceQuery,
    ) -> Result<(AddressRank, Device), String> {
        // SAFETY: the device is of a list that is not freed yet.
        let context = NonNull::new(unsafe { (library.ibv_open_device)(device) });
        let context = context.ok_or_else(|| {
            let error = io::Error::last_os_error();
            match error.kind() {
                io::ErrorKind::PermissionDenied => {
                    format!("{error}; this user needs access to /dev/infiniband")
                }
                _ => error.to_string(),
            }
        })?;
        let port_address = PortAddress {
            port: 0,
            is_ethernet: false,
            gid: Gid::UNSPECIFIED,
            gid_index: 0,
            lid: 0,
            mtu: 1,
            max_message_bytes: 0,
        };
        let limits = Limits { work_requests: 1, initiated_reads: 1, served_reads: 1, has_atomics: false };
        // From here on, dropping `opened` closes the device.
        let mut opened = Device { library, context, name, port_address, limits };
        let ports = opened.query_limits().map_err(|e| e.to_string())?;
        let port_addresses = (1..=ports).flat_map(|port| opened.port_addresses(port, query));
        let (rank, port_address) =
            port_addresses.max_by_key(|(rank, _)| *rank).ok_or("it has no active port")?;
        opened.port_address = port_address;
        Ok((rank, opened))
    }

    /// Queries the limits of the device and stores them. Returns its number of ports.
    fn query_limits(&mut self) -> io::Result<u8> {
        // SAFETY: the structure consists of numbers, for which zeros are valid.
        let mut attributes: DeviceAttributes = unsafe { std::mem::zeroed() };
        // SAFETY: the device is open, and the structure has the size that the library expects.
        let code = unsafe { (self.library.ibv_query_device)(self.context.as_ptr(), &raw mut attributes) };
        checked("its attributes cannot be queried", code)?;
        let to_u8 = |count: c_int| u8::try_from(count.max(1)).unwrap_or(u8::MAX);
        self.limits = Limits {
            work_requests: attributes.max_qp_wr.min(attributes.max_cqe).max(1) as u32,
            initiated_reads: to_u8(attributes.max_qp_init_rd_atom),
            served_reads: to_u8(attributes.max_qp_rd_atom),
            has_atomics: attributes.atomic_cap != ATOMIC_NONE,
        };
        Ok(attributes.phys_port_cnt)
    }

    /// Returns the addresses of a port with their ranks; none if the port is not active.
    fn port_addresses(&self, port: u8, query: DeviceQuery) -> Vec<(AddressRank, PortAddress)> {
        // SAFETY: the structure consists of numbers, for which zeros are valid.
        let mut attributes: PortAttributes = unsafe { std::mem::zeroed() };
        // SAFETY: the device is open, and the structure has more room than the library fills.
        let code = unsafe { (self.library.ibv_query_port)(self.context.as_ptr(), port, &raw mut attributes) };
        if code != 0 || attributes.state != PORT_ACTIVE {
            return Vec::new();
        }
        let is_ethernet = attributes.link_layer == LINK_ETHERNET;
        // The first address of an InfiniBand port is the port's own.
        let gids = if is_ethernet { attributes.gid_tbl_len.min(MAX_GIDS) } else { 1 };
        let port_address = |index: c_int| {
            let gid = self.gid(port, index)?;
            let port_address = PortAddress {
                port,
                is_ethernet,
                gid,
                gid_index: u8::try_from(index).ok()?,
                lid: attributes.lid,
                mtu: u8::try_from(attributes.active_mtu).unwrap_or(1),
                max_message_bytes: attributes.max_msg_sz,
            };
            Some((AddressRank::new(&port_address, self.is_routed(port, index), query), port_address))
        };
        (0..gids).filter_map(port_address).collect()
    }

    fn gid(&self, port: u8, index: c_int) -> Option<Gid> {
        let mut gid = [0_u64; 2];
        // SAFETY: the device is open, and `gid` has room for an address.
        let code = unsafe { (self.library.ibv_query_gid)(self.context.as_ptr(), port, index, &raw mut gid) };
        let gid = Gid::from(bytes_of(gid));
        (code == 0 && !gid.is_unspecified()).then_some(gid)
    }

    /// Returns true if a RoCE address is of version 2. It is read from the file system, because old versions
    /// of the library do not report it.
    fn is_routed(&self, port: u8, index: c_int) -> bool {
        let path = format!("/sys/class/infiniband/{}/ports/{port}/gid_attrs/types/{index}", self.name);
        std::fs::read_to_string(path).is_ok_and(|kind| kind.trim() == "RoCE v2")
    }

    pub(super) fn context(&self) -> *mut Context {
        self.context.as_ptr()
    }

    /// Returns the device's name and address, for messages.
    pub(crate) fn describe(&self) -> String {
        format!("{} ({})", self.name, self.port_address.gid)
    }

    /// Returns the maximum number of work requests of a connection.
    pub(crate) fn max_work_requests(&self) -> u32 {
        self.limits.work_requests
    }

    /// Returns the maximum number of bytes of a work request.
    pub(crate) fn max_message_bytes(&self) -> u32 {
        self.port_address.max_message_bytes
    }

    /// Returns true if the device has atomic operations.
    pub(crate) fn has_atomics(&self) -> bool {
        self.limits.has_atomics
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // SAFETY: everything created from the device keeps it alive, and so is gone. Closed once.
        unsafe { (self.library.ibv_close_device)(self.context.as_ptr()) };
    }
}

/// Converts an address from the library's form, which is two numbers for alignment, to bytes.
pub(super) fn bytes_of(gid: [u64; 2]) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&gid[0].to_ne_bytes());
    bytes[8..].copy_from_slice(&gid[1].to_ne_bytes());
    bytes
}

/// Converts an address to the library's form.
pub(super) fn numbers_of(gid: Gid) -> [u64; 2] {
    let bytes = gid.octets();
    let number = |at: usize| u64::from_ne_bytes(std::array::from_fn(|i| bytes[at + i]));
    [number(0), number(8)]
}

/// The list of this machine's devices.
struct DeviceList {
    library: &'static Library,
    start: NonNull<Handle>,
    len: usize,
}

impl DeviceList {
    fn new(library: &'static Library) -> Result<DeviceList, String> {
        let mut len = 0;
        // SAFETY: `len` has room for the number of devices.
        let start = NonNull::new(unsafe { (library.ibv_get_device_list)(&raw mut len) });
        let start = start.ok_or_else(|| {
            let why = failed("the system cannot list its RDMA devices");
            format!("{why}; is the module ib_uverbs loaded?")
        })?;
        Ok(DeviceList { library, start, len: len.max(0) as usize })
    }

    fn devices(&self) -> &[Handle] {
        // SAFETY: the list has `len` entries until it is freed.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }

    fn name(&self, device: Handle) -> String {
        // SAFETY: the device is of the list, and its name is valid as long as the list.
        let name = unsafe { (self.library.ibv_get_device_name)(device) };
        if name.is_null() {
            return String::new();
        }
        // SAFETY: the name ends in a zero.
        unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned()
    }
}

impl Drop for DeviceList {
    fn drop(&mut self) {
        // SAFETY: the list is freed once. Devices that were opened stay open.
        unsafe { (self.library.ibv_free_device_list)(self.start.as_ptr()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_of_the_existing_connection_ranks_first_then_the_peers_kind() {
        let gid = |text: &str| text.parse::<Gid>().unwrap();
        let port_address = |text: &str, is_ethernet| PortAddress {
            port: 1,
            is_ethernet,
            gid: gid(text),
            gid_index: 0,
            lid: 1,
            mtu: 3,
            max_message_bytes: 1,
        };
        let rank = |text: &str, routed, local_ip: Option<&str>, peer: Option<&str>| {
            let (local_ip, peer) =
                (local_ip.map(|ip| ip.parse().unwrap()), peer.map(|peer| (gid(peer), true)));
            AddressRank::new(&port_address(text, true), routed, DeviceQuery { local_ip, peer })
        };
        let (v4, v6, link) = ("::ffff:10.0.0.7", "fd00::7", "fe80::1");
        assert!(rank(v6, true, Some("fd00::7"), None) > rank(v4, true, Some("fd00::7"), None));
        assert!(
            rank(v4, true, Some("10.0.0.7"), None) > rank("::ffff:10.1.0.7", true, Some("10.0.0.7"), None)
        );
        assert!(rank(v4, true, None, None) > rank(v4, false, None, None));
        assert!(rank(v4, true, None, None) > rank(v6, true, None, None));
        assert!(rank(v6, true, None, None) > rank(link, true, None, None));
        assert!(rank(v6, true, None, Some(link)) > rank(v4, true, None, Some(link)));
        let by_ethernet = DeviceQuery { local_ip: None, peer: Some((gid(v4), true)) };
        let by_infiniband = DeviceQuery { local_ip: None, peer: Some((gid(link), false)) };
        for (query, ethernet) in [(by_ethernet, true), (by_infiniband, false)] {
            let rank_of =
                |is_ethernet, text| AddressRank::new(&port_address(text, is_ethernet), is_ethernet, query);
            assert_eq!(rank_of(true, v4) > rank_of(false, link), ethernet);
        }
    }

    #[test]
    fn addresses_convert_to_the_librarys_form_and_back() {
        let gid: Gid = "2001:db8::1:2".parse().unwrap();
        assert_eq!(Gid::from(bytes_of(numbers_of(gid))), gid);
    }

    #[test]
    fn the_error_without_a_device_says_what_to_do() {
        if let Err(why) = Device::open(DeviceQuery::default()) {
            assert!(
                ["install", "rdma link", "ib_uverbs", "can be used"].iter().any(|what| why.contains(what)),
                "{why}"
            );
        }
    }
}
