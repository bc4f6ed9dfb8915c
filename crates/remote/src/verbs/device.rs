//! Devices: which one is taken, at which port, under which address of the fabric.

use super::abi::{
    ATOMIC_NONE, Context, DeviceAttributes, Handle, LINK_ETHERNET, PORT_ACTIVE, PortAttributes,
};
use super::library::{Library, checked, failed};
use std::ffi::{CStr, c_int};
use std::io;
use std::net::{IpAddr, Ipv6Addr};
use std::ptr::NonNull;

/// Entries of a port's table of addresses that are looked at: the addresses of its host's interfaces come first.
const MOST_GIDS: c_int = 256;

/// An address of the fabric. Of RoCE it is an IP address, IPv4 as `::ffff:a.b.c.d`.
pub(crate) type Gid = Ipv6Addr;

/// A port under one of its addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) port: u8,
    pub(super) is_ethernet: bool,
    pub(super) gid: Gid,
    pub(super) gid_index: u8,
    pub(super) lid: u16,
    /// Bytes of a packet at most, as `enum ibv_mtu` has them.
    pub(super) mtu: u8,
    pub(super) most_message_bytes: u32,
}

/// What a device is to reach.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Wanted {
    /// The address of this machine by which the two sides speak to each other already.
    pub(crate) known: Option<IpAddr>,
    /// Where the other side is, as far as that is known, and whether by Ethernet.
    pub(crate) peer: Option<(Gid, bool)>,
}

/// How much better than others an address of RoCE is: one that routers know (version 2), and of the same kind as those by
/// which hosts know each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    /// The address by which the other side is reached already.
    is_known: bool,
    /// Of the kind that the other side has: other kinds do not reach it.
    is_alike: bool,
    is_routed: bool,
    is_ipv4: bool,
    is_global: bool,
}

impl Rank {
    fn of(place: &Place, is_routed: bool, wanted: Wanted) -> Rank {
        let (gid, is_ethernet) = (place.gid, place.is_ethernet);
        let is_ipv4 = gid.to_ipv4_mapped().is_some();
        let known = wanted.known.map(|known| match known {
            IpAddr::V4(known) => known.to_ipv6_mapped(),
            IpAddr::V6(known) => known,
        });
        Rank {
            is_known: known == Some(gid),
            is_alike: wanted.peer.is_none_or(|(peer, ethernet)| {
                ethernet == is_ethernet && (peer.to_ipv4_mapped().is_some() == is_ipv4 || !ethernet)
            }),
            is_routed,
            is_ipv4,
            is_global: !gid.is_unicast_link_local(),
        }
    }
}

/// An open device, at one port of it.
pub(crate) struct Device {
    pub(super) library: &'static Library,
    context: NonNull<Context>,
    name: String,
    pub(super) place: Place,
    pub(super) limits: Limits,
}

/// What a device can do.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// Work requests of a connection.
    pub(super) work_requests: u32,
    /// Reads and atomics of a connection that are under way at once: asked by it, and of its peer.
    pub(super) reads_asked: u8,
    pub(super) reads_served: u8,
    pub(super) has_atomics: bool,
}

// SAFETY: the library's functions may be called by any thread; a context is closed once.
unsafe impl Send for Device {}
// SAFETY: as above.
unsafe impl Sync for Device {}

impl std::fmt::Debug for Device {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Device({}, port {}, {})", self.name, self.place.port, self.place.gid)
    }
}

impl Device {
    /// The device of this machine that most likely reaches a peer: that of the address by which the two speak to each other, and
    /// else one whose address is of the kind of the peer's.
    ///
    /// # Errors
    /// What is missing, and what to do.
    pub(crate) fn open(wanted: Wanted) -> Result<Device, String> {
        let library = Library::get()?;
        let list = List::new(library)?;
        let (mut best, mut seen) = (None::<(Rank, Device)>, Vec::new());
        for device in list.devices() {
            let name = list.name(*device);
            match Device::at(library, *device, name.clone(), wanted) {
                Ok(found) if best.as_ref().is_none_or(|(rank, _)| found.0 > *rank) => best = Some(found),
                Ok(_) => {}
                Err(why) => seen.push(format!("{name}: {why}")),
            }
        }
        match best {
            Some((_, device)) => Ok(device),
            None if seen.is_empty() => Err(
                "there is no device: `rdma link` lists them; a plain network card becomes one by `rdma link add rxe0 \
                 type rxe netdev INTERFACE`"
                    .into(),
            ),
            None => Err(format!("no device can be used: {}", seen.join("; "))),
        }
    }

    fn at(
        library: &'static Library,
        device: Handle,
        name: String,
        wanted: Wanted,
    ) -> Result<(Rank, Device), String> {
        // SAFETY: a device of a list that is not freed yet.
        let context = NonNull::new(unsafe { (library.ibv_open_device)(device) });
        let context = context.ok_or_else(|| {
            let error = io::Error::last_os_error();
            match error.kind() {
                io::ErrorKind::PermissionDenied => {
                    format!("{error}; this user has to be allowed to use /dev/infiniband")
                }
                _ => error.to_string(),
            }
        })?;
        let place = Place {
            port: 0,
            is_ethernet: false,
            gid: Gid::UNSPECIFIED,
            gid_index: 0,
            lid: 0,
            mtu: 1,
            most_message_bytes: 0,
        };
        let limits = Limits { work_requests: 1, reads_asked: 1, reads_served: 1, has_atomics: false };
        // From here on it is closed whatever happens.
        let mut opened = Device { library, context, name, place, limits };
        let ports = opened.ask_limits().map_err(|e| e.to_string())?;
        let places = (1..=ports).flat_map(|port| opened.places(port, wanted));
        let (rank, place) = places.max_by_key(|(rank, _)| *rank).ok_or("no port of it is active")?;
        opened.place = place;
        Ok((rank, opened))
    }

    /// Notes what the device can do; how many ports it has.
    fn ask_limits(&mut self) -> io::Result<u8> {
        // SAFETY: numbers, for which zeros are values.
        let mut about: DeviceAttributes = unsafe { std::mem::zeroed() };
        // SAFETY: an open device, and room for what is told of it.
        let code = unsafe { (self.library.ibv_query_device)(self.context.as_ptr(), &raw mut about) };
        checked("what it can do is not known", code)?;
        let few = |count: c_int| u8::try_from(count.max(1)).unwrap_or(u8::MAX);
        self.limits = Limits {
            work_requests: about.max_qp_wr.min(about.max_cqe).max(1) as u32,
            reads_asked: few(about.max_qp_init_rd_atom),
            reads_served: few(about.max_qp_rd_atom),
            has_atomics: about.atomic_cap != ATOMIC_NONE,
        };
        Ok(about.phys_port_cnt)
    }

    /// The addresses of a port that works.
    fn places(&self, port: u8, wanted: Wanted) -> Vec<(Rank, Place)> {
        // SAFETY: numbers, for which zeros are values.
        let mut about: PortAttributes = unsafe { std::mem::zeroed() };
        // SAFETY: an open device, and more room than the library fills.
        let code = unsafe { (self.library.ibv_query_port)(self.context.as_ptr(), port, &raw mut about) };
        if code != 0 || about.state != PORT_ACTIVE {
            return Vec::new();
        }
        let is_ethernet = about.link_layer == LINK_ETHERNET;
        // Of InfiniBand the first one is the port's own.
        let gids = if is_ethernet { about.gid_tbl_len.min(MOST_GIDS) } else { 1 };
        let place = |index: c_int| {
            let gid = self.gid(port, index)?;
            let place = Place {
                port,
                is_ethernet,
                gid,
                gid_index: u8::try_from(index).ok()?,
                lid: about.lid,
                mtu: u8::try_from(about.active_mtu).unwrap_or(1),
                most_message_bytes: about.max_msg_sz,
            };
            Some((Rank::of(&place, self.is_routed(port, index), wanted), place))
        };
        (0..gids).filter_map(place).collect()
    }

    fn gid(&self, port: u8, index: c_int) -> Option<Gid> {
        let mut gid = [0_u64; 2];
        // SAFETY: an open device, and room for an address.
        let code = unsafe { (self.library.ibv_query_gid)(self.context.as_ptr(), port, index, &raw mut gid) };
        let gid = Gid::from(bytes_of(gid));
        (code == 0 && !gid.is_unspecified()).then_some(gid)
    }

    /// Whether an address of RoCE is of version 2; the library of old does not tell.
    fn is_routed(&self, port: u8, index: c_int) -> bool {
        let place = format!("/sys/class/infiniband/{}/ports/{port}/gid_attrs/types/{index}", self.name);
        std::fs::read_to_string(place).is_ok_and(|kind| kind.trim() == "RoCE v2")
    }

    pub(super) fn context(&self) -> *mut Context {
        self.context.as_ptr()
    }

    /// Its name, and where it is reached.
    pub(crate) fn describe(&self) -> String {
        format!("{} ({})", self.name, self.place.gid)
    }

    /// Work requests that a connection takes at once at most.
    pub(crate) fn most_work_requests(&self) -> u32 {
        self.limits.work_requests
    }

    /// Bytes that a work request moves at most.
    pub(crate) fn most_message_bytes(&self) -> u32 {
        self.place.most_message_bytes
    }

    /// Whether it changes numbers as one step.
    pub(crate) fn has_atomics(&self) -> bool {
        self.limits.has_atomics
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // SAFETY: all that was made of it keeps it alive and is gone.
        unsafe { (self.library.ibv_close_device)(self.context.as_ptr()) };
    }
}

/// The bytes of an address, which is kept as two numbers for their alignment.
pub(super) fn bytes_of(gid: [u64; 2]) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&gid[0].to_ne_bytes());
    bytes[8..].copy_from_slice(&gid[1].to_ne_bytes());
    bytes
}

/// The other way round.
pub(super) fn numbers_of(gid: Gid) -> [u64; 2] {
    let bytes = gid.octets();
    let number = |at: usize| u64::from_ne_bytes(std::array::from_fn(|i| bytes[at + i]));
    [number(0), number(8)]
}

/// The devices of this machine.
struct List {
    library: &'static Library,
    start: NonNull<Handle>,
    len: usize,
}

impl List {
    fn new(library: &'static Library) -> Result<List, String> {
        let mut len = 0;
        // SAFETY: room for their number.
        let start = NonNull::new(unsafe { (library.ibv_get_device_list)(&raw mut len) });
        let start = start.ok_or_else(|| {
            let why = failed("the system does not tell its RDMA devices");
            format!("{why}; is the module ib_uverbs loaded?")
        })?;
        Ok(List { library, start, len: len.max(0) as usize })
    }

    fn devices(&self) -> &[Handle] {
        // SAFETY: so many lie there until the list is freed.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }

    fn name(&self, device: Handle) -> String {
        // SAFETY: a device of the list; its name lives as long.
        let name = unsafe { (self.library.ibv_get_device_name)(device) };
        if name.is_null() {
            return String::new();
        }
        // SAFETY: a text that ends in a zero.
        unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned()
    }
}

impl Drop for List {
    fn drop(&mut self) {
        // SAFETY: once. Devices that were opened stay open.
        unsafe { (self.library.ibv_free_device_list)(self.start.as_ptr()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_that_is_spoken_to_is_taken_and_else_one_of_the_peers_kind() {
        let gid = |text: &str| text.parse::<Gid>().unwrap();
        let place = |text: &str, is_ethernet| Place {
            port: 1,
            is_ethernet,
            gid: gid(text),
            gid_index: 0,
            lid: 1,
            mtu: 3,
            most_message_bytes: 1,
        };
        let rank = |text: &str, routed, known: Option<&str>, peer: Option<&str>| {
            let (known, peer) =
                (known.map(|known| known.parse().unwrap()), peer.map(|peer| (gid(peer), true)));
            Rank::of(&place(text, true), routed, Wanted { known, peer })
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
        let by_ethernet = Wanted { known: None, peer: Some((gid(v4), true)) };
        let by_infiniband = Wanted { known: None, peer: Some((gid(link), false)) };
        for (wanted, ethernet) in [(by_ethernet, true), (by_infiniband, false)] {
            let of = |is_ethernet, text| Rank::of(&place(text, is_ethernet), is_ethernet, wanted);
            assert_eq!(of(true, v4) > of(false, link), ethernet);
        }
    }

    #[test]
    fn addresses_go_there_and_back() {
        let gid: Gid = "2001:db8::1:2".parse().unwrap();
        assert_eq!(Gid::from(bytes_of(numbers_of(gid))), gid);
    }

    #[test]
    fn a_machine_without_a_device_says_what_to_do() {
        if let Err(why) = Device::open(Wanted::default()) {
            assert!(
                ["install", "rdma link", "ib_uverbs", "can be used"].iter().any(|what| why.contains(what)),
                "{why}"
            );
        }
    }
}
