//! Protection domains, and memory that a device may reach within one.

use super::abi::{
    ACCESS_LOCAL_WRITE, ACCESS_REMOTE_ATOMIC, ACCESS_REMOTE_READ, ACCESS_REMOTE_WRITE, MemoryRegion,
};
use super::device::Device;
use super::library::failed;
use std::ffi::{c_int, c_void};
use std::io;
use std::ptr::NonNull;
use std::sync::Arc;

/// Connections and registrations that may be used with each other, and with no others.
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
        // SAFETY: an open device.
        let raw = NonNull::new(unsafe { (device.library.ibv_alloc_pd)(device.context()) });
        let raw = raw.ok_or_else(|| failed("no protection domain is to be had"))?;
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
        // SAFETY: all that was made in it keeps it alive and is gone.
        unsafe { (self.device.library.ibv_dealloc_pd)(self.raw.as_ptr()) };
    }
}

/// Who may do what with registered memory, or over a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// This process's device reads it, to send it.
    Sent,
    /// This process's device writes what comes to it.
    Filled,
    /// Peers read it.
    Read,
    /// Peers read and write it, and change numbers in it.
    Changed,
}

impl Access {
    pub(super) fn flags(self) -> c_int {
        match self {
            Access::Sent => 0,
            Access::Filled => ACCESS_LOCAL_WRITE,
            Access::Read => ACCESS_REMOTE_READ,
            Access::Changed => {
                ACCESS_LOCAL_WRITE | ACCESS_REMOTE_READ | ACCESS_REMOTE_WRITE | ACCESS_REMOTE_ATOMIC
            }
        }
    }
}

/// Memory that the device of a domain reaches until this is dropped.
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
    /// Registers `len` bytes from `start` on, which stay in memory for as long.
    ///
    /// # Errors
    /// [`io::Error`]; of the kind `OutOfMemory` where this user may not lock so much memory.
    ///
    /// # Safety
    /// The bytes stay mapped until this is dropped. What the device and its peers do to them in the meantime by `access` is no
    /// surprise to anybody who touches them.
    pub(crate) unsafe fn new(
        domain: &Arc<Domain>,
        start: *mut u8,
        len: usize,
        access: Access,
    ) -> io::Result<Registration> {
        let library = domain.device().library;
        // SAFETY: the caller keeps the bytes where they are.
        let raw = unsafe { (library.ibv_reg_mr)(domain.raw(), start.cast(), len, access.flags()) };
        let raw = NonNull::new(raw).ok_or_else(|| {
            let error = failed("memory cannot be registered with the RDMA device");
            match error.kind() {
                io::ErrorKind::OutOfMemory => {
                    let what = "this user may lock too little memory: raise `ulimit -l` (LimitMEMLOCK= of a systemd unit)";
                    io::Error::new(error.kind(), format!("{error}; {what}"))
                }
                _ => error,
            }
        })?;
        // SAFETY: the library has filled it in.
        let (local_key, remote_key) = unsafe { (raw.as_ref().lkey, raw.as_ref().rkey) };
        Ok(Registration { domain: domain.clone(), raw, start: start as u64, len, local_key, remote_key })
    }

    /// Whether so many bytes from `address` on lie in it.
    pub(crate) fn holds(&self, address: *const u8, len: usize) -> bool {
        let offset = (address as u64).checked_sub(self.start);
        offset.is_some_and(|offset| offset.saturating_add(len as u64) <= self.len as u64)
    }

    /// What this process names it by in work requests.
    pub(crate) fn local_key(&self) -> u32 {
        self.local_key
    }

    /// What a peer names it by.
    pub(crate) fn remote_key(&self) -> u32 {
        self.remote_key
    }

    /// Its first byte, by which peers count.
    pub(crate) fn start(&self) -> u64 {
        self.start
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        // SAFETY: once; the domain is still there.
        unsafe { (self.domain.device().library.ibv_dereg_mr)(self.raw.as_ptr()) };
    }
}
