//! Ctrl-C.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

use crate::failure::Code;

/// Says whether the user has asked to stop. Cloning shares the answer.
#[derive(Clone, Debug)]
pub struct Interrupt {
    asked: Arc<AtomicBool>,
}

impl Interrupt {
    /// Begins to listen for SIGINT and SIGTERM, once a process however often it is called, and forgets what
    /// an earlier command was told. A second SIGINT ends the process at once, for work that does not listen.
    ///
    /// Where the system refuses (it never has), the signals keep their usual meaning.
    pub fn listen() -> Interrupt {
        static ASKED: OnceLock<Arc<AtomicBool>> = OnceLock::new();
        let asked = ASKED.get_or_init(|| {
            let asked = Arc::new(AtomicBool::new(false));
            // The order matters: the first signal finds the flag down, passes the shutdown and raises it.
            let _ = flag::register_conditional_shutdown(SIGINT, Code::Cancelled as i32, Arc::clone(&asked));
            let _ = flag::register(SIGINT, Arc::clone(&asked));
            let _ = flag::register(SIGTERM, Arc::clone(&asked));
            asked
        });
        asked.store(false, Ordering::Relaxed);
        Interrupt { asked: Arc::clone(asked) }
    }

    /// True once the user has asked to stop.
    pub fn asked(&self) -> bool {
        self.asked.load(Ordering::Relaxed)
    }

    /// The flag itself, shared, for work that outlives this value.
    pub fn shared(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.asked)
    }

    /// The flag itself, for work that takes one.
    pub fn flag(&self) -> &AtomicBool {
        &self.asked
    }
}
