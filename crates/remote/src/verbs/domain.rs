//! Protection domains, and memory that a device may access within one.

use super::abi::{
    ACCESS_LOCAL_WRITE, ACCESS_REMOTE_ATOMIC, ACCESS_REMOTE_READ, ACCESS_REMOTE_WRITE, MemoryRegion,
};
use super::device::Device;
use super::library::failed;
use std::ffi::{c_int, c_void};
use std::io;
use std::ptr::NonNull;
use std::sync::Arc;

/// A protection domain: its connections and registrations may be used with each other, and with no others.
#[derive(Debug)]
pub(crate) struct Domain {
    device: Device,
    raw: NonNull<c_void>,
}

// SAFETY: the library's functions may be called by any thread; a domain is freed once.
unsafe impl Send for Domain {}
// SAFETY: as above.
unsafe impl Sync for Domain {}

impl Domain {
    pub(crate) fn new(device: Device) -> io::Result<Domain> {
        // SAFETY: the device is open.
        let raw = NonNull::new(unsafe { (device.library.ibv_alloc_pd)(device.context()) });
        let raw = raw.ok_or_else(|| failed("no protection domain can be allocated"))?;
        Ok(Domain { device, raw })
    }

    pub(crate) fn device(&self) -> &Device {
        &self.device
    }

    pub(super) fn raw(&self) -> *mut c_void {
        self.raw.as_ptr()
    }
}

impl Drop for Domain {
    fn drop(&mut self) {
        // SAFETY: everything created in the domain holds an `Arc` of it, and so is gone. Freed once.
        unsafe { (self.device.library.ibv_dealloc_pd)(self.raw.as_ptr()) };
    }
}

/// Access to registered memory, or over a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// The device of this process reads the memory, to send it.
    LocalRead,
    /// The device of this process writes received bytes to the memory.
    LocalWrite,
    /// Peers read the memory.
    RemoteRead,
    /// Peers read and write the memory, and execute atomic operations on it.
    RemoteWrite,
}

impl Access {
    pub(super) fn flags(self) -> c_int {
        match self {
            Access::LocalRead => 0,
            Access::LocalWrite => ACCESS_LOCAL_WRITE,
            Access::RemoteRead => ACCESS_REMOTE_READ,
            Access::RemoteWrite => {
                ACCESS_LOCAL_WRITE | ACCESS_REMOTE_READ | ACCESS_REMOTE_WRITE | ACCESS_REMOTE_ATOMIC
            }
        }
    }
}

/// Registration of memory: the device of the domain may access it until this is dropped.
#[derive(Debug)]
pub(crate) struct Registration {
    domain: Arc<Domain>,
    raw: NonNull<MemoryRegion>,
    start: u64,
    len: usize,
    local_key: u32,
    remote_key: u32,
}

// SAFETY: the library's functions may be called by any thread; a registration is ended once.
unsafe impl Send for Registration {}
// SAFETY: as above.
unsafe impl Sync for Registration {}

impl Registration {
    /// Registers `len` bytes from `start` on, and locks them in memory.
    ///
    /// # Errors
    /// [`io::Error`]; of the kind `OutOfMemory` if this user may not lock that much memory.
    ///
    /// # Safety
    /// The bytes stay mapped until the registration is dropped. Until then the device and its peers may
    /// access them as `access` allows, so all other accesses must be valid beside theirs.
    pub(crate) unsafe fn new(
        domain: &Arc<Domain>,
        start: *mut u8,
        len: usize,
        access: Access,
    ) -> io::Result<Registration> {
        let library = domain.device().library;
        // SAFETY: the caller keeps the bytes mapped.
        let raw = unsafe { (library.ibv_reg_mr)(domain.raw(), start.cast(), len, access.flags()) };
        let raw = NonNull::new(raw).ok_or_else(|| {
            let error = failed("memory cannot be registered with the RDMA device");
            match error.kind() {
                io::ErrorKind::OutOfMemory => {
                    let what = "this user may not lock enough memory: raise `ulimit -l` (LimitMEMLOCK= of a \
                                systemd unit)";
                    io::Error::new(error.kind(), format!("{error}; {what}"))
                }
                _ => error,
            }
        })?;
        // SAFETY: the library has returned a valid registration.
        let (local_key, remote_key) = unsafe { (raw.as_ref().lkey, raw.as_ref().rkey) };
        Ok(Registration { domain: domain.clone(), raw, start: start as u64, len, local_key, remote_key })
    }

    /// Returns true if `len` bytes from `address` on lie in the registered memory.
    pub(crate) fn holds(&self, address: *const u8, len: usize) -> bool {
        let offset = (address as u64).checked_sub(self.start);
        offset.is_some_and(|offset| offset.saturating_add(len as u64) <= self.len as u64)
    }

    /// Returns the key of the memory in work requests of this process.
    pub(crate) fn local_key(&self) -> u32 {
        self.local_key
    }

    /// Returns the key of the memory in work requests of peers.
    pub(crate) fn remote_key(&self) -> u32 {
        self.remote_key
    }

    /// Returns the address of the first byte, as peers use it.
    pub(crate) fn start(&self) -> u64 {
        self.start
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        // SAFETY: deregistered once, while the domain still exists.
        unsafe { (self.domain.device().library.ibv_dereg_mr)(self.raw.as_ptr()) };
    }
}
