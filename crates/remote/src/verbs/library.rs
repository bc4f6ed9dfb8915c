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

/// What the library is called: the version of its interface is in the name.
#[cfg(unix)]
const FILE: &CStr = c"libibverbs.so.1";
/// What to do where it is missing.
#[cfg(unix)]
const ADVICE: &str =
    "install libibverbs1 and ibverbs-providers (Debian, Ubuntu) or rdma-core (Fedora, RHEL, SUSE)";

/// Declares the functions that are used, and how they are found.
macro_rules! functions {
    ($($name:ident: fn($($argument:ty),*) -> $result:ty;)*) => {
        /// The library's functions. Each is called as rdma-core's manual page of its name says.
        pub(super) struct Library { $(pub(super) $name: unsafe extern "C" fn($($argument),*) -> $result,)* }

        impl Library {
            /// Finds every function in an open library.
            #[cfg(unix)]
            fn find(library: Handle) -> Result<Library, String> {
                Ok(Library { $($name: {
                    let found = symbol(library, stringify!($name))?;
                    // SAFETY: the symbol of this name is a function of this type since version 1.1 of the interface.
                    unsafe { std::mem::transmute::<Handle, unsafe extern "C" fn($($argument),*) -> $result>(found) }
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
    let missing = || format!("{} has no {name}: a newer one is wanted; {ADVICE}", FILE.to_string_lossy());
    let name = CString::new(name).map_err(|_| missing())?;
    // SAFETY: an open library, and a name that ends in a zero.
    let found = unsafe { libc::dlsym(library, name.as_ptr()) };
    if found.is_null() { Err(missing()) } else { Ok(found) }
}

/// What the system says of the last call to its loader.
#[cfg(unix)]
fn loader_error() -> String {
    // SAFETY: the text is this thread's until its next call to the loader.
    let said = unsafe { libc::dlerror() };
    if said.is_null() {
        return "the loader does not say why".into();
    }
    // SAFETY: a text that ends in a zero.
    unsafe { CStr::from_ptr(said) }.to_string_lossy().into_owned()
}

impl Library {
    /// The library, opened by whoever asks first and never closed.
    ///
    /// # Errors
    /// What is missing, and what to do.
    pub(super) fn get() -> Result<&'static Library, String> {
        static OPENED: OnceLock<Result<Library, String>> = OnceLock::new();
        OPENED.get_or_init(Library::open).as_ref().map_err(String::clone)
    }

    #[cfg(not(unix))]
    fn open() -> Result<Library, String> {
        Err("RDMA devices are reached by libibverbs, which is had on Linux only".into())
    }

    #[cfg(unix)]
    fn open() -> Result<Library, String> {
        if cfg!(target_feature = "crt-static") {
            return Err(
                "this program is linked statically and cannot open libraries: use one that is not".into()
            );
        }
        if cfg!(target_endian = "big") {
            return Err("RDMA changes numbers in the order of the processor's bytes, which here is not that of indexes".into());
        }
        // SAFETY: a name that ends in a zero. What the library does when it is loaded is rdma-core's to answer for.
        let library = unsafe { libc::dlopen(FILE.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if library.is_null() {
            return Err(format!("libibverbs cannot be opened ({}): {ADVICE}", loader_error()));
        }
        Library::find(library)
    }
}

/// Why a call that says so by the system's error number has failed.
pub(super) fn failed(what: &str) -> io::Error {
    explained(what, io::Error::last_os_error())
}

/// The same of a call that returns the number; `Ok` for 0.
pub(super) fn checked(what: &str, code: c_int) -> io::Result<()> {
    match code {
        0 => Ok(()),
        // Some calls return -1 and set the system's number.
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

    /// Where there is a library it is whole, and where there is none it is said what to install.
    #[test]
    fn what_is_missing_is_said() {
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
