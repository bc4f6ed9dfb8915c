//! Ctrl-C and SIGTERM.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

use crate::failure::Code;

/// A flag that Ctrl-C or SIGTERM sets. Clones share the flag.
#[derive(Clone, Debug)]
pub struct Interrupt {
    requested: Arc<AtomicBool>,
}

impl Interrupt {
    /// Begins to listen for SIGINT and SIGTERM, and clears the flag that an earlier command may have left
    /// set. The handlers are registered once per process. A second SIGINT ends the process at once, for work
    /// that does not poll the flag.
    ///
    /// If the handlers cannot be registered, the signals keep their default effect.
    pub fn listen() -> Interrupt {
        static REQUESTED: OnceLock<Arc<AtomicBool>> = OnceLock::new();
        let requested = REQUESTED.get_or_init(|| {
            let requested = Arc::new(AtomicBool::new(false));
            // The order matters: at the first signal the flag is clear, so the conditional shutdown does
            // nothing, and the next handler sets the flag.
            let _ =
                flag::register_conditional_shutdown(SIGINT, Code::Cancelled as i32, Arc::clone(&requested));
            let _ = flag::register(SIGINT, Arc::clone(&requested));
            let _ = flag::register(SIGTERM, Arc::clone(&requested));
            requested
        });
        requested.store(false, Ordering::Relaxed);
        Interrupt { requested: Arc::clone(requested) }
    }

    /// Returns true once the user has asked to stop.
    pub fn requested(&self) -> bool {
        self.requested.load(Ordering::Relaxed)
    }

    /// Returns the flag for work that outlives this value.
    pub fn shared(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.requested)
    }

    /// Returns the flag for work that borrows it.
    pub fn flag(&self) -> &AtomicBool {
        &self.requested
    }
}
