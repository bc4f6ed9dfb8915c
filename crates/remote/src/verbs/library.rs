//! `libibverbs`, opened at run time.

use super::abi::{
    Context, DeviceAttributes, Handle, MemoryRegion, PortAttributes, QueuePair, QueuePairAttributes,
    QueuePairInit,
};
#[cfg(unix)]
use std::ffi::{CStr, CString};
use std::ffi::{c_char, c_int};
use std::io;
use std::sync::OnceLock;

/// File name of the library, which contains the version of its interface.
#[cfg(unix)]
const FILE: &CStr = c"libibverbs.so.1";
/// Advice for a system without the library.
#[cfg(unix)]
const ADVICE: &str =
    "install libibverbs1 and ibverbs-providers (Debian, Ubuntu) or rdma-core (Fedora, RHEL, SUSE)";

/// Declares the library's functions that are used, and how they are looked up.
macro_rules! functions {
    ($($name:ident: fn($($argument:ty),*) -> $result:ty;)*) => {
        /// The library's functions. Each is documented by the manual page of its name in rdma-core.
        pub(super) struct Library { $(pub(super) $name: unsafe extern "C" fn($($argument),*) -> $result,)* }

        impl Library {
            /// Looks up every function in an open library.
            #[cfg(unix)]
            fn find(library: Handle) -> Result<Library, String> {
                Ok(Library { $($name: {
                    let found = symbol(library, stringify!($name))?;
                    // SAFETY: the function of this name has had this type since version 1.1 of the interface.
                    unsafe {
                        std::mem::transmute::<Handle, unsafe extern "C" fn($($argument),*) -> $result>(found)
                    }
                },)* })
            }
        }
    };
}

functions! {
    ibv_get_device_list: fn(*mut c_int) -> *mut Handle;
    ibv_free_device_list: fn(*mut Handle) -> ();
    ibv_get_device_name: fn(Handle) -> *const c_char;
    ibv_open_device: fn(Handle) -> *mut Context;
    ibv_close_device: fn(*mut Context) -> c_int;
    ibv_query_device: fn(*mut Context, *mut DeviceAttributes) -> c_int;
    ibv_query_port: fn(*mut Context, u8, *mut PortAttributes) -> c_int;
    ibv_query_gid: fn(*mut Context, u8, c_int, *mut [u64; 2]) -> c_int;
    ibv_alloc_pd: fn(*mut Context) -> Handle;
    ibv_dealloc_pd: fn(Handle) -> c_int;
    ibv_reg_mr: fn(Handle, Handle, usize, c_int) -> *mut MemoryRegion;
    ibv_dereg_mr: fn(*mut MemoryRegion) -> c_int;
    ibv_create_cq: fn(*mut Context, c_int, Handle, Handle, c_int) -> Handle;
    ibv_destroy_cq: fn(Handle) -> c_int;
    ibv_create_qp: fn(Handle, *mut QueuePairInit) -> *mut QueuePair;
    ibv_modify_qp: fn(*mut QueuePair, *mut QueuePairAttributes, c_int) -> c_int;
    ibv_destroy_qp: fn(*mut QueuePair) -> c_int;
}

#[cfg(unix)]
fn symbol(library: Handle, name: &str) -> Result<Handle, String> {
    let missing = || format!("{} has no {name}: a newer version is needed; {ADVICE}", FILE.to_string_lossy());
    let name = CString::new(name).map_err(|_| missing())?;
    // SAFETY: the library is open, and the name ends in a zero.
    let found = unsafe { libc::dlsym(library, name.as_ptr()) };
    if found.is_null() { Err(missing()) } else { Ok(found) }
}

/// Returns the loader's message for its last error on this thread.
#[cfg(unix)]
fn loader_error() -> String {
    // SAFETY: the text belongs to this thread until its next call to the loader.
    let message = unsafe { libc::dlerror() };
    if message.is_null() {
        return "the loader gives no reason".into();
    }
    // SAFETY: the text ends in a zero.
    unsafe { CStr::from_ptr(message) }.to_string_lossy().into_owned()
}

impl Library {
    /// Returns the library, which is opened by the first call and never closed.
    ///
    /// # Errors
    /// A message that says what is missing and what to do.
    pub(super) fn get() -> Result<&'static Library, String> {
        static OPENED: OnceLock<Result<Library, String>> = OnceLock::new();
        OPENED.get_or_init(Library::open).as_ref().map_err(String::clone)
    }

    #[cfg(not(unix))]
    fn open() -> Result<Library, String> {
        Err("RDMA needs libibverbs, which exists on Linux only".into())
    }

    #[cfg(unix)]
    fn open() -> Result<Library, String> {
        if cfg!(target_feature = "crt-static") {
            return Err(
                "this program is linked statically and cannot open libraries: use a dynamically linked build"
                    .into(),
            );
        }
        if cfg!(target_endian = "big") {
            return Err(
                "RDMA needs a little-endian processor, because the numbers of indexes are little-endian"
                    .into(),
            );
        }
        // SAFETY: the name ends in a zero. Loading runs the initializers of rdma-core, which is trusted.
        let library = unsafe { libc::dlopen(FILE.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if library.is_null() {
            return Err(format!("libibverbs cannot be opened ({}): {ADVICE}", loader_error()));
        }
        Library::find(library)
    }
}

/// Returns the system's last error, with `what` in front.
pub(super) fn failed(what: &str) -> io::Error {
    explained(what, io::Error::last_os_error())
}

/// Converts a call's return value: 0 is success, a positive value is the error number.
pub(super) fn checked(what: &str, code: c_int) -> io::Result<()> {
    match code {
        0 => Ok(()),
        // Some calls return -1 and set `errno`.
        ..0 => Err(failed(what)),
        code => Err(explained(what, io::Error::from_raw_os_error(code))),
    }
}

fn explained(what: &str, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{what}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A library that is found has all functions; without one, the error says what to install.
    #[test]
    fn errors_name_what_is_missing() {
        if let Err(why) = Library::get() {
            assert!(why.contains("install libibverbs1") || why.contains("statically"), "{why}");
        }
        assert!(
            symbol(std::ptr::null_mut(), "ibv_no_such_function")
                .unwrap_err()
                .contains("ibv_no_such_function")
        );
        assert_eq!(checked("x", 0).ok(), Some(()));
        assert!(checked("open", libc::EPERM).unwrap_err().to_string().starts_with("open: "));
    }
}
